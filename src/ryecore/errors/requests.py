"""Errors of requests: inputs, approval, MCP servers, extras and cancellation."""

from collections.abc import Mapping

from ryecore.errors.base import RyeError

__all__ = [
    "AuditError",
    "CallCancelled",
    "InputError",
    "InvalidConversation",
    "InvalidInputs",
    "InvalidParameters",
    "InvalidQuery",
    "McpError",
    "McpToolChanged",
    "MissingExtra",
    "NotApproved",
    "NotAvailableYet",
    "RemoteError",
    "RemoteUnavailable",
    "RemoteUntrusted",
    "RyeClosed",
    "TextTooLong",
    "ThreadFailed",
    "ToolFailed",
    "UnsupportedExecution",
]


class AuditError(RyeError):
    """The audit log can't be written, so nothing runs."""

    error_type = "audit"


class InputError(RyeError):
    """A request can't be carried out as it was made."""

    error_type = "input"


class InvalidParameters(InputError):
    """The parameters don't fit the tool's schema."""

    error_type = "invalid_parameters"
    failures: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the error object, with every failure in `failures`."""
        return super().to_dict() | {"failures": list(self.failures)}


class InvalidConversation(InputError):
    """A conversation can't be continued: it is damaged, or tool calls and results don't match.

    Attributes:
        message_index: The index of the message, from 0; None where it isn't about one.
        known_versions: The versions that this ryecore reads, where another one was saved.
    """

    error_type = "invalid_conversation"
    message_index: int | None = None
    known_versions: tuple[int, ...] = ()


class InvalidInputs(InputError):
    """The inputs don't fit what a directive declares.

    Source: docs/design/execute.md#errors.
    """

    error_type = "invalid_inputs"
    failures: tuple[str, ...] = ()
    declared_inputs: tuple[Mapping[str, object], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the error object, with the inputs that the directive declares."""
        return super().to_dict() | {
            "failures": list(self.failures),
            "declared_inputs": [dict(one) for one in self.declared_inputs],
        }


class InvalidQuery(InputError):
    """A search query can't be read."""

    error_type = "invalid_query"
    query: str


class NotApproved(InputError):
    """The request needs the host's approval, which is missing or was refused."""

    error_type = "not_approved"


class UnsupportedExecution(InputError):
    """The execution matrix refuses this combination of item, target and thread.

    Source: docs/design/execute.md#matrix.
    """

    error_type = "unsupported"


class NotAvailableYet(InputError):
    """This version lacks a part of the execution matrix; `missing` names it."""

    error_type = "not_available_yet"
    missing: str


class McpError(RyeError):
    """An MCP server can't be reached, hung up, or sent an invalid response.

    Attributes:
        server: The server's id; empty where none is known.
        stderr: The last lines that it wrote to its standard error, at most 20, as the message
            repeats them; empty for a server that isn't started here.
        is_unavailable: Whether it can't be reached, or a gateway says so: trying later may help.
    """

    error_type = "mcp"
    server: str
    stderr: str = ""
    is_unavailable: bool = False


class McpToolChanged(McpError):
    """A tool of an MCP server differs from the one that was pinned.

    Attributes:
        difference: What changed, as the lines of a unified diff.
    """

    error_type = "mcp_tool_changed"
    tool: str
    difference: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the error object, with the difference."""
        return super().to_dict() | {"difference": list(self.difference)}


class RemoteError(RyeError):
    """A node refuses a request, or can't be used.

    Attributes:
        remote: The name of the remote, or its URL where it has none.
        problem: The name of the problem in docs/design/remote.md, or for a Ray cluster in
            docs/design/ray.md; empty for none of them.
        status: The status of the node's response; 0 without one.
    """

    error_type = "remote"
    remote: str = ""
    problem: str = ""
    status: int = 0


class RemoteUnavailable(RemoteError):
    """A node can't be reached. What was started there continues."""

    error_type = "remote_unavailable"


class RemoteUntrusted(RemoteError):
    """A node's response or report isn't signed by its key, or isn't what it must be."""

    error_type = "remote_untrusted"


class MissingExtra(RyeError):
    """An optional dependency is not installed."""

    error_type = "missing_extra"
    extra: str


class ToolFailed(RyeError):
    """A tool ran and failed. Raised only by `ExecutionResult.raise_for_status`."""

    error_type = "tool_failed"
    data: object = None


class ThreadFailed(ToolFailed):
    """A directive's thread failed. Raised only by `ThreadResult.raise_for_status`.

    Attributes:
        thread_id: The thread.
        code: The reason, such as `spend_exceeded`.
    """

    error_type = "thread_failed"
    thread_id: str
    code: str


class CallCancelled(RyeError):
    """The caller's token cancelled the call, and nothing of it still runs."""

    error_type = "cancelled"


class TextTooLong(RyeError):
    """A text is too long to be searched for a regular expression of a signed file.

    Attributes:
        pattern: The regular expression.
        characters: The length of the text.
    """

    error_type = "text_too_long"
    pattern: str
    characters: int


class RyeClosed(RyeError):
    """The Rye was closed before the call, or while it ran."""

    error_type = "closed"
