"""Changes of files and folders, without polling."""

from collections.abc import Iterable
from os import PathLike
from types import TracebackType
from typing import Self

import anyio

from ryecore import _native

__all__ = ["Watcher", "wait_for_change", "watch"]


class Watcher:
    """A watch on paths, made by `watch`, for one task at a time."""

    __slots__ = ("_native",)

    def __init__(self, paths: Iterable[str | PathLike[str]]) -> None:
        self._native = _native.Watcher(paths)

    async def changed(self, timeout_s: float | None = None) -> tuple[str, ...]:
        """Wait for a change.

        Args:
            timeout_s: How long to wait; None for no bound.

        Returns:
            The paths, as they were passed, that have changed since the last call; all of them where
            the kernel lost events; none where the time is over.

        Raises:
            OSError: A path can't be watched any more.
        """
        with anyio.move_on_after(timeout_s):
            while True:
                if changes := self._native.changes():
                    return tuple(changes)
                await anyio.wait_readable(self._native.fd)
        return tuple(self._native.changes())

    def close(self) -> None:
        """Stop watching."""
        self._native.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[str, ...]:
        return await self.changed()


def watch(*paths: str | PathLike[str]) -> Watcher:
    """Watch paths from now on.

    As in `async with watch(path) as watcher: async for changes in watcher: ...`.
    A file is watched through its folder: it may be written to, replaced, removed, or not exist yet.
    A folder is changed when it or one of its entries is; folders below it are not watched.

    Args:
        *paths: Files and folders.

    Raises:
        OSError: They can't be watched (inotify's limits are the usual reason).
    """
    return Watcher(paths)


def wait_for_change(
    paths: Iterable[str | PathLike[str]], timeout_s: float | None = None
) -> tuple[str, ...]:
    """Wait in the calling thread for a change of any path, while other threads run.

    Args:
        paths: Files and folders.
        timeout_s: How long to wait; None for no bound.

    Returns:
        The paths, as they were passed, that have changed; none where the time is over.

    Raises:
        OSError: They can't be watched.
    """
    watcher = _native.Watcher(paths)
    try:
        return tuple(watcher.wait(timeout_s))
    finally:
        watcher.close()
