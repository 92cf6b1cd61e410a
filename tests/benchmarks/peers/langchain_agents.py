"""langchain: create_agent."""

from collections.abc import AsyncIterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from tests.benchmarks.peers.script import ANSWER, PIECE, PROMPT, Run, add

LIMIT = {"recursion_limit": 1_000}


class Fake(BaseChatModel):
    """A model that calls a tool in each of its turns, or streams."""

    turns: int
    deltas: int = 0

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "Fake":
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        turn = sum(message.type == "ai" for message in messages)
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        call = {"name": "add", "args": {"a": 1, "b": 1}, "id": f"c{turn}"}
        answer = (
            AIMessage("", tool_calls=[call], usage_metadata=usage)
            if turn < self.turns
            else AIMessage(ANSWER, usage_metadata=usage)
        )
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


class FakeStream(Fake):
    """The same, streaming."""

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for _ in range(self.deltas):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=PIECE))
            if run_manager:
                await run_manager.on_llm_new_token(PIECE, chunk=chunk)
            yield chunk


def runner(turns: int) -> Run:
    agent = create_agent(Fake(turns=turns), [add])

    async def run() -> Any:
        done = await agent.ainvoke({"messages": [("user", PROMPT)]}, LIMIT)
        return done["messages"][-1].content

    return run


def streamer(deltas: int) -> Run:
    agent = create_agent(FakeStream(turns=0, deltas=deltas), [])

    async def run() -> int:
        said = {"messages": [("user", PROMPT)]}
        events = agent.astream(said, LIMIT, stream_mode="messages")
        return sum([chunk.content == PIECE async for chunk, _ in events])

    return run
