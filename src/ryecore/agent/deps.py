"""The dependencies that a host injects into agents: providers, keys, tools, and limits.

Source: docs/design/agent-node.md#what-the-host-injects; decision 61.
"""

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import anyio
from attrs import Factory, field
from attrs.validators import in_, optional

from ryecore.agent.compaction import Compact
from ryecore.agent.environment import EnvironmentProviders, missing_models_error
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.llm.checks import above, at_least, function, of, tuple_of_names
from ryecore.llm.fallback_rules import Backoff, Refuse
from ryecore.llm.media import MediaStore
from ryecore.llm.provider import LlmProvider
from ryecore.llm.rate_limits import RateLimits, read_rate_limits
from ryecore.llm.request import LlmRequest
from ryecore.policy.context import CallContext
from ryecore.policy.limits import DEFAULT_TOOL_TURNS
from ryecore.tools.context import ApproveToolCall, FsScope
from ryecore.tools.definition import ToolDef
from ryecore.tools.registry import ToolRegistry
from ryecore.tools.store import MemoryResultStore, ResultStore

if TYPE_CHECKING:
    from ryecore.agent.telemetry import Observer
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


ResolveProvider: TypeAlias = (
    Callable[[str], LlmProvider | None] | Callable[[str, CallContext], LlmProvider | None]
)
"""Returns the provider with an id, perhaps for a caller."""

KeyFor: TypeAlias = (
    Callable[[str], str | Awaitable[str]] | Callable[[str, CallContext], str | Awaitable[str]]
)
"""Returns the credential for a provider's id, perhaps for a caller."""


@frozen(kw_only=True)
class AgentRunnerDeps:
    """The dependencies of a host. Keys pass through and aren't stored.

    Attributes:
        resolve_provider: Returns the provider with an id; None if the host has none. If it needs a
            second argument, it gets the `CallContext` of the caller.
        key_for: Returns the credential for a provider's id, at once or awaited; empty if none is
            needed. Its exceptions become `provider_auth`; their texts are dropped. If it needs a
            second argument, it gets the `CallContext` of the caller.
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
        media: The store of media. Without one, a session keeps them in memory, and a thread with
            its large results.
        results: The store of large results of tools; by default in memory.
        observer: Records traces and metrics.
        tool_deps: What tools get as `ToolContext.deps`, also in threads and graphs; a session may
            have its own.
        rate_limits: The `RateLimit` of providers, by the provider's id or by `provider/model`,
            which goes first. All that has these dependencies, or a copy with other fields, shares
            them; in another process they count anew.
        compact: When long conversations of sessions, threads and nodes are shortened, and who
            summarizes them; a session may have its own.
    """

    resolve_provider: ResolveProvider = field(validator=function, repr=False)
    key_for: KeyFor = field(validator=function, repr=False)
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
    observer: "Observer | None" = None
    tool_deps: object = field(default=None, repr=False)
    rate_limits: RateLimits | None = field(default=None, converter=read_rate_limits)
    compact: Compact | None = field(default=None, validator=of("a Compact", Compact, NoneType))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "AgentRunnerDeps":
        """Return dependencies with the providers whose API keys stand in the environment.

        These are `ANTHROPIC_API_KEY`, `OPENAI_API_KEY`, and `GEMINI_API_KEY` or `GOOGLE_API_KEY`,
        where the provider's extra is installed. A key is read at each call of a model, and isn't
        stored. `attrs.evolve` adds other fields.

        Args:
            environ: The variables; by default those of the process.

        Raises:
            ConfigError: No key is set.
            MissingExtra: A key is set, but its provider's extra isn't installed.
        """
        providers = EnvironmentProviders(environ)
        if not providers:
            raise missing_models_error(environ, otherwise=WRITE_DEPS)
        return AgentRunnerDeps(resolve_provider=providers.resolve, key_for=providers.key_for)

    def provider_for(self, provider_id: str, call: CallContext) -> LlmProvider | None:
        """Return the provider with an id for a caller; None if the host has none."""
        resolve: Any = self.resolve_provider
        provider: LlmProvider | None = (
            resolve(provider_id, call) if self._takes_call[0] else resolve(provider_id)
        )
        return provider

    def keys_of(self, call: CallContext) -> Callable[[str], str | Awaitable[str]]:
        """Return the function that returns credentials for a caller."""
        key_for: Any = self.key_for
        if not self._takes_call[1]:
            own: Callable[[str], str | Awaitable[str]] = key_for
            return own

        def key_of_caller(provider_id: str) -> str | Awaitable[str]:
            key: str | Awaitable[str] = key_for(provider_id, call)
            return key

        return key_of_caller

    @cached_property
    def _takes_call(self) -> tuple[bool, bool]:
        return _needs_call(self.resolve_provider), _needs_call(self.key_for)


WRITE_DEPS: Final = "pass AgentRunnerDeps(resolve_provider=..., key_for=...)"
"""What to do without keys in the environment."""


def _needs_call(function: Callable[..., Any]) -> bool:
    """Return whether a function needs a second argument; one with a default isn't needed."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # as of some built-in functions
        return False
    needed = [
        one
        for one in parameters
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty
    ]
    return len(needed) > 1
