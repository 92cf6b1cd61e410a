"""What an author writes: agents, and the vertices that run them."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from attrs import field, frozen
from attrs.validators import ge, min_len, optional

from ryecore.agent.prompts import PromptTemplate, mentions_secrets
from ryecore.errors import ConfigError
from ryecore.llm.plan import Backoff
from ryecore.llm.request import ReasoningEffort

__all__ = ["Agent", "AgentNode", "FallbackChoice", "RetrySpec"]


@frozen
class RetrySpec:
    """How often a model is tried.

    Attributes:
        max: How often in all, at least 1.
        backoff: How long to wait between the tries; `AgentTurnLimits.backoff` where None.

    Source: seed 004; decision 50.
    """

    max: int = field(default=1, validator=ge(1))
    backoff: Backoff | None = None


@frozen
class FallbackChoice:
    """Whom to ask when the ones before can't answer.

    Attributes:
        provider: The provider's id.
        model: The model.
        max_attempts: How often it is tried, at least 1.
    """

    provider: str = field(validator=min_len(1))
    model: str = field(validator=min_len(1))
    max_attempts: int = field(default=1, validator=ge(1))


def _choices(
    declared: Iterable[FallbackChoice | Mapping[str, Any]],
) -> tuple[FallbackChoice, ...]:
    return tuple(
        one if isinstance(one, FallbackChoice) else FallbackChoice(**one) for one in declared
    )


def _names(declared: Iterable[str]) -> tuple[str, ...]:
    if isinstance(declared, str):
        raise ConfigError(
            f"tools is the text {declared!r}.", next_step="Write it as a list of names."
        )
    return tuple(declared)


def _optional_names(declared: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if declared is None else _names(declared)


def _no_secrets(owner: object, attribute: Any, value: str) -> None:
    if mentions_secrets(value):
        raise ConfigError(
            f"{attribute.name} refers to secrets, which never reach a model.",
            next_step="Take the {{ secrets… }} out; give the secret to the tool that needs it.",
        )


@frozen(kw_only=True)
class Agent:
    """An agent: a model, what it is told, and what it may call.

    Attributes:
        name: What nodes call it.
        provider: The id of the provider that is asked first.
        model: The model that it is asked for.
        system_prompt: What stands in the system position, verbatim: nothing is put into it.
        tools: The names of the tools that it may call.
        fallback_chain: Whom to ask when the first one can't answer, in order.
        retry: How often the first one is tried.
        output_schema: The JSON Schema of its answer; text where None.
        temperature: 0 to 2; the provider's own where None.
        max_output_tokens: How long one answer may be.
        reasoning: How hard to think.
        description: What it is for.

    Raises:
        ConfigError: The system prompt refers to secrets, or a field is of the wrong form.
    """

    name: str = field(validator=min_len(1))
    provider: str = field(validator=min_len(1))
    model: str = field(validator=min_len(1))
    system_prompt: str = field(default="", validator=_no_secrets)
    tools: tuple[str, ...] = field(default=(), converter=_names)
    fallback_chain: tuple[FallbackChoice, ...] = field(default=(), converter=_choices)
    retry: RetrySpec | None = None
    output_schema: Mapping[str, Any] | None = None
    temperature: float | None = None
    max_output_tokens: int | None = field(default=None, validator=optional(ge(1)))
    reasoning: ReasoningEffort | None = None
    description: str = ""


def _template(declared: str | PromptTemplate) -> PromptTemplate:
    return declared if isinstance(declared, PromptTemplate) else PromptTemplate.parse(declared)


@frozen(kw_only=True)
class AgentNode:
    """A vertex that runs an agent.

    Attributes:
        id: What events call it.
        agent_ref: The agent's name.
        prompt_template: What the agent is asked; `{{ path | filter }}` is put in once.
        system_prompt_append: What follows the agent's system prompt, verbatim.
        model: The model in place of the agent's own.
        tools: The tools that it may call, none that the agent may not; all of those where None.
        retry: How often the first provider is tried, in place of the agent's own.
        output_schema: The schema of its answer, in place of the agent's own.
        output_media: The types of media that it should make, at most one; `image/*` where none is
            named and the model makes media.

    Raises:
        ConfigError: A field is of the wrong form, or refers to secrets.
    """

    id: str = field(validator=min_len(1))
    agent_ref: str = field(validator=min_len(1))
    prompt_template: PromptTemplate = field(converter=_template)
    system_prompt_append: str = field(default="", validator=_no_secrets)
    model: str | None = None
    tools: tuple[str, ...] | None = field(default=None, converter=_optional_names)
    retry: RetrySpec | None = None
    output_schema: Mapping[str, Any] | None = None
    output_media: tuple[str, ...] = field(default=(), converter=_names)
    type: Literal["agent"] = "agent"

    @classmethod
    def asking(cls, prompt: str, *, agent: Agent, node_id: str | None = None) -> Self:
        """A vertex that asks an agent one thing; the prompt is a template too."""
        return cls(id=node_id or agent.name, agent_ref=agent.name, prompt_template=prompt)
