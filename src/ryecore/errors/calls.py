"""Calls that can't be served, and what they stand on."""

from collections.abc import Mapping

from ryecore.errors.base import RyeError

__all__ = [
    "CallCancelled",
    "InputError",
    "InvalidInputs",
    "InvalidParameters",
    "InvalidQuery",
    "McpError",
    "McpToolChanged",
    "MissingExtra",
    "NotApproved",
    "NotAvailableYet",
    "RyeClosed",
    "StateError",
    "TextTooLong",
    "ThreadConflict",
    "ThreadNotFound",
    "ToolFailed",
    "UnsupportedExecution",
]


class InputError(RyeError):
    """The caller asked for something that can't be done."""

    error_type = "input"


class InvalidParameters(InputError):
    """The parameters don't fit the tool's schema."""

    error_type = "invalid_parameters"
    failures: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The error object, with every failure in `failures`."""
        return super().to_dict() | {"failures": list(self.failures)}


class InvalidInputs(InputError):
    """The inputs don't fit what a directive declares.

    Source: docs/design/execute.md#errors.
    """

    error_type = "invalid_inputs"
    failures: tuple[str, ...] = ()
    declared_inputs: tuple[Mapping[str, object], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The error object, with what the directive declares."""
        return super().to_dict() | {
            "failures": list(self.failures),
            "declared_inputs": [dict(one) for one in self.declared_inputs],
        }


class InvalidQuery(InputError):
    """A search query can't be read."""

    error_type = "invalid_query"
    query: str


class NotApproved(InputError):
    """What was asked for needs the host's approval, which is missing or was refused."""

    error_type = "not_approved"


class UnsupportedExecution(InputError):
    """A cell of the execution matrix that is refused.

    Source: docs/design/execute.md#matrix.
    """

    error_type = "unsupported"


class NotAvailableYet(InputError):
    """A part of the matrix that this version lacks; the message names what is missing."""

    error_type = "not_available_yet"
    missing: str


class StateError(RyeError):
    """The state below `.ai/state` can't be read, written or trusted."""

    error_type = "state"


class ThreadNotFound(StateError, LookupError):
    """No thread has this id."""

    error_type = "thread_not_found"
    thread_id: str


class ThreadConflict(StateError):
    """The thread's status doesn't allow what was asked for: it has ended, or runs already."""

    error_type = "thread_conflict"
    thread_id: str
    state: str


class AlreadyStarted(ThreadConflict):
    """A thread was started with the same idempotency key and request; `thread_id` is that one."""

    error_type = "already_started"


class McpError(RyeError):
    """An MCP server can't be reached, broke off, or answered what is no answer."""

    error_type = "mcp"
    server: str


class McpToolChanged(McpError):
    """A tool of an MCP server is not the one that was pinned.

    Attributes:
        difference: What changed, as the lines of a unified diff.
    """

    error_type = "mcp_tool_changed"
    tool: str
    difference: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """The error object, with the difference."""
        return super().to_dict() | {"difference": list(self.difference)}


class MissingExtra(RyeError):
    """A part of ryecore needs a package that is not installed."""

    error_type = "missing_extra"
    extra: str


class ToolFailed(RyeError):
    """A tool ran and failed. Raised by `ExecutionResult.raise_for_status` alone."""

    error_type = "tool_failed"
    data: object = None


class CallCancelled(RyeError):
    """The caller's token cancelled the call; nothing of it runs any more."""

    error_type = "cancelled"


class TextTooLong(RyeError):
    """A text is too long to be searched for a regular expression of a signed file.

    Attributes:
        pattern: The regular expression.
        characters: How many characters the text has.
    """

    error_type = "text_too_long"
    pattern: str
    characters: int


class RyeClosed(RyeError):
    """The Rye was closed before the call, or while it ran."""

    error_type = "closed"
