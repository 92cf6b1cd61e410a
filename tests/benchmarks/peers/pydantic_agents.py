"""pydantic-ai."""

from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from tests.benchmarks.peers.script import ANSWER, PIECE, PROMPT, Run, add

LIMITS = UsageLimits(request_limit=None)


def make_agent(turns: int, tool: Any = add) -> Agent:
    """Make an agent whose model calls a tool so many times."""

    async def answer(messages: Any, info: Any) -> ModelResponse:
        turn = sum(message.kind == "response" for message in messages)
        if turn < turns:
            return ModelResponse([ToolCallPart("add", {"a": 1, "b": 1}, f"c{turn}")])
        return ModelResponse([TextPart(ANSWER)])

    return Agent(FunctionModel(answer), tools=[tool])


def runner(turns: int) -> Run:
    agent = make_agent(turns)

    async def run() -> str:
        return (await agent.run(PROMPT, usage_limits=LIMITS)).output

    return run


def streamer(deltas: int) -> Run:
    async def answer(messages: Any, info: Any) -> AsyncIterator[str]:
        for _ in range(deltas):
            yield PIECE

    agent = Agent(FunctionModel(stream_function=answer))

    async def run() -> int:
        async with agent.run_stream(PROMPT) as result:
            pieces = result.stream_text(delta=True, debounce_by=None)
            return sum([piece.count(PIECE) async for piece in pieces])

    return run
