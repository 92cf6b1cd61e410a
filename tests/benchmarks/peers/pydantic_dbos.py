"""pydantic-ai on DBOS with SQLite."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig
from pydantic_ai.durable_exec.dbos import DBOSAgent

from tests.benchmarks.peers.pydantic_agents import LIMITS, make_agent
from tests.benchmarks.peers.script import PROMPT, Run, add


@asynccontextmanager
async def kept_in(database: str, turns: int, tool: Any = add) -> AsyncIterator[Run]:
    DBOS(config=DBOSConfig(name="peer", system_database_url=database, run_admin_server=False))
    agent = DBOSAgent(make_agent(turns, tool), name="adder")
    DBOS.launch()

    async def run() -> str:
        return (await agent.run(PROMPT, usage_limits=LIMITS)).output

    try:
        yield run
    finally:
        DBOS.destroy()


@asynccontextmanager
async def kept_runner(turns: int) -> AsyncIterator[Run]:
    with tempfile.TemporaryDirectory() as folder:
        async with kept_in(f"sqlite:///{Path(folder) / 'kept.sqlite'}", turns) as run:
            yield run
