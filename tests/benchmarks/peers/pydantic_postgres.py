"""pydantic-ai on DBOS with PostgreSQL."""

from contextlib import AbstractAsyncContextManager

from tests.benchmarks.peers.pydantic_dbos import kept_in
from tests.benchmarks.peers.script import Run, server_address


def kept_runner(turns: int) -> AbstractAsyncContextManager[Run]:
    return kept_in(server_address(), turns)
