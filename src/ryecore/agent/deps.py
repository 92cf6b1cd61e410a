"""The dependencies that a host injects into agents: providers, keys, tools, and limits.

Source: docs/design/agent-node.md#what-the-host-injects; decision 61.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import anyio
from attrs import Factory, field
from attrs.validators import in_, optional

from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.llm.checks import above, at_least, function, of, tuple_of_names
from ryecore.llm.fallback_rules import Backoff, Refuse
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import LlmProvider
from ryecore.llm.request import LlmRequest
from ryecore.policy.limits import DEFAULT_TOOL_TURNS
from ryecore.tools.context import ApproveToolCall, FsScope
from ryecore.tools.definition import ToolDef
from ryecore.tools.registry import ToolRegistry
from ryecore.tools.store import MemoryResultStore, ResultStore

if TYPE_CHECKING:
    from ryecore.agent.telemetry import AgentObserver
    from ryecore.llm.cost import PriceLookup

__all__ = [
    "AgentRunnerDeps",
    "AgentTurnLimits",
    "Egress",
    "MediaSurface",
    "PreEgress",
    "ResolverCapabilities",
]


@frozen
class AgentTurnLimits:
    """The limits of an agent's turns.

    Attributes:
        max_tool_turns: The number of turns that may call tools. One more is `turn_limit`.
        max_calls_a_turn: The number of calls of one turn that are served. The model is told about
            the rest.
        correction_budget: The number of turns in which the model may correct a mistake: an unknown
            tool, arguments or an output that don't fit their schema.
        max_output_tokens: The bound of one answer; None for the provider's own.
        max_answer_chars: The characters that one answer may stream before it counts as broken. A
            tool call counts as 100 more, and an empty chunk as one.
        stall_s: The seconds for which a provider may send nothing.
        media_timeout_s: The time limit of one call for media, in seconds.
        cooldown_s: The seconds for which a provider that failed is passed over.
        backoff: The wait before the next try.

    Source: docs/design/agent-node.md; decisions 50 and 51.
    """

    max_tool_turns: int = field(default=DEFAULT_TOOL_TURNS, validator=at_least(0))
    max_calls_a_turn: int = field(default=128, validator=at_least(1))
    correction_budget: int = field(default=3, validator=at_least(0))
    max_output_tokens: int | None = field(default=None, validator=optional(above(0)))
    max_answer_chars: int = field(default=16_000_000, validator=above(0))
    stall_s: float = field(default=60.0, validator=above(0))
    media_timeout_s: float = field(default=300.0, validator=above(0))
    cooldown_s: float = field(default=30.0, validator=at_least(0))
    backoff: Backoff = field(factory=Backoff, validator=of("a Backoff", Backoff))


MediaSurface: TypeAlias = Literal["chat", "generative"]
"""The kind of endpoint: conversations (`chat`), or media made at an endpoint of their own."""


@frozen
class ResolverCapabilities:
    """The files of the host that prompts and tools may read.

    Attributes:
        sandbox: The folder of the scope `sandboxed`, made for agents.
        project: The folder of the scope `project`.
        read_file: Whether `{{ path | read_file }}` is allowed in a prompt.
        max_file_bytes: The bound of a file that is put into a prompt.
    """

    sandbox: Path | None = None
    project: Path | None = None
    read_file: bool = True
    max_file_bytes: int = 1_000_000

    def root(self, scope: FsScope) -> Path | None:
        """Return the folder of a scope, the base of relative paths; None if the host has none."""
        return self.sandbox if scope == "sandboxed" else self.project


@frozen
class Egress:
    """A request that is about to be sent to a provider.

    Attributes:
        node_id: The id of the node or session.
        provider: The provider's id.
        model: The model.
        request: The request; None for one that makes media.
        estimated_input_tokens: A rough count of the input tokens; zero for media, whose costs
            aren't in tokens.
        max_output_tokens: The bound of the answer; None for the provider's own.
        attempt_number: The number of the try in this call, from 1, across all providers.
    """

    node_id: str
    provider: str
    model: str
    request: LlmRequest | None = field(repr=False)
    estimated_input_tokens: int
    max_output_tokens: int | None
    attempt_number: int = 1


PreEgress: TypeAlias = Callable[[Egress], Awaitable[Refuse | None] | Refuse | None]
"""Called before each try; `Refuse` prevents it and ends the run."""


def _optional_tools(declared: Iterable[ToolDef] | None) -> tuple[ToolDef, ...] | None:
    if declared is None:
        return None
    tools = tuple(declared)
    if not all(isinstance(one, ToolDef) for one in tools):
        raise ConfigError(
            "AgentRunnerDeps.tools may only hold ToolDefs.",
            next_step="Pass tools of the registry, or leave it out for all of them.",
        )
    return tools


def _names(declared: Iterable[str]) -> frozenset[str]:
    return frozenset(tuple_of_names(declared))


@frozen(kw_only=True)
class AgentRunnerDeps:
    """The dependencies of a host. Keys pass through and aren't stored.

    Attributes:
        resolve_provider: Returns the provider with an id; None if the host has none.
        key_for: Returns the credential for a provider's id, at once or awaited; empty if none is
            needed. Its exceptions become `provider_auth`; their texts are dropped.
        registry: The tools.
        tools: The tools that models are told about; by default all of the registry.
        sleep: Waits a number of seconds.
        now: Returns the monotonic time in seconds.
        resolve_media_surface: Returns the kind of endpoint of a model; by default, and for None,
            `chat`.
        on_auth_error: Renews a provider's credential after it was refused, once a call.
        resolver_capabilities: The files that prompts and tools may read.
        fs_scope: The scope of the tools' paths.
        limits: The limits of a run.
        pre_egress: Called before each try; it can refuse.
        price_of: Returns the price of a model; without one the extra `prices` is asked, and without
            that the run is unpriced.
        unpriced_models: The models without a price that a thread with a spend limit may still ask,
            as `provider/model`, or `provider/*` for all of a provider.
        approve: Called before a tool runs that needs approval.
        host_capabilities: The capabilities that the host offers to tools.
        media: The store of media.
        results: The store of large results of tools; by default in memory.
        observer: Records traces and metrics.
    """

    resolve_provider: Callable[[str], LlmProvider | None] = field(validator=function, repr=False)
    key_for: Callable[[str], str | Awaitable[str]] = field(validator=function, repr=False)
    registry: ToolRegistry = field(
        factory=ToolRegistry, validator=of("a ToolRegistry", ToolRegistry)
    )
    tools: tuple[ToolDef, ...] | None = field(default=None, converter=_optional_tools)
    sleep: Callable[[float], Awaitable[object]] = field(
        default=anyio.sleep, validator=function, repr=False
    )
    now: Callable[[], float] = field(default=time.monotonic, validator=function, repr=False)
    resolve_media_surface: Callable[[str], MediaSurface | None] | None = field(
        default=None, validator=function, repr=False
    )
    on_auth_error: Callable[[str], bool | Awaitable[bool]] | None = field(
        default=None, validator=function, repr=False
    )
    resolver_capabilities: ResolverCapabilities | None = None
    fs_scope: FsScope = field(default="sandboxed", validator=in_(get_args(FsScope)))
    limits: AgentTurnLimits = field(
        factory=AgentTurnLimits, validator=of("AgentTurnLimits", AgentTurnLimits)
    )
    pre_egress: PreEgress | None = field(default=None, validator=function, repr=False)
    price_of: "PriceLookup | None" = field(default=None, validator=function, repr=False)
    unpriced_models: frozenset[str] = field(default=frozenset(), converter=_names)
    approve: ApproveToolCall | None = field(default=None, validator=function, repr=False)
    host_capabilities: frozenset[str] = field(default=frozenset(), converter=_names)
    media: MediaStore | None = None
    results: ResultStore = Factory(MemoryResultStore)
    observer: "AgentObserver | None" = None
