"""langgraph: a graph of a model and its tools."""

from typing import Any

from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.benchmarks.peers.langchain_agents import LIMIT, Fake, FakeStream
from tests.benchmarks.peers.script import PIECE, PROMPT, Run, add


def _graph(model: Fake) -> Any:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile()


def runner(turns: int) -> Run:
    graph = _graph(Fake(turns=turns))

    async def run() -> Any:
        done = await graph.ainvoke({"messages": [("user", PROMPT)]}, LIMIT)
        return done["messages"][-1].content

    return run


def streamer(deltas: int) -> Run:
    graph = _graph(FakeStream(turns=0, deltas=deltas))

    async def run() -> int:
        said = {"messages": [("user", PROMPT)]}
        events = graph.astream(said, LIMIT, stream_mode="messages")
        return sum([chunk.content == PIECE async for chunk, _ in events])

    return run
