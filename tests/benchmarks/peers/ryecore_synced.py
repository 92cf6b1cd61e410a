"""ryecore's managed threads in machine durability: what is written survives a loss of power."""

from contextlib import AbstractAsyncContextManager

from tests.benchmarks.peers.ryecore_threads import kept_runner as _kept_runner
from tests.benchmarks.peers.script import Run


def kept_runner(turns: int) -> AbstractAsyncContextManager[Run]:
    return _kept_runner(turns, "machine")
