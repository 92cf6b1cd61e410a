"""ryecore's managed threads with their state on PostgreSQL, and a tool that may have effects."""

from contextlib import AbstractAsyncContextManager

from tests.benchmarks.peers.ryecore_postgres import kept_runner as _kept_runner
from tests.benchmarks.peers.script import Run


def kept_runner(turns: int) -> AbstractAsyncContextManager[Run]:
    return _kept_runner(turns, read_only=False)
