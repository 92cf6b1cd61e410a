"""A disk whose syncs a test makes: in Python's threads, and beside event loops."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from io import FileIO

import anyio.to_thread
import pytest

from ryecore.lillux import log_sync

_THREADS = ThreadPoolExecutor(8, "made-syncs")


def replace_syncs(monkeypatch: pytest.MonkeyPatch, sync: Callable[[int], None]) -> None:
    """Have a function make each `fdatasync`, also those of the native threads."""

    class Replaced:
        def __init__(self, log: str, mark: str) -> None:
            self._made: Future[bool] = _THREADS.submit(_make, sync, log, mark)

        async def is_on_disk(self) -> bool:
            return await anyio.to_thread.run_sync(self._made.result, abandon_on_cancel=True)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(log_sync, "LogSync", Replaced)


def _make(sync: Callable[[int], None], log: str, mark: str) -> bool:
    try:
        opened = FileIO(log)
    except FileNotFoundError:
        return True
    with closing(opened):
        try:
            sync(opened.fileno())
        except OSError:
            os.truncate(mark, 1)
            return False
    return os.stat(mark).st_size == 0
