"""What a host injects into agents: its providers, its keys, its tools, and nothing else.

Source: docs/design/agent-node.md#what-the-host-injects; decision 61.
"""

import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import anyio
from attrs import Factory, field, frozen
from attrs.validators import in_, optional

from ryecore.errors import ConfigError
from ryecore.llm.checks import above, at_least, function, of, tuple_of_names
from ryecore.llm.media import MediaStore
from ryecore.llm.options import Refuse
from ryecore.llm.plan import Backoff
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
    """What an agent's turns are bounded by.

    Attributes:
        max_tool_turns: How many turns may call tools. One more is `turn_limit`.
        max_calls_a_turn: How many calls of one turn are served. The model is told of the rest.
        correction_budget: How many turns may be spent on telling the model what it did wrong:
            unknown tools, arguments that don't fit, an output that doesn't fit its schema.
        max_output_tokens: How long one answer may be; the provider's own bound where None.
        max_answer_chars: How much one answer may stream before it counts as broken. A tool call
            counts as 100 characters more, and a chunk without any as one.
        stall_s: How long a provider may send nothing, in seconds.
        media_timeout_s: How long one call for media may take, in seconds.
        cooldown_s: How long a provider that failed is left alone, in seconds.
        backoff: How long to wait before the next try.

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
"""How a model is asked: in turns, or at an endpoint of its own that makes media."""


@frozen
class ResolverCapabilities:
    """What prompts and tools may read of the host's files.

    Attributes:
        sandbox: The folder that the scope `sandboxed` is confined to, made for agents.
        project: The folder that the scope `project` is confined to.
        read_file: Whether `{{ path | read_file }}` is allowed in a prompt.
        max_file_bytes: How large a file may be that is put into a prompt.
    """

    sandbox: Path | None = None
    project: Path | None = None
    read_file: bool = True
    max_file_bytes: int = 1_000_000

    def root(self, scope: FsScope) -> Path | None:
        """The folder of a scope; what relative paths begin at. None where the host has none."""
        return self.sandbox if scope == "sandboxed" else self.project


@frozen
class Egress:
    """What is about to leave for a provider.

    Attributes:
        node_id: The vertex, or the session.
        provider: The provider's id.
        model: The model.
        request: What is asked; None where media are to be made.
        estimated_input_tokens: A rough count of what it will read; zero where media are made,
            because tokens aren't what that costs.
        max_output_tokens: How long the answer may be; None for the provider's own bound.
        attempt_number: Which try of this call of a model it is, from 1, whoever is asked.
    """

    node_id: str
    provider: str
    model: str
    request: LlmRequest | None = field(repr=False)
    estimated_input_tokens: int
    max_output_tokens: int | None
    attempt_number: int = 1


PreEgress: TypeAlias = Callable[[Egress], Awaitable[Refuse | None] | Refuse | None]
"""Asked before each try; `Refuse` keeps it from being made, and ends the run."""


def _optional_tools(declared: Iterable[ToolDef] | None) -> tuple[ToolDef, ...] | None:
    if declared is None:
        return None
    tools = tuple(declared)
    if not all(isinstance(one, ToolDef) for one in tools):
        raise ConfigError(
            "AgentRunnerDeps.tools holds what is no ToolDef.",
            next_step="Pass tools of the registry, or leave it out for all of them.",
        )
    return tools


def _names(declared: Iterable[str]) -> frozenset[str]:
    return frozenset(tuple_of_names(declared))


@frozen(kw_only=True)
class AgentRunnerDeps:
    """What a host injects. Keys pass through and are kept nowhere.

    Attributes:
        resolve_provider: The provider of an id; None where the host has none of it.
        key_for: The credential for a provider's id, at once or awaited; empty where none is
            needed. What it raises becomes `provider_auth`, and its text is dropped.
        registry: The tools.
        tools: The tools that models are told of, where that is not all of the registry's.
        sleep: Waits.
        now: The monotonic time in seconds.
        resolve_media_surface: How a model is asked; `chat` where it says None, or isn't given.
        on_auth_error: Refreshes a provider's credential after it was refused, once a call.
        resolver_capabilities: What prompts and tools may read of the host's files.
        fs_scope: Where the tools' paths may lead.
        limits: What bounds a run.
        pre_egress: Asked before each try; it can refuse.
        price_of: What a model costs; else the extra `prices` knows, or the run is unpriced.
        unpriced_models: The models without a price that a thread with a spend limit may ask all
            the same, as `provider/model`, or `provider/*` for all of a provider.
        approve: Asked before a tool runs that needs it.
        host_capabilities: What the host offers to tools that need it.
        media: Where media are kept.
        results: Where large results of tools are kept; in memory by default.
        observer: Told what happens, for traces and metrics.
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
