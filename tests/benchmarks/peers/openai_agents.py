"""openai-agents."""

from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from tests.benchmarks.peers.script import ANSWER, PIECE, PROMPT, Run, add

set_tracing_disabled(True)
CONFIG = RunConfig(tracing_disabled=True)


def _said(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(
        id="m", content=[part], role="assistant", status="completed", type="message"
    )


class Fake(Model):
    def __init__(self, turns: int, deltas: int = 0) -> None:
        self.turns, self.deltas = turns, deltas

    async def get_response(self, **asked: Any) -> Any:
        said = asked["input"]
        calls = [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []
        turn = sum(one.get("type") == "function_call" for one in calls)
        if turn < self.turns:
            item: Any = ResponseFunctionToolCall(
                arguments='{"a": 1, "b": 1}', call_id=f"c{turn}", name="add", type="function_call"
            )
        else:
            item = _said(ANSWER)
        return ModelResponse(
            [item], Usage(requests=1, input_tokens=1, output_tokens=1, total_tokens=2), None
        )

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for number in range(self.deltas):
            yield ResponseTextDeltaEvent(
                content_index=0,
                delta=PIECE,
                item_id="m",
                logprobs=[],
                output_index=0,
                sequence_number=number,
                type="response.output_text.delta",
            )
        done = Response(
            id="r",
            created_at=0,
            model="fake",
            object="response",
            output=[_said(PIECE * self.deltas)],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(
            response=done, sequence_number=self.deltas, type="response.completed"
        )


def runner(turns: int) -> Run:
    agent = Agent(name="adder", model=Fake(turns), tools=[function_tool(add)])

    async def run() -> Any:
        done = await Runner.run(agent, PROMPT, max_turns=turns + 1, run_config=CONFIG)
        return done.final_output

    return run


def streamer(deltas: int) -> Run:
    agent = Agent(name="talker", model=Fake(0, deltas))

    async def run() -> int:
        events = Runner.run_streamed(agent, PROMPT, run_config=CONFIG).stream_events()
        return sum(
            [
                event.type == "raw_response_event" and event.data.type.endswith("text.delta")
                async for event in events
            ]
        )

    return run
