"""openai-agents with its SQLiteSession."""

import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agents import Agent, Runner, SQLiteSession, function_tool

from tests.benchmarks.peers.openai_agents import CONFIG, Fake
from tests.benchmarks.peers.script import PROMPT, Run, add


@asynccontextmanager
async def kept_runner(turns: int) -> AsyncIterator[Run]:
    agent = Agent(name="adder", model=Fake(turns), tools=[function_tool(add)])
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "sessions.db"

        async def run() -> Any:
            session = SQLiteSession(uuid.uuid4().hex, database)
            done = await Runner.run(
                agent, PROMPT, max_turns=turns + 1, run_config=CONFIG, session=session
            )
            session.close()
            return done.final_output

        yield run
