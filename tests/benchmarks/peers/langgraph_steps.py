"""langgraph: a graph of two trivial nodes, in memory, or kept in SQLite after every step."""

import tempfile
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from tests.benchmarks.peers.script import Run


class _State(TypedDict):
    n: int
    text: str


def _graph(steps: int) -> Any:
    async def one(state: _State) -> dict[str, Any]:
        return {"n": state["n"] + 1}

    graph = StateGraph(_State)
    graph.add_node("a", one)
    graph.add_node("b", one)
    graph.add_edge(START, "a")
    graph.add_conditional_edges("a", lambda state: END if state["n"] >= steps else "b")
    graph.add_conditional_edges("b", lambda state: END if state["n"] >= steps else "a")
    return graph


def walker(steps: int) -> Run:
    """Walks in memory: nothing of it can be resumed."""
    graph = _graph(steps).compile()
    limit = {"recursion_limit": steps + 10}

    async def run() -> int:
        return int((await graph.ainvoke({"n": 0, "text": "word"}, limit))["n"])

    return run


def kept_walker(steps: int) -> Run:
    """Walks with a checkpoint in SQLite after each step, written before the next begins."""
    folder = Path(tempfile.mkdtemp())

    async def run() -> int:
        path = folder / f"{len(list(folder.iterdir()))}.db"
        async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
            graph = _graph(steps).compile(checkpointer=saver)
            config = {"recursion_limit": steps + 10, "configurable": {"thread_id": "one"}}
            done = await graph.ainvoke({"n": 0, "text": "word"}, config, durability="sync")
            return int(done["n"])

    return run
