"""ryecore's managed threads with their state on PostgreSQL, and a tool that only reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.benchmarks.peers.ryecore_agents import Fake
from tests.benchmarks.peers.ryecore_threads import Threads
from tests.benchmarks.peers.script import Run, server_address


@asynccontextmanager
async def kept_runner(turns: int, *, read_only: bool = True) -> AsyncIterator[Run]:
    threads = Threads(Fake(turns), has_tools=True, state=server_address(), read_only=read_only)
    async with threads.stack:
        yield threads.run
