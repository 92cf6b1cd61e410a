"""`node.db`: nonces, runs and their events.

Source: docs/design/remote.md#on-the-node.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ryecore.errors import StateError
from ryecore.state.database import Database, Migration
from ryecore.state.refusals import RESTORE_STEP

__all__ = ["open_node_database"]

_MIGRATIONS: Final[Sequence[Migration]] = (
    (
        """CREATE TABLE nonces (
            caller TEXT NOT NULL,
            nonce TEXT NOT NULL,
            expires_s INTEGER NOT NULL,
            PRIMARY KEY (caller, nonce)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX nonces_by_expiry ON nonces (expires_s)",
        """CREATE TABLE runs (
            caller TEXT NOT NULL,
            thread_id TEXT NOT NULL,
            item_id TEXT NOT NULL,
            snapshot TEXT NOT NULL,
            request_sha256 TEXT NOT NULL,
            request TEXT NOT NULL,
            status TEXT NOT NULL DEFAULT 'running',
            node_thread_id TEXT,
            space TEXT,
            stop TEXT CHECK (stop IN ('cancel', 'kill')),
            max_spend_microcents INTEGER,
            spend_microcents INTEGER NOT NULL DEFAULT 0,
            size_bytes INTEGER NOT NULL DEFAULT 0,
            created_at TEXT NOT NULL,
            ended_at TEXT,
            report TEXT,
            PRIMARY KEY (caller, thread_id)
        ) STRICT""",
        "CREATE INDEX runs_not_ended ON runs (caller) WHERE ended_at IS NULL",
        """CREATE TABLE spent (
            caller TEXT PRIMARY KEY NOT NULL,
            microcents INTEGER NOT NULL
        ) STRICT""",
        """CREATE TABLE events (
            caller TEXT NOT NULL,
            thread_id TEXT NOT NULL,
            id INTEGER NOT NULL,
            event TEXT NOT NULL,
            data TEXT NOT NULL,
            PRIMARY KEY (caller, thread_id, id)
        ) STRICT, WITHOUT ROWID""",
    ),
    (  # a month of runs is 100,000 rows of some KB: what counts them reads no row
        "CREATE INDEX runs_by_spend ON runs (caller, spend_microcents) WHERE spend_microcents > 0",
        "CREATE INDEX runs_by_end ON runs (ended_at, status, caller, size_bytes)",
    ),
    (  # each commit writes a page of an index: `runs_by_end` finds what has not ended, too
        "DROP INDEX runs_not_ended",
        "DROP INDEX nonces_by_expiry",  # those of two minutes are looked through now and then
    ),
    ("ALTER TABLE runs ADD COLUMN handed_id TEXT",),
)


def open_node_database(folder: Path) -> Database:
    """Open the database of a node's folder, and make it where it is missing.

    Raises:
        StateError: It can't be opened.
    """
    path = folder / "node.db"
    try:
        return Database(path, _MIGRATIONS, durability="machine", page_size_bytes=4096)
    except StateError as problem:
        if problem.next_step == RESTORE_STEP:  # which is about a project
            problem.next_step = (
                f"Put back a copy, or move it away with {path.name}-wal and {path.name}-shm: then "
                "what callers have spent counts from nothing, and no run is known."
            )
        raise
