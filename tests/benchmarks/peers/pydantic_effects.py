"""pydantic-ai on DBOS with PostgreSQL, and a tool that is a step, as its guide asks of effects."""

from contextlib import AbstractAsyncContextManager

from dbos import DBOS

from tests.benchmarks.peers.pydantic_dbos import kept_in
from tests.benchmarks.peers.script import Run, add, server_address


def kept_runner(turns: int) -> AbstractAsyncContextManager[Run]:
    return kept_in(server_address(), turns, DBOS.step()(add))
