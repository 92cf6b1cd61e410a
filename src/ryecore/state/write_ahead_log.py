"""SQLite's write-ahead log: synced after commits, and checkpointed by its own thread.

A checkpoint syncs the log and the database, and the first commit into a restarted log syncs its
header. SQLite does both within the next commit; here a thread does them.

Source: ADR 028; https://www.sqlite.org/wal.html.
"""

import fcntl
import os
import sqlite3
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Final

from ryecore.state.waiting import try_flock

__all__ = ["LogKeeper", "commit_nothing", "sync_log"]

_COMMITS: Final = 256
"""The number of this process's commits after which a checkpoint is made."""

_LOG_BYTES: Final = 4 * 2**20
"""The size above which the log is restarted, for which writers wait a moment."""

_GATE_WAIT_S: Final = 1.0
_GATE_PAUSE_S: Final = 0.002


def sync_log(database: Path) -> None:
    """Sync a database's log, so that commits survive a power cut."""
    try:
        log = os.open(f"{database}-wal", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # the last connection has synced it, moved it into the database, and removed it
    try:
        os.fdatasync(log)
    finally:
        os.close(log)


def commit_nothing(transaction: sqlite3.Connection) -> None:
    """Write one page unchanged, so that a transaction's commit writes to the log."""
    (version,) = transaction.execute("PRAGMA user_version").fetchone()
    transaction.execute(f"PRAGMA user_version = {version}")


class LogKeeper:
    """Makes the checkpoints of one open database, in its own thread; its connections make none.

    Attributes:
        holds_gate: Whether writers have to wait now, so that one on an event loop should await.
    """

    def __init__(self, database: Path) -> None:
        self.holds_gate = False
        self._database = database
        self._commits = 0
        self._working = Lock()

    def after_commit(self) -> None:
        """Count a commit, and start a checkpoint if it is due. It never waits."""
        self._commits += 1
        if self._commits >= _COMMITS and self._working.acquire(blocking=False):
            self._commits = 0
            try:
                Thread(target=self._work, name="ryecore-checkpoint", daemon=True).start()
            except RuntimeError:  # no thread can be started: a later commit tries again
                self._working.release()

    def pause(self) -> None:
        """Wait for the current checkpoint, and let no other begin."""
        self._working.acquire()

    def resume(self) -> None:
        """Allow checkpoints again."""
        self._working.release()

    def _work(self) -> None:
        try:
            with suppress(OSError, sqlite3.Error):  # the next one tries again
                self._checkpoint()
        finally:
            self.holds_gate = False
            self._working.release()

    def _checkpoint(self) -> None:
        with closing(sqlite3.connect(self._database, timeout=0, isolation_level=None)) as own:
            own.execute("PRAGMA trusted_schema = OFF")
            own.execute("PRAGMA wal_autocheckpoint = 0")
            own.execute("PRAGMA synchronous = NORMAL")
            (page_bytes,) = own.execute("PRAGMA page_size").fetchone()
            _, pages, _ = own.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages * page_bytes >= _LOG_BYTES:
                self._begin_again(own)

    def _begin_again(self, own: sqlite3.Connection) -> None:
        """Restart the log, and make the first commit into it."""
        with ExitStack() as undo:
            gate = os.open(f"{self._database}.gate", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            undo.callback(os.close, gate)
            until = time.monotonic() + _GATE_WAIT_S
            while not try_flock(gate):
                if time.monotonic() >= until:
                    return
                time.sleep(_GATE_PAUSE_S)
            undo.callback(fcntl.flock, gate, fcntl.LOCK_UN)
            self.holds_gate = True
            own.execute("PRAGMA wal_checkpoint(PASSIVE)")  # for the few commits since
            own.execute("BEGIN IMMEDIATE")
            commit_nothing(own)
            own.execute("COMMIT")
