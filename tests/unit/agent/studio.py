"""A studio: a scripted model, tools that tests can break, and an executor over both."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import AgentEvent, AgentToken
from ryecore.agent.model import Agent, AgentNode
from ryecore.agent.node import NodeExecContext
from ryecore.agent.outcome import NodeOutcome
from ryecore.agent.runner import AgentNodeExecutor, create_agent_node_executor
from ryecore.agent.session import AgentSession
from ryecore.llm.provider import LlmProvider
from ryecore.testing import ScriptedProvider
from ryecore.tools import ToolDef, ToolRegistry, tool

KEY = "sk-studio-0123456789abcdef"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@tool
async def explode(text: str = "boom") -> str:
    """Raise."""
    raise RuntimeError(f"{text} with {KEY}")


class Studio:
    """Everything that a run needs.

    Attributes:
        model: The scripted model.
        events: What the runs told.
    """

    def __init__(
        self,
        *script: Any,
        tools: Iterable[ToolDef | Callable[..., Any]] = (),
        providers: Mapping[str, LlmProvider] | None = None,
        **deps: Any,
    ) -> None:
        self.model = ScriptedProvider(script)
        self.providers: dict[str, LlmProvider] = {"scripted": self.model, **(providers or {})}
        self.events: list[AgentEvent] = []
        self.slept_s: list[float] = []
        self.registry = ToolRegistry([add, shout, explode, *tools])
        self.deps = AgentRunnerDeps(
            **{
                "resolve_provider": self.providers.get,
                "key_for": lambda _: KEY,
                "registry": self.registry,
                "sleep": self._sleep,
            }
            | deps
        )

    async def _sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)

    def agent(self, **changed: Any) -> Agent:
        """An agent that may call every tool."""
        return Agent(
            **{
                "name": "helper",
                "provider": "scripted",
                "model": "m-1",
                "tools": tuple(one.name for one in self.registry),
            }
            | changed
        )

    def executor(self, **handlers: Any) -> AgentNodeExecutor:
        """The executor, with handlers for other types of vertices."""
        return create_agent_node_executor(self.deps, handlers=handlers)

    def context(
        self,
        prompt: str = "Go.",
        *,
        agent: Agent | None = None,
        node: Mapping[str, Any] | None = None,
        **ctx: Any,
    ) -> NodeExecContext:
        """The context of one vertex."""
        vertex = AgentNode(
            **{"id": "n1", "agent_ref": "helper", "prompt_template": prompt} | dict(node or {})
        )
        return NodeExecContext(
            **{
                "vertex": vertex,
                "resolved_agent": agent or self.agent(),
                "emit": self.events.append,
            }
            | ctx
        )

    async def run(self, prompt: str = "Go.", **context: Any) -> NodeOutcome:
        """Run one vertex."""
        return await self.executor()(self.context(prompt, **context))

    def session(self, **agent: Any) -> AgentSession:
        """A session with an agent."""
        return AgentSession(self.agent(**agent), self.deps, on_event=self.events.append)

    @property
    def told(self) -> list[str]:
        """The types of the events, tokens aside."""
        return [one.type for one in self.events if not isinstance(one, AgentToken)]

    @property
    def text(self) -> str:
        """What the tokens said."""
        return "".join(one.token for one in self.events if isinstance(one, AgentToken))
