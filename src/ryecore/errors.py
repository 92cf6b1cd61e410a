"""Every error that ryecore raises on purpose.

RyeError
├── ItemError               an item can't be found, named or read
│   ├── InvalidItemId           (also a ValueError)
│   ├── ItemNotFound            (also a LookupError)
│   ├── AmbiguousItem           two files, or two kinds, answer to one name
│   └── MetadataError           broken Python, YAML, JSON or header
├── IntegrityError          what stands on disk is not what a trusted key signed
│   ├── UnsignedItem
│   ├── MalformedSignature
│   ├── ContentChanged
│   ├── BadSignature            moved, renamed, back-dated or forged
│   └── UntrustedKey
│       └── RevokedKey          revoked, or past its `not_after`
├── SigningError            a key or a signature can't be made
├── ChainError              tool -> runtime -> primitive does not hold
│   ├── ChainTooDeep
│   ├── CircularDependency
│   ├── ExecutorNotFound        (also a ValueError)
│   ├── MissingExecutorId
│   ├── IncompatibleChain       spaces, inputs and outputs, versions
│   ├── InterpreterNotFound
│   └── AnchorError
├── ConfigError             a configuration file can't be used
├── InputError              the caller asked for something that can't be done
│   ├── InvalidParameters       every failing path is listed
│   ├── InvalidInputs           a directive's; what it declares is listed
│   ├── InvalidQuery            a search query, with the place that can't be read
│   ├── NotApproved             the host's approval is missing or was refused
│   ├── UnsupportedExecution    a cell of the execution matrix that is refused
│   └── NotAvailableYet         a part that this version lacks
├── StateError              `.ai/state` can't be used
│   ├── ThreadNotFound          (also a LookupError)
│   └── ThreadConflict          the thread's status doesn't allow what was asked for
├── McpError                an MCP server can't be reached, or broke off
│   └── McpToolChanged          a tool is not the one that was pinned
├── MissingExtra            an optional dependency is not installed
├── ToolFailed              a tool ran and failed (raised by `raise_for_status` alone)
├── CallCancelled           the caller's token cancelled the call
├── RyeClosed               the Rye was closed while the call ran, or before
└── ProcessError            lillux: processes, content store
    ├── SpawnFailed
    └── StoreError

Each carries its facts as attributes, and `next_step` says what to do about it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

__all__ = [
    "AmbiguousItem",
    "AnchorError",
    "BadSignature",
    "CallCancelled",
    "ChainError",
    "ChainTooDeep",
    "CircularDependency",
    "ConfigError",
    "ContentChanged",
    "ExecutorNotFound",
    "IncompatibleChain",
    "InputError",
    "IntegrityError",
    "InterpreterNotFound",
    "InvalidInputs",
    "InvalidItemId",
    "InvalidParameters",
    "InvalidQuery",
    "ItemError",
    "ItemNotFound",
    "MalformedSignature",
    "McpError",
    "McpToolChanged",
    "MetadataError",
    "MissingExecutorId",
    "MissingExtra",
    "NotApproved",
    "NotAvailableYet",
    "ProcessError",
    "RevokedKey",
    "RyeClosed",
    "RyeError",
    "SigningError",
    "SpawnFailed",
    "StateError",
    "StoreError",
    "ThreadConflict",
    "ThreadNotFound",
    "ToolFailed",
    "UnsignedItem",
    "UnsupportedExecution",
    "UntrustedKey",
]


class RyeError(Exception):
    """The base of every ryecore error.

    Args:
        message: What went wrong, one sentence.
        next_step: What to do about it; empty where nothing sensible can be said.
        **facts: The facts behind the message; each becomes an attribute.

    Attributes:
        item_id: The item that was asked for, in canonical form, if known.
        chain: The ids of the chain elements that had been found, head first.
        trace: The events up to and with the failing one, when tracing was on.
        duration_ms: How long the attempt took, where it was measured.
    """

    error_type: ClassVar[str] = "error"

    item_id: str | None
    chain: tuple[str, ...]
    trace: tuple[Mapping[str, object], ...]
    duration_ms: float | None

    def __init__(self, message: str, *, next_step: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step
        self.facts: Mapping[str, object] = facts
        self.item_id = None
        self.chain = ()
        self.trace = ()
        self.duration_ms = None
        for name, value in facts.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        return f"{self.message} {self.next_step}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.next_step, dict(self.__dict__)))

    def during(
        self,
        item_id: str,
        *,
        chain: Sequence[str] = (),
        trace: Sequence[Mapping[str, object]] = (),
        duration_ms: float | None = None,
    ) -> Self:
        """Add what is known of the run that this error ended, and return the error itself."""
        self.item_id = self.item_id or item_id
        self.chain = self.chain or tuple(chain)
        self.trace = self.trace or tuple(trace)
        self.duration_ms = self.duration_ms if self.duration_ms is not None else duration_ms
        return self

    def to_dict(self) -> dict[str, object]:
        """The error object that models and MCP clients see.

        Source: seed 001, "Error Responses".
        """
        result: dict[str, object] = {
            "status": "error",
            "error": str(self),
            "error_type": self.error_type,
        }
        if self.item_id is not None:
            result["item_id"] = self.item_id
        if self.chain:
            result["chain"] = list(self.chain)
        if self.duration_ms is not None:
            result["metadata"] = {"duration_ms": round(self.duration_ms)}
        if self.trace:
            result["trace"] = [dict(event) for event in self.trace]
        return result


def _rebuild(
    cls: type[RyeError], message: str, next_step: str, state: dict[str, object]
) -> RyeError:
    error = cls(message, next_step=next_step)
    error.__dict__.update(state)
    return error


class ItemError(RyeError):
    """An item can't be found, named or read."""

    error_type = "item"


class InvalidItemId(ItemError, ValueError):
    """An item id, or a canonical ref, is not of the form that ids have."""

    error_type = "invalid_item_id"


class ItemNotFound(ItemError, LookupError):
    """No space holds the item."""

    error_type = "not_found"
    searched: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()


class AmbiguousItem(ItemError):
    """Two files of one stem, or two kinds of one id, answer to one name."""

    error_type = "ambiguous"
    candidates: tuple[str, ...] = ()


class MetadataError(ItemError):
    """An item's source can't be read as what its extension says."""

    error_type = "metadata"
    path: Path
    line: int | None = None


class IntegrityError(RyeError):
    """What stands on disk is not what a trusted key signed. Nothing ran."""

    error_type = "integrity"
    path: Path


class UnsignedItem(IntegrityError):
    """The item has no signature."""


class MalformedSignature(IntegrityError):
    """A signature line stands there, but not of the form that signatures have."""


class ContentChanged(IntegrityError):
    """The content is not the content that was signed."""


class BadSignature(IntegrityError):
    """The signature doesn't hold for this content at this place and time."""


class UntrustedKey(IntegrityError):
    """The key that signed is not trusted here."""

    fingerprint: str


class RevokedKey(UntrustedKey):
    """The key that signed was revoked, or has expired."""


class SigningError(RyeError):
    """A key or a signature can't be made or read."""

    error_type = "signing"


class ChainError(RyeError):
    """The chain from tool to primitive does not hold."""

    error_type = "chain"


class ChainTooDeep(ChainError):
    """A chain of executors, or of directives that extend each other, is too long."""


class CircularDependency(ChainError):
    """An element's executor, or what a directive extends, leads back to it."""


class ExecutorNotFound(ChainError, ValueError):
    """An element names an executor that no space holds."""

    executor_id: str


class MissingExecutorId(ChainError):
    """An element doesn't say which executor runs it."""


class IncompatibleChain(ChainError):
    """Neighbours in the chain don't fit: spaces, inputs and outputs, or versions."""

    problems: tuple[str, ...] = ()


class InterpreterNotFound(ChainError):
    """No interpreter that may be used was found."""

    tried: tuple[str, ...] = ()


class AnchorError(ChainError):
    """A tool's dependency tree can't be anchored or sealed."""


class ConfigError(RyeError):
    """A configuration file can't be used."""

    error_type = "config"


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

    Source: seed 001, "Error Responses".
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

    Source: seed 001, "Execution Matrix".
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


class RyeClosed(RyeError):
    """The Rye was closed before the call, or while it ran."""

    error_type = "closed"


class ProcessError(RyeError):
    """An operation of the native layer failed."""

    error_type = "process"


class SpawnFailed(ProcessError):
    """A process can't be started."""

    command: str
    errno: int | None = None


class StoreError(ProcessError):
    """The content store can't be read or written."""
