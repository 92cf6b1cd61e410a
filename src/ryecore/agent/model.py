"""Agents, and the nodes that run them, as authors write them."""

from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_args,
)

from attrs import field
from attrs.validators import min_len, optional

from ryecore.agent.outcome import OutputT_co
from ryecore.agent.output import OutputCheck, typed_answer
from ryecore.agent.prompts import PromptTemplate, mentions_secrets
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.llm.checks import at_least, function, of, tuple_of_names
from ryecore.llm.fallback_rules import Backoff
from ryecore.llm.request import CacheLifetime, ReasoningEffort

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from ryecore.agent.deps import AgentRunnerDeps
    from ryecore.agent.events import Emit
    from ryecore.policy.limits import Limits
    from ryecore.tools.definition import ToolDef, ToolOptions

__all__ = ["Agent", "AgentNode", "FallbackChoice", "RetrySpec"]

T = TypeVar("T")

_TEXT: Final = of("a text", str)
_COUNT: Final = of("a whole number", int)
_SCHEMA: Final = of("a JSON Schema, as a mapping", Mapping, NoneType)


@frozen
class RetrySpec:
    """The retries of a model.

    Attributes:
        max: The number of tries in all, at least 1.
        backoff: The wait between tries; None for `AgentTurnLimits.backoff`.

    Source: docs/design/agent-node.md; decision 50.
    """

    max: int = field(default=1, validator=[_COUNT, at_least(1)])
    backoff: Backoff | None = field(default=None, validator=of("a Backoff", Backoff, NoneType))


@frozen
class FallbackChoice:
    """A provider and a model to ask if the earlier ones can't answer.

    Attributes:
        provider: The provider's id.
        model: The model.
        max_attempts: The number of tries, at least 1.
    """

    provider: str = field(validator=[_TEXT, min_len(1)])
    model: str = field(validator=[_TEXT, min_len(1)])
    max_attempts: int = field(default=1, validator=[_COUNT, at_least(1)])


def _made(kind: type[T], declared: object) -> T:
    """Return a value that an author may also write as a mapping, as in a file."""
    if not isinstance(declared, Mapping):
        return cast("T", declared)  # the field's validator checks it
    try:
        return kind(**declared)
    except TypeError as problem:
        what = str(problem).partition("() ")[2] or problem
        raise ConfigError(
            f"A {kind.__name__} can't be made of this: {what}.",
            next_step=f"Write it with the fields of {kind.__name__}.",
        ) from None


def _choices(
    declared: Iterable[FallbackChoice | Mapping[str, Any]],
) -> tuple[FallbackChoice, ...]:
    if isinstance(declared, str | Mapping) or not isinstance(declared, Iterable):
        raise ConfigError(
            "fallback_chain must be a list.", next_step="Write it as a list of choices."
        )
    choices = tuple(_made(FallbackChoice, one) for one in declared)
    if not all(isinstance(one, FallbackChoice) for one in choices):
        raise ConfigError(
            "Each choice of fallback_chain must be a mapping or a FallbackChoice.",
            next_step='Write each as {"provider": ..., "model": ...}.',
        )
    return choices


def _retry(declared: RetrySpec | Mapping[str, Any] | None) -> RetrySpec | None:
    return None if declared is None else _made(RetrySpec, declared)


def _tools(
    declared: Iterable["str | ToolDef | Callable[..., Any]"],
) -> "tuple[str | ToolDef, ...]":
    """Convert names and tools with attrs: each once, in their order; functions become tools."""
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        return tuple_of_names(declared)  # which refuses it
    listed = tuple(declared)
    if all(isinstance(one, str) for one in listed):
        return tuple_of_names(cast("tuple[str, ...]", listed))
    from ryecore.tools.registry import tools_by_name  # noqa: PLC0415 - most agents have names only

    try:
        return tools_by_name(listed)
    except (TypeError, ValueError) as problem:
        raise ConfigError(
            f"Agent.tools: {problem}",
            next_step="Pass names of the host's tools, tools, and functions.",
        ) from None


def _optional_names(declared: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if declared is None else tuple_of_names(declared)


def _reasoning(owner: object, attribute: Any, value: object) -> None:
    if value is not None and value not in get_args(ReasoningEffort):
        raise ConfigError(
            f"reasoning must be one of: {', '.join(get_args(ReasoningEffort))}.",
            next_step="Write one of these, or leave it out.",
        )


def _cache(owner: object, attribute: Any, value: object) -> None:
    if value is not None and value not in get_args(CacheLifetime):
        raise ConfigError(
            f"cache must be one of: {', '.join(get_args(CacheLifetime))}, or None.",
            next_step='Write "5m" or "1h", or None for no caching.',
        )


def _no_secrets(owner: object, attribute: Any, value: str) -> None:
    if mentions_secrets(value):
        raise ConfigError(
            f"{attribute.name} refers to secrets, which never reach a model.",
            next_step="Take the {{ secrets… }} out; give the secret to the tool that needs it.",
        )


def _output_type(owner: "Agent[Any]", attribute: Any, value: object) -> None:
    if value is None:
        return
    if owner.output_schema is not None:
        raise ConfigError(
            "An agent has either an output_type or an output_schema.",
            next_step="Leave one of them out: the schema of a type is made from it.",
        )
    try:
        typed_answer(value)
    except TypeError as problem:
        raise ConfigError(
            str(problem),
            next_step="Pass a dataclass, an attrs class, a TypedDict, an enum, a pydantic model, "
            "or a union or a list of these.",
        ) from None


_RETRY: Final = of("a RetrySpec", RetrySpec, NoneType)


@frozen(kw_only=True)
class Agent(Generic[OutputT_co]):
    """An agent: a model, its instructions, and its tools.

    Attributes:
        name: The name by which nodes refer to it.
        provider: The id of the first provider.
        model: The model.
        system_prompt: The system prompt, verbatim: it isn't a template.
        tools: The tools that it may call: names of tools in `AgentRunnerDeps.registry`, and tools
            or functions themselves, which need no registration.
        fallback_chain: The models to ask if the first one can't answer, in order.
        retry: The retries of the first model.
        output_type: The type of its output, such as a dataclass: it makes the schema of its answer.
            `str`, or None without an `output_schema`, for text.
        output_schema: The JSON Schema of its answer, whose output is the JSON value.
        output_check: Called with each output, and perhaps awaited. It may raise `Retry`, whose text
            is told to the model, and return another output in its place.
        temperature: From 0 to 2; None for the provider's own.
        max_output_tokens: The bound of one answer.
        reasoning: The effort of reasoning.
        description: Its purpose.
        cache: The least time for which a provider should keep the conversation for the next
            request, where that can be chosen: `5m` or `1h`; None to ask for no caching.

    Raises:
        ConfigError: The system prompt refers to secrets, a field is of the wrong form, or models
            can't be shown the output's type.
    """

    name: str = field(validator=[_TEXT, min_len(1)])
    provider: str = field(validator=[_TEXT, min_len(1)])
    model: str = field(validator=[_TEXT, min_len(1)])
    system_prompt: str = field(default="", validator=[_TEXT, _no_secrets])
    tools: "tuple[str | ToolDef, ...]" = field(default=(), converter=_tools)
    fallback_chain: tuple[FallbackChoice, ...] = field(default=(), converter=_choices)
    retry: RetrySpec | None = field(default=None, converter=_retry, validator=_RETRY)
    output_type: "type[OutputT_co] | TypeForm[OutputT_co] | None" = field(
        default=None, validator=_output_type
    )
    output_schema: Mapping[str, Any] | None = field(default=None, validator=_SCHEMA)
    output_check: OutputCheck[OutputT_co] | None = field(default=None, validator=function)
    temperature: float | None = field(default=None, validator=of("a number", float, int, NoneType))
    max_output_tokens: int | None = field(default=None, validator=optional([_COUNT, at_least(1)]))
    reasoning: ReasoningEffort | None = field(default=None, validator=_reasoning)
    description: str = ""
    cache: CacheLifetime | None = field(default="5m", validator=_cache)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(one if isinstance(one, str) else one.name for one in self.tools)

    def as_tool(
        self,
        deps: "AgentRunnerDeps | None" = None,
        *,
        name: str | None = None,
        description: str | None = None,
        limits: "Limits | None" = None,
        on_event: "Emit | None" = None,
        **options: "Unpack[ToolOptions]",
    ) -> "ToolDef":
        """Return a tool that asks this agent, for another one.

        Each call is a conversation of its own, which sees of the caller's only the task that its
        model writes. What it costs counts in the caller, within the caller's limits; the caller's
        cancellation, deadline, labels and `tool_deps` hold for it too. A call of its tools that
        needs an approval is answered by the host's `approve`, in a thread as the thread's own; it
        is denied where a session would wait for an answer. With `needs_approval`, the whole call
        is approved beforehand.

        Args:
            deps: Its dependencies; by default those of the agent that calls it.
            name: The tool's name; by default the agent's.
            description: The tool's description; by default the agent's.
            limits: The limits of each call, within the caller's.
            on_event: Called with each event of its replies, whose `node_id` is its name.
            **options: See `ToolOptions`. By default, there is no `timeout_s`.

        Raises:
            ValueError: The name isn't one that every vendor takes.
        """
        from ryecore.agent.called import agent_tool  # noqa: PLC0415 - it loads the agents' turns

        return agent_tool(
            self,
            deps,
            name=name,
            description=description,
            limits=limits,
            on_event=on_event,
            **options,
        )


def _template(declared: str | PromptTemplate) -> PromptTemplate:
    if isinstance(declared, PromptTemplate):
        return declared
    if not isinstance(declared, str):
        raise ConfigError("prompt_template must be text.", next_step="Write the prompt as a text.")
    return PromptTemplate.parse(declared)


@frozen(kw_only=True)
class AgentNode:
    """A node that runs an agent.

    Attributes:
        id: Its id in events.
        agent_ref: The agent's name.
        prompt_template: The prompt, with `{{ path | filter }}` for values, filled in once.
        system_prompt_append: A text after the agent's system prompt, verbatim.
        model: The model in place of the agent's own.
        tools: The tools that it may call, among the agent's; None for all of them.
        retry: The retries of the first model, in place of the agent's own.
        output_schema: The schema of its answer, in place of the agent's own output.
        output_media: The types of media that it should make, at most one; by default `image/*` if
            the model makes media.

    Raises:
        ConfigError: A field is of the wrong form, or refers to secrets.
    """

    id: str = field(validator=[_TEXT, min_len(1)])
    agent_ref: str = field(validator=[_TEXT, min_len(1)])
    prompt_template: PromptTemplate = field(converter=_template)
    system_prompt_append: str = field(default="", validator=[_TEXT, _no_secrets])
    model: str | None = field(default=None, validator=of("a text", str, NoneType))
    tools: tuple[str, ...] | None = field(default=None, converter=_optional_names)
    retry: RetrySpec | None = field(default=None, converter=_retry, validator=_RETRY)
    output_schema: Mapping[str, Any] | None = field(default=None, validator=_SCHEMA)
    output_media: tuple[str, ...] = field(default=(), converter=tuple_of_names)
    type: Literal["agent"] = "agent"

    @classmethod
    def asking(cls, prompt: str, *, agent: Agent, node_id: str | None = None) -> Self:
        """Return a node that asks an agent one thing; the prompt is a template."""
        return cls(id=node_id or agent.name, agent_ref=agent.name, prompt_template=prompt)
