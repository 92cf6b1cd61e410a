"""How large and how slow a tool call may be."""

from attrs import field, frozen, validators

__all__ = ["ToolLimits"]

_SIZE = [validators.instance_of(int), validators.gt(0)]


@frozen
class ToolLimits:
    """What bounds every call of a registry's tools.

    Attributes:
        timeout_s: After how many seconds a tool is stopped that says nothing of that itself.
        max_argument_bytes: How large the arguments may be; larger ones are not even parsed.
        preview_chars: How much of a result the model gets. Of a longer one it gets the head, the
            tail and a handle.
        max_result_bytes: How large a result may be at all.
        max_result_values: How many values it may hold.
        event_chars: How long what an event shows of arguments and results may be.

    Raises:
        ValueError: One is not positive.
        TypeError: One is no number.
    """

    timeout_s: float = field(default=300.0, validator=validators.gt(0))
    max_argument_bytes: int = field(default=1024 * 1024, validator=_SIZE)
    preview_chars: int = field(default=16_000, validator=_SIZE)
    max_result_bytes: int = field(default=64 * 1024 * 1024, validator=_SIZE)
    max_result_values: int = field(default=2_000_000, validator=_SIZE)
    event_chars: int = field(default=2_000, validator=_SIZE)
