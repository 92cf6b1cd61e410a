"""strands-agents."""

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.models.model import Model

from tests.benchmarks.peers.script import ANSWER, PIECE, PROMPT, Run, add

add_tool = tool(add)


class Fake(Model):
    def __init__(self, turns: int, deltas: int = 0) -> None:
        self.turns, self.deltas = turns, deltas

    def update_config(self, **model_config: Any) -> None:
        pass

    def get_config(self) -> Any:
        return {"model_id": "fake"}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        turn = sum(message["role"] == "assistant" for message in messages)
        yield {"messageStart": {"role": "assistant"}}
        if turn < self.turns:
            start = {"toolUse": {"name": "add", "toolUseId": f"c{turn}"}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"a": 1, "b": 1}'}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            for piece in [PIECE] * self.deltas or [ANSWER]:
                yield {"contentBlockDelta": {"delta": {"text": piece}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if turn < self.turns else "end_turn"}}
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


def runner(turns: int) -> Run:
    model = Fake(turns)

    async def run() -> str:
        agent = Agent(model=model, tools=[add_tool], callback_handler=None)
        return str(await agent.invoke_async(PROMPT)).strip()

    return run


def streamer(deltas: int) -> Run:
    model = Fake(0, deltas)

    async def run() -> int:
        agent = Agent(model=model, callback_handler=None)
        return sum(["data" in event async for event in agent.stream_async(PROMPT)])

    return run
