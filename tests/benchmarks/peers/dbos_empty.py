"""DBOS alone with PostgreSQL: a workflow without a step, the floor of all that is built on it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig

from tests.benchmarks.peers.script import ANSWER, Run, server_address


@asynccontextmanager
async def kept_runner(turns: int) -> AsyncIterator[Run]:
    """Run a workflow that does nothing; it has no turns."""
    address = server_address()
    DBOS(config=DBOSConfig(name="peer", system_database_url=address, run_admin_server=False))

    @DBOS.workflow()
    async def answer() -> str:
        return ANSWER

    DBOS.launch()
    try:
        yield answer
    finally:
        DBOS.destroy()
