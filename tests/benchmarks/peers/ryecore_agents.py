"""ryecore itself, by the same script: a vertex, and a session's stream."""

from collections.abc import AsyncIterator
from typing import Any

from ryecore import (
    Agent,
    AgentNode,
    AgentRunnerDeps,
    AgentSession,
    AgentToken,
    EventBus,
    NodeExecContext,
    ToolRegistry,
    create_agent_node_executor,
    tool,
)
from ryecore.llm import Capabilities, StreamEnd, TextDelta, ToolCallDelta, ToolCallStart, Usage
from tests.benchmarks.peers.script import ANSWER, PIECE, PROMPT, Run, add

_AGENT = Agent(name="adder", provider="fake", model="fake", tools=["add"])
_CAPABILITIES = Capabilities()


class Fake:
    provider_id = "fake"

    def __init__(self, turns: int, deltas: int = 0) -> None:
        self.turns, self.deltas = turns, deltas

    def capabilities(self, model: str) -> Capabilities:
        return _CAPABILITIES

    async def stream(self, request: Any, **options: Any) -> AsyncIterator[Any]:
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn < self.turns:
            yield ToolCallStart(0, f"c{turn}", "add")
            yield ToolCallDelta(0, '{"a": 1, "b": 1}')
            yield StreamEnd("tool_use", Usage(1, 1))
            return
        for piece in [PIECE] * self.deltas or [ANSWER]:
            yield TextDelta(piece)
        yield StreamEnd("stop", Usage(1, 1))

    async def generate(self, request: Any, **options: Any) -> Any:
        raise NotImplementedError


def _deps(provider: Fake) -> AgentRunnerDeps:
    return AgentRunnerDeps(
        resolve_provider=lambda _: provider,
        key_for=lambda _: "",
        registry=ToolRegistry([tool(inline=True)(add)]),
    )


def runner(turns: int) -> Run:
    execute = create_agent_node_executor(_deps(Fake(turns)))
    node = AgentNode.asking(PROMPT, agent=_AGENT)

    async def run() -> Any:
        bus: EventBus[Any] = EventBus("run")
        ctx = NodeExecContext(vertex=node, resolved_agent=_AGENT, emit=bus.emit)
        return (await execute(ctx)).output

    return run


def streamer(deltas: int) -> Run:
    deps = _deps(Fake(0, deltas))

    async def run() -> int:
        async with AgentSession(_AGENT, deps).stream(PROMPT) as events:
            return sum([isinstance(event, AgentToken) async for event in events])

    return run
