"""Syncs of logs beside an event loop, by native threads.

A worker thread of Python would take the interpreter's lock around each system call, and wait for it
while the loop computes.
"""

from typing import TypeAlias

from anyio.lowlevel import RunVar

from ryecore import _native
from ryecore.lillux.mailbox import Arrivals

__all__ = ["LogSync"]

_Syncs: TypeAlias = tuple[_native.SyncMailbox, Arrivals[bool]]

_syncs: RunVar[_Syncs] = RunVar("ryecore.lillux.log_sync")
"""The syncs that the tasks of one event loop wait for."""


class LogSync:
    """A sync of a log, begun on an event loop: `fdatasync` of all that was written before.

    Args:
        log: The log's path. One that is missing needs no sync.
        mark: The path of a file that is empty unless a sync of the log has failed, in any process.
            A failure sets it; who writes the log again empties it.

    Raises:
        OSError: No thread can be started for it.
    """

    __slots__ = ("_arrivals", "_token")

    def __init__(self, log: str, mark: str) -> None:
        syncs = _syncs.get(None)
        if syncs is None:
            mailbox = _native.SyncMailbox()
            syncs = mailbox, Arrivals(mailbox)
            _syncs.set(syncs)
        self._token = syncs[0].start(log, mark)
        self._arrivals = syncs[1]
        self._arrivals.expect(self._token)

    async def is_on_disk(self) -> bool:
        """Wait for its end, and return whether all of the log is on the disk.

        It isn't where a sync has failed, now or before. Asked once, by one task; a task that was
        cancelled meanwhile hasn't asked.

        Raises:
            OSError: The log can't be opened.
        """
        return await self._arrivals.take(self._token)
