"""langchain's create_agent with langgraph's AsyncSqliteSaver."""

import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.benchmarks.peers.langchain_agents import LIMIT, Fake
from tests.benchmarks.peers.script import PROMPT, Run, add


@asynccontextmanager
async def kept_runner(turns: int) -> AsyncIterator[Run]:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "kept.db")) as saver:
            agent = create_agent(Fake(turns=turns), [add], checkpointer=saver)

            async def run() -> Any:
                config = {**LIMIT, "configurable": {"thread_id": uuid.uuid4().hex}}
                done = await agent.ainvoke({"messages": [("user", PROMPT)]}, config)
                return done["messages"][-1].content

            yield run
