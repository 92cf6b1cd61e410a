"""google-adk."""

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from tests.benchmarks.peers.script import ANSWER, PIECE, PROMPT, Run, add


def _text(text: str) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text=text)])


class _Fake(BaseLlm):
    turns: int
    deltas: int = 0

    async def generate_content_async(
        self, llm_request: Any, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        turn = sum(content.role == "model" for content in llm_request.contents)
        if turn < self.turns:
            call = types.FunctionCall(id=f"c{turn}", name="add", args={"a": 1, "b": 1})
            content = types.Content(role="model", parts=[types.Part(function_call=call)])
            yield LlmResponse(content=content)
            return
        for _ in range(self.deltas):
            yield LlmResponse(content=_text(PIECE), partial=True)
        yield LlmResponse(content=_text(PIECE * self.deltas or ANSWER))


async def _ask(app: InMemoryRunner, config: RunConfig) -> AsyncIterator[Any]:
    sessions = app.session_service
    session = await sessions.create_session(app_name=app.app_name, user_id="u")
    said = types.Content(role="user", parts=[types.Part(text=PROMPT)])
    async for event in app.run_async(
        user_id="u", session_id=session.id, new_message=said, run_config=config
    ):
        yield event
    await sessions.delete_session(app_name=app.app_name, user_id="u", session_id=session.id)


def runner(turns: int) -> Run:
    app = InMemoryRunner(LlmAgent(name="adder", model=_Fake(model="f", turns=turns), tools=[add]))

    async def run() -> str:
        last = [event async for event in _ask(app, RunConfig())][-1]
        return last.content.parts[0].text

    return run


def streamer(deltas: int) -> Run:
    app = InMemoryRunner(LlmAgent(name="talker", model=_Fake(model="f", turns=0, deltas=deltas)))

    async def run() -> int:
        config = RunConfig(streaming_mode=StreamingMode.SSE)
        return sum([bool(event.partial) async for event in _ask(app, config)])

    return run
