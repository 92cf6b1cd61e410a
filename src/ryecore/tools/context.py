"""The context of a tool call, and the limits of all calls."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias

from attrs import field, validators

from ryecore.frozen import frozen
from ryecore.llm.media import MediaStore
from ryecore.policy import CallContext
from ryecore.tools.store import ResultStore

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DepsT_co = TypeVar("DepsT_co", covariant=True, default=object)
else:
    from typing import TypeVar

    DepsT_co = TypeVar("DepsT_co", covariant=True)

__all__ = [
    "ApproveToolCall",
    "Denied",
    "FsScope",
    "PresentResult",
    "ToolApprovalRequest",
    "ToolContext",
    "ToolLimits",
]

_SIZE = [validators.instance_of(int), validators.gt(0)]


@frozen
class ToolLimits:
    """The limits of all calls of a registry's tools.

    Attributes:
        timeout_s: The time limit in seconds of tools without one of their own.
        max_argument_bytes: The bound of the arguments; larger ones aren't even parsed.
        preview_chars: The characters of a result that the model gets. Of a longer one it gets the
            head, the tail and a handle.
        max_result_bytes: The bound of a whole result.
        max_result_values: The bound of the number of values in a result.
        event_chars: The bound of arguments and results in events, in characters.

    Raises:
        ValueError: A limit isn't positive.
        TypeError: A limit isn't a number.
    """

    timeout_s: float = field(default=300.0, validator=validators.gt(0))
    max_argument_bytes: int = field(default=1024 * 1024, validator=_SIZE)
    preview_chars: int = field(default=16_000, validator=_SIZE)
    max_result_bytes: int = field(default=64 * 1024 * 1024, validator=_SIZE)
    max_result_values: int = field(default=2_000_000, validator=_SIZE)
    event_chars: int = field(default=2_000, validator=_SIZE)


FsScope: TypeAlias = Literal["sandboxed", "project", "unrestricted"]
"""The scope of path arguments: a folder made for the agent, the project, or anywhere."""


@frozen
class ToolApprovalRequest:
    """A tool call that needs a person's approval.

    Attributes:
        tool_name: The tool.
        arguments: The exact arguments of the call, without those that the host sets.
        reason: Why approval is needed.
        tool_call_id: The model's id of the call.
        call_id: The action that it is part of, as its `CallContext` names it.
        tool_digest: The digest of the tool: its definition and its code, or the files of its chain.
    """

    tool_name: str
    arguments: Mapping[str, Any]
    reason: str
    tool_call_id: str
    call_id: str
    tool_digest: str = ""


@frozen
class Denied:
    """The answer that a call may not be made, with a reason that the model is told."""

    reason: str = ""


class ApproveToolCall(Protocol):
    """Answers an approval request. It may wait for a person."""

    async def __call__(self, request: ToolApprovalRequest, /) -> "bool | Denied":
        """Return whether exactly this call may be made; `Denied` tells the model why not."""
        ...


PresentResult: TypeAlias = Callable[[str, str, str], Awaitable[tuple[str, str | None]]]
"""Decides how much of a result a model sees, in place of `ToolLimits.preview_chars`.

It takes the tool's name, the call's id and the text. It returns what the model sees, and the handle
of the whole result where that is longer.
"""


def _names(listed: Iterable[str]) -> frozenset[str]:
    # Else a text would be read as its letters, and contain any name that is a part of it.
    if isinstance(listed, str):
        raise TypeError(f"Write a set of names, not the text {listed!r}.")
    return frozenset(listed)


def _optional_names(listed: Iterable[str] | None) -> frozenset[str] | None:
    return None if listed is None else _names(listed)


@frozen(slots=False)
class ToolContext(Generic[DepsT_co]):
    """The context of a tool call: its caller, and the capabilities of the host.

    Attributes:
        call: The caller's capabilities, deadline and cancellation.
        grant: The names of the tools that may be called; None for all.
        fs_scope: The scope of path arguments.
        fs_root: The base folder of paths, which they can't leave unless unrestricted.
        capabilities: The host's capabilities, such as `net` or `fs`.
        approve: Called before a tool runs that needs approval; without it, such tools are denied.
        results: The store of results that are too long for the model.
        media: The store of media from tools.
        present: Decides how much of a result the model sees; by default the registry's limits.
        recorded: Awaited before a tool runs, so that the record of its call is stored first.
        recorded_soon: Awaited in its place before a read-only tool that needs no approval runs.
        deps: What the host gives to its tools, such as a database; None if it gives nothing.
        agent_deps: The `AgentRunnerDeps` of the agent whose call it is, for agents that its tool
            calls; None outside of an agent.
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
    recorded_soon: Callable[[], Awaitable[None]] | None = None
    deps: DepsT_co = field(default=None, repr=False)
    agent_deps: object = field(default=None, repr=False)

    def as_call(self, call_id: str) -> "ToolContext[DepsT_co]":
        """Return the context of one call, by the call's id."""
        return ToolContext(  # inlined: `evolve` takes three times as long
            self.call.as_call(call_id),
            self.grant,
            self.fs_scope,
            self.fs_root,
            self.capabilities,
            self.approve,
            self.results,
            self.media,
            self.present,
            self.recorded,
            self.recorded_soon,
            self.deps,
            self.agent_deps,
        )
