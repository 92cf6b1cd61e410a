"""Agents, and the nodes that run them, as authors write them."""

from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any, Final, Literal, Self, TypeVar, cast, get_args

from attrs import field
from attrs.validators import min_len, optional

from ryecore.agent.prompts import PromptTemplate, mentions_secrets
from ryecore.errors import ConfigError
from ryecore.frozen import frozen
from ryecore.llm.checks import at_least, of, tuple_of_names
from ryecore.llm.fallback_rules import Backoff
from ryecore.llm.request import ReasoningEffort

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


def _optional_names(declared: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if declared is None else tuple_of_names(declared)


def _reasoning(owner: object, attribute: Any, value: object) -> None:
    if value is not None and value not in get_args(ReasoningEffort):
        raise ConfigError(
            f"reasoning must be one of: {', '.join(get_args(ReasoningEffort))}.",
            next_step="Write one of these, or leave it out.",
        )


def _no_secrets(owner: object, attribute: Any, value: str) -> None:
    if mentions_secrets(value):
        raise ConfigError(
            f"{attribute.name} refers to secrets, which never reach a model.",
            next_step="Take the {{ secrets… }} out; give the secret to the tool that needs it.",
        )


_RETRY: Final = of("a RetrySpec", RetrySpec, NoneType)


@frozen(kw_only=True)
class Agent:
    """An agent: a model, its instructions, and its tools.

    Attributes:
        name: The name by which nodes refer to it.
        provider: The id of the first provider.
        model: The model.
        system_prompt: The system prompt, verbatim: it isn't a template.
        tools: The names of the tools that it may call.
        fallback_chain: The models to ask if the first one can't answer, in order.
        retry: The retries of the first model.
        output_schema: The JSON Schema of its answer; None for text.
        temperature: From 0 to 2; None for the provider's own.
        max_output_tokens: The bound of one answer.
        reasoning: The effort of reasoning.
        description: Its purpose.

    Raises:
        ConfigError: The system prompt refers to secrets, or a field is of the wrong form.
    """

    name: str = field(validator=[_TEXT, min_len(1)])
    provider: str = field(validator=[_TEXT, min_len(1)])
    model: str = field(validator=[_TEXT, min_len(1)])
    system_prompt: str = field(default="", validator=[_TEXT, _no_secrets])
    tools: tuple[str, ...] = field(default=(), converter=tuple_of_names)
    fallback_chain: tuple[FallbackChoice, ...] = field(default=(), converter=_choices)
    retry: RetrySpec | None = field(default=None, converter=_retry, validator=_RETRY)
    output_schema: Mapping[str, Any] | None = field(default=None, validator=_SCHEMA)
    temperature: float | None = field(default=None, validator=of("a number", float, int, NoneType))
    max_output_tokens: int | None = field(default=None, validator=optional([_COUNT, at_least(1)]))
    reasoning: ReasoningEffort | None = field(default=None, validator=_reasoning)
    description: str = ""


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
        output_schema: The schema of its answer, in place of the agent's own.
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
