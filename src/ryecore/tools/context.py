"""The context of a tool call, and the limits of all calls."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from attrs import field, frozen, validators

from ryecore.llm.media import MediaStore
from ryecore.policy import CallContext
from ryecore.tools.store import ResultStore

__all__ = [
    "ApproveToolCall",
    "FsScope",
    "PresentResult",
    "ToolApprovalRequest",
    "ToolContext",
    "ToolLimits",
]

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


FsScope: TypeAlias = Literal["sandboxed", "project", "unrestricted"]
"""Where path arguments may lead: into a folder made for the agent, into the project, anywhere."""


@frozen
class ToolApprovalRequest:
    """A tool call that needs a person's word.

    Attributes:
        tool_name: The tool.
        arguments: Exactly what it would be called with, without what the host set itself.
        reason: Why it is asked.
        tool_call_id: What the model calls this call.
        call_id: The action that it is part of, as its `CallContext` names it.
    """

    tool_name: str
    arguments: Mapping[str, Any]
    reason: str
    tool_call_id: str
    call_id: str


class ApproveToolCall(Protocol):
    """Answers an approval request. It may take its time."""

    async def __call__(self, request: ToolApprovalRequest, /) -> bool:
        """Return whether this, and exactly this, may be done."""
        ...


PresentResult: TypeAlias = Callable[[str, str, str], Awaitable[tuple[str, str | None]]]
"""Decides how much of a result a model sees, in place of `ToolLimits.preview_chars`.

It takes the tool's name, the call's id and the text. It returns what the model sees, and the handle
of the whole result where that is longer.
"""


def _names(listed: Iterable[str]) -> frozenset[str]:
    # Else a text would stand for its letters, and a grant for each name that is a part of it.
    if isinstance(listed, str):
        raise TypeError(f"Write a set of names, not the text {listed!r}.")
    return frozenset(listed)


def _optional_names(listed: Iterable[str] | None) -> frozenset[str] | None:
    return None if listed is None else _names(listed)


@frozen
class ToolContext:
    """On whose behalf a tool is called, and what the host offers it.

    Attributes:
        call: Capabilities, deadline, cancellation.
        grant: The names of the tools that may be called; None for all.
        fs_scope: Where path arguments may lead.
        fs_root: The folder that they are relative to and, unless unrestricted, stay in.
        capabilities: What the host offers, such as `net` or `fs`.
        approve: Asked before a tool runs that needs approval; without it, such tools don't.
        results: Where results are kept that are too long for the model.
        media: Where media are kept that tools give.
        present: Decides how much of a result the model sees; by default the registry's limits do.
        recorded: Awaited before a tool runs, so that the record of its call is kept by then.
    """

    call: CallContext = field(factory=CallContext)
    grant: frozenset[str] | None = field(default=None, converter=_optional_names)
    fs_scope: FsScope = "sandboxed"
    fs_root: Path | None = None
    capabilities: frozenset[str] = field(default=frozenset(), converter=_names)
    approve: ApproveToolCall | None = None
    results: ResultStore | None = None
    media: MediaStore | None = None
    present: PresentResult | None = None
    recorded: Callable[[], Awaitable[None]] | None = None
