"""Use the threads of a project from a command."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from ryecore.actions.threads import Threads
from ryecore.cli.signals import stopped_by_signals
from ryecore.rye import Rye

__all__ = ["with_threads"]

T = TypeVar("T")


def with_threads(project_path: str, use: Callable[[Threads], Awaitable[T]]) -> T:
    """Open a project, use its threads, and close it."""

    async def run() -> T:
        async with Rye.open(project_path) as rye:
            return await use(rye.threads)

    with stopped_by_signals():
        return anyio.run(run)
