"""strands-agents with its FileSessionManager."""

import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from strands import Agent
from strands.session.file_session_manager import FileSessionManager

from tests.benchmarks.peers.script import PROMPT, Run
from tests.benchmarks.peers.strands_agents import Fake, add_tool


@asynccontextmanager
async def kept_runner(turns: int) -> AsyncIterator[Run]:
    model = Fake(turns)
    with tempfile.TemporaryDirectory() as folder:

        async def run() -> str:
            sessions = FileSessionManager(session_id=uuid.uuid4().hex, storage_dir=folder)
            agent = Agent(
                model=model, tools=[add_tool], callback_handler=None, session_manager=sessions
            )
            return str(await agent.invoke_async(PROMPT)).strip()

        yield run
