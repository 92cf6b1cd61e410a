"""The arguments with which a session is opened by a model's name, and the agent made of them."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from attrs import fields_dict

from ryecore.agent.compaction import Compact
from ryecore.agent.deps import WRITE_DEPS, AgentRunnerDeps
from ryecore.agent.environment import missing_models_error
from ryecore.agent.events import Emit
from ryecore.agent.model import Agent, FallbackChoice, RetrySpec
from ryecore.agent.outcome import OutputT
from ryecore.errors import InputError
from ryecore.llm.messages import SavedJson
from ryecore.llm.parts import Message
from ryecore.llm.request import CacheLifetime, ReasoningEffort
from ryecore.policy.context import CallContext
from ryecore.policy.limits import Limits

if TYPE_CHECKING:
    from ryecore.tools.definition import ToolDef

__all__ = [
    "AgentFields",
    "ContinuedFields",
    "OpenFields",
    "SessionFields",
    "checked_agent",
    "opened",
]


class AgentFields(TypedDict, total=False):
    """The fields of an `Agent` beside its model, its output's type, and its check."""

    name: str
    system_prompt: str
    tools: Iterable["str | ToolDef | Callable[..., Any]"]
    fallback_chain: Iterable[FallbackChoice | Mapping[str, Any]]
    retry: RetrySpec | Mapping[str, Any] | None
    output_schema: Mapping[str, Any] | None
    temperature: float | None
    max_output_tokens: int | None
    reasoning: ReasoningEffort | None
    cache: CacheLifetime | None
    description: str


class ContinuedFields(TypedDict, total=False):
    """The arguments of an `AgentSession` that a saved conversation doesn't replace."""

    session_id: str
    on_event: Emit | None
    call: CallContext | None
    limits: Limits | None
    labels: Mapping[str, str] | None
    tool_deps: object
    compact: Compact | None


class SessionFields(ContinuedFields, total=False):
    """The arguments of an `AgentSession` beside its agent and its dependencies."""

    messages: Iterable[Message]


class OpenFields(AgentFields, SessionFields, total=False):
    """The arguments of `AgentSession.open` for its agent and for itself."""

    saved: SavedJson | None


def opened(
    model: object,
    deps: AgentRunnerDeps | None,
    given: Mapping[str, Any],
    **output: Any,
) -> tuple[Agent[Any], AgentRunnerDeps, dict[str, Any]]:
    """Return the agent, the dependencies and the other arguments of a session to open."""
    provider_id, _, name = model.partition("/") if isinstance(model, str) else ("", "", "")
    if not provider_id.strip() or not name.strip():
        raise InputError(
            f"{model!r} doesn't name a model." if isinstance(model, str) else "No model is named.",
            next_step='Write provider/model, such as "anthropic/claude-sonnet-4-5".',
        )
    if deps is None:
        deps = AgentRunnerDeps.from_env()
        if deps.provider_for(provider_id, given.get("call") or CallContext()) is None:
            raise missing_models_error(provider_id=provider_id, otherwise=WRITE_DEPS)
    of_agent = {key: value for key, value in given.items() if key in fields_dict(Agent)}
    rest = {key: value for key, value in given.items() if key not in of_agent}
    fields = {"name": "agent", **of_agent, **output, "provider": provider_id, "model": name}
    return Agent(**fields), deps, rest


def checked_agent(agent: Agent[OutputT]) -> Agent[OutputT]:
    """Return an agent, or raise an InputError for another object."""
    if not isinstance(agent, Agent):
        raise InputError(
            f"AgentSession needs an Agent, not a {type(agent).__name__}.",
            next_step="Write AgentSession(Agent(name=..., provider=..., model=...), deps).",
        )
    return agent
