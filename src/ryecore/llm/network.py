"""The switch that refuses every request of an adapter to a model.

It is for tests. It is the only switch here for the whole process, because it guards against the
provider that nobody thought of. No environment variable sets it.
"""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Self

from ryecore.errors.agents import LlmError

__all__ = ["allow_model_requests", "check_model_requests_allowed", "refuse_model_requests"]


class _Switch:
    """The state of the switch."""

    __slots__ = ("allowed",)

    def __init__(self) -> None:
        self.allowed = True


_SWITCH: Final = _Switch()


class _Turned:
    """A change of the switch; as a context manager, it restores the earlier state."""

    __slots__ = ("_before",)

    def __init__(self, allowed: bool) -> None:
        self._before = _SWITCH.allowed
        _SWITCH.allowed = allowed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _SWITCH.allowed = self._before


def refuse_model_requests() -> AbstractContextManager[object]:
    """Refuse all requests of adapters to models, from now on, in the whole process.

    A server on this machine is refused as well. Scripted models and functions send no requests and
    still work.

    Returns:
        A context manager that restores the earlier state at its end. Without `with`, the refusal
        stays.
    """
    return _Turned(False)


def allow_model_requests() -> AbstractContextManager[object]:
    """Allow requests of adapters to models again; see `refuse_model_requests`.

    Returns:
        A context manager that restores the earlier state at its end.
    """
    return _Turned(True)


def check_model_requests_allowed(provider: str, model: str = "") -> None:
    """Refuse a request if the switch is set. Adapters call it before they open a connection.

    Args:
        provider: The provider's id.
        model: The model's name.

    Raises:
        LlmError: `bad_request`: requests to models are refused.
    """
    if not _SWITCH.allowed:
        raise LlmError(
            f"Requests to models are refused here, and {provider!r} was asked for one.",
            next_step="Give the test a ScriptedProvider, or ask within `with "
            "allow_model_requests():`.",
            kind="bad_request",
            provider=provider,
            model=model,
        )
