"""The schema of `threads.db`, version by version, and the SQL that several modules share.

Source: decisions 35 to 40.
"""

# ruff: noqa: S608 - what is spliced into statements is the project's own constants

from collections.abc import Sequence
from typing import Final

from ryecore.state.model import TERMINAL
from ryecore.state.sqlite_schema import Migration

__all__ = [
    "ENDED",
    "IS_RUN",
    "LIST_DIED",
    "MIGRATIONS",
    "NOW",
    "OPEN_ACCOUNT",
    "SET_COST",
    "SET_HEAD",
    "below",
]

NOW: Final = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
"""The current time in the format of the rows."""

SET_HEAD: Final = "transcript_length = ?, transcript_digest = ?"
"""The columns of the last checkpoint, as assignments for UPDATE."""

SET_COST: Final = (
    "turns = ?, input_tokens = ?, output_tokens = ?, spend_microcents = ?, cost_estimated = ?,"
    " cached_tokens = ?, unpriced = ?, cache_saved_microcents = ?,"
    f" updated_at = {NOW}"
)
"""Sets a thread's cost; the values are those of `Cost`, in order."""

IS_ACTIVE: Final = "completed_at IS NULL"
"""Whether a thread has not ended. Queries with it use an index of their own."""

IS_RUN: Final = (
    "substr(item_id, 1, 5) = 'tool:'"
    " AND substr(thread_id, 1, length(item_id) - 4) = substr(item_id, 6) || '/'"
)
"""Whether a row is the run of a graph: a tool's thread that is named after it. It is indexed."""

_TELLS_OF_DEATH: Final = "instr(body, '\"died\": true')"
"""Whether a result may be that of a thread whose process died. It is indexed."""

LIST_DIED: Final = (
    # CROSS: the few results are looked up first, not each thread that failed.
    "SELECT threads.*, body FROM results CROSS JOIN threads USING (thread_id)"
    f" WHERE {_TELLS_OF_DEATH} AND status = 'error' AND parent_id IS NULL"
    f" AND (substr(item_id, 1, 10) = 'directive:' OR {IS_RUN})"
    " AND NOT EXISTS (SELECT 1 FROM threads AS later"
    " WHERE later.continuation_of = threads.thread_id"
    " AND later.chain_root_id IS NOT NULL AND later.status <> 'error')"
    " ORDER BY threads.rowid"
)
"""Finds the threads and runs at the top whose result may say that their process died.

Those that another one continues are left out.
"""

ENDED: Final = ", ".join(f"'{status}'" for status in sorted(TERMINAL))
"""The final statuses, as a list in SQL."""


OPEN_ACCOUNT: Final = (
    "INSERT INTO accounts (thread_id, parent_id, reserves_spend, reserves_tokens, spend_ceiling,"
    " tokens_ceiling) SELECT thread_id, ?, ?, ?, ?, ? FROM threads"
    " WHERE thread_id = ? AND completed_at IS NULL ON CONFLICT DO NOTHING"
)
"""Opens an account, unless its thread has ended: it would never be closed."""


def below(table: str) -> str:
    """Return a CTE `below`: a thread's id (the statement's next parameter) and its subtree's."""
    return (
        "WITH RECURSIVE below (thread_id) AS (VALUES (?) UNION"  # UNION, so that even a cycle ends
        f" SELECT child.thread_id FROM {table} AS child JOIN below"
        " ON child.parent_id = below.thread_id)"
    )


IS_BELOW: Final = """WITH RECURSIVE above (thread_id, parent_id) AS (
        SELECT thread_id, parent_id FROM threads WHERE thread_id = ?
        UNION SELECT parent.thread_id, parent.parent_id
        FROM threads AS parent JOIN above ON parent.thread_id = above.parent_id
    ) SELECT 1 FROM above WHERE thread_id = ?"""
"""Whether a thread (the first parameter) is below another one, or is that one."""

BEFORE: Final = "WHERE rowid < (SELECT last.rowid FROM threads AS last WHERE last.thread_id = ?)"
"""Selects the threads that were registered before one."""

BELOW_AND_AFTER: Final = (
    f"{below('threads')[:-1]} UNION SELECT one.continuation_thread_id FROM threads AS one"
    " JOIN below ON one.thread_id = below.thread_id WHERE one.continuation_thread_id IS NOT NULL"
    " AND (one.status = 'continued' OR one.completed_at IS NULL))"
)
"""The same, with the continuations of each thread that was handed off.

Source: decision 45. Continuations are below the thread's parent, not below the thread.
"""


MIGRATIONS: Final[Sequence[Migration]] = (
    (
        """CREATE TABLE threads (
            thread_id TEXT PRIMARY KEY NOT NULL,
            item_id TEXT NOT NULL,
            parent_id TEXT,
            status TEXT NOT NULL DEFAULT 'created',
            created_at TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            completed_at TEXT,
            boot_id TEXT, pid_namespace INTEGER, pid INTEGER, start_ticks INTEGER,
            owns_process INTEGER NOT NULL DEFAULT 0,
            fence INTEGER NOT NULL DEFAULT 0,
            lease_until REAL NOT NULL DEFAULT 0,
            cancel_requested INTEGER NOT NULL DEFAULT 0,
            kill_requested INTEGER NOT NULL DEFAULT 0,
            model TEXT,
            turns INTEGER NOT NULL DEFAULT 0,
            input_tokens INTEGER NOT NULL DEFAULT 0,
            output_tokens INTEGER NOT NULL DEFAULT 0,
            spend_microcents INTEGER NOT NULL DEFAULT 0,
            spawn_count INTEGER NOT NULL DEFAULT 0,
            continuation_of TEXT,
            continuation_thread_id TEXT,
            chain_root_id TEXT
        ) STRICT""",
        "CREATE INDEX threads_by_parent ON threads (parent_id)",
        "CREATE INDEX threads_by_status ON threads (status)",
        "CREATE INDEX threads_by_age ON threads (created_at)",
        """CREATE TABLE results (
            thread_id TEXT PRIMARY KEY NOT NULL REFERENCES threads (thread_id) ON DELETE CASCADE,
            body TEXT NOT NULL
        ) STRICT""",
    ),
    (
        "ALTER TABLE threads ADD COLUMN root_id TEXT",
        "ALTER TABLE threads ADD COLUMN limits TEXT",
        "ALTER TABLE threads ADD COLUMN parent_token_hash TEXT",
        "ALTER TABLE threads ADD COLUMN transcript_length INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE threads ADD COLUMN transcript_digest TEXT",
        """UPDATE threads SET root_id = coalesce((
            WITH RECURSIVE above (thread_id, parent_id) AS (
                VALUES (threads.thread_id, threads.parent_id)
                UNION SELECT parent.thread_id, parent.parent_id
                FROM threads AS parent JOIN above ON parent.thread_id = above.parent_id
            ) SELECT thread_id FROM above WHERE parent_id IS NULL
        ), thread_id)""",
        # Money and tokens side by side: the rest is the ceiling minus the four columns after it.
        """CREATE TABLE accounts (
            thread_id TEXT PRIMARY KEY NOT NULL REFERENCES threads (thread_id) ON DELETE CASCADE,
            parent_id TEXT REFERENCES accounts (thread_id),
            state TEXT NOT NULL DEFAULT 'open',
            stopped INTEGER NOT NULL DEFAULT 0,
            reserves_spend INTEGER NOT NULL,
            reserves_tokens INTEGER NOT NULL,
            spend_ceiling INTEGER NOT NULL CHECK (spend_ceiling >= 0),
            spend_own INTEGER NOT NULL DEFAULT 0 CHECK (spend_own >= 0),
            spend_children INTEGER NOT NULL DEFAULT 0 CHECK (spend_children >= 0),
            spend_held INTEGER NOT NULL DEFAULT 0 CHECK (spend_held >= 0),
            spend_reserved INTEGER NOT NULL DEFAULT 0 CHECK (spend_reserved >= 0),
            spend_cascaded INTEGER NOT NULL DEFAULT 0 CHECK (spend_cascaded >= 0),
            tokens_ceiling INTEGER NOT NULL CHECK (tokens_ceiling >= 0),
            tokens_own INTEGER NOT NULL DEFAULT 0 CHECK (tokens_own >= 0),
            tokens_children INTEGER NOT NULL DEFAULT 0 CHECK (tokens_children >= 0),
            tokens_held INTEGER NOT NULL DEFAULT 0 CHECK (tokens_held >= 0),
            tokens_reserved INTEGER NOT NULL DEFAULT 0 CHECK (tokens_reserved >= 0),
            tokens_cascaded INTEGER NOT NULL DEFAULT 0 CHECK (tokens_cascaded >= 0)
        ) STRICT""",
        "CREATE INDEX accounts_by_parent ON accounts (parent_id)",
        """CREATE TABLE charges (
            thread_id TEXT NOT NULL REFERENCES accounts (thread_id) ON DELETE CASCADE,
            turn INTEGER NOT NULL,
            attempt INTEGER NOT NULL,
            held_spend INTEGER NOT NULL CHECK (held_spend >= 0),
            held_tokens INTEGER NOT NULL CHECK (held_tokens >= 0),
            spend INTEGER NOT NULL DEFAULT 0 CHECK (spend >= 0),
            tokens INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0),
            mark TEXT NOT NULL DEFAULT 'held'
                CHECK (mark IN ('held', 'counted', 'estimated', 'assumed', 'freed')),
            PRIMARY KEY (thread_id, turn, attempt)
        ) STRICT, WITHOUT ROWID""",
    ),
    ("ALTER TABLE threads ADD COLUMN handoff_requested INTEGER NOT NULL DEFAULT 0",),
    (
        "ALTER TABLE threads ADD COLUMN time_namespace INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE threads ADD COLUMN lease_machine_s REAL NOT NULL DEFAULT 0",
    ),
    (
        "CREATE INDEX threads_by_continuation ON threads (continuation_of)",
        f"CREATE INDEX threads_of_runs ON threads (substr(item_id, 1, 5)) WHERE {IS_RUN}",
    ),
    # Threads whose rows are removed, and whose files are about to be.
    ("CREATE TABLE pruned (thread_id TEXT PRIMARY KEY NOT NULL) STRICT",),
    (
        "ALTER TABLE threads ADD COLUMN start_scope TEXT",
        "ALTER TABLE threads ADD COLUMN start_key TEXT",
        "ALTER TABLE threads ADD COLUMN start_digest TEXT",
        "CREATE UNIQUE INDEX threads_by_start_key ON threads (start_scope, start_key)"
        " WHERE start_key IS NOT NULL",
    ),
    ("ALTER TABLE threads ADD COLUMN cost_estimated INTEGER NOT NULL DEFAULT 0",),
    (f"CREATE INDEX results_of_dead ON results (thread_id) WHERE {_TELLS_OF_DEATH}",),
    # Indexes with only the rows that queries look for: each page of an index that a thread's rows
    # are in is written with them.
    (
        "DROP INDEX threads_by_age",
        "DROP INDEX threads_by_status",
        "DROP INDEX threads_by_parent",
        "DROP INDEX threads_by_continuation",
        "DROP INDEX accounts_by_parent",
        f"CREATE INDEX threads_active ON threads (completed_at) WHERE {IS_ACTIVE}",
        "CREATE INDEX threads_by_parent ON threads (parent_id) WHERE parent_id IS NOT NULL",
        "CREATE INDEX threads_by_continuation ON threads (continuation_of)"
        " WHERE continuation_of IS NOT NULL",
        "CREATE INDEX accounts_by_parent ON accounts (parent_id) WHERE parent_id IS NOT NULL",
    ),
    # What was written to files of threads, and may not be on the disk there yet. No number is used
    # twice: rows are removed up to the last one that was written before a sync.
    (
        """CREATE TABLE write_ahead (
            seq INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL,
            thread_id TEXT NOT NULL,
            boot_id TEXT NOT NULL,
            name TEXT NOT NULL,
            offset INTEGER,
            mtime_ns INTEGER,
            data BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX write_ahead_of_threads ON write_ahead (thread_id)",
    ),
    # The node that runs a thread: the name of its remote, and the fingerprint of its key.
    (
        "ALTER TABLE threads ADD COLUMN remote TEXT",
        "ALTER TABLE threads ADD COLUMN node TEXT",
    ),
    # Labels, such as a tenant, as a JSON object of texts; NULL where there are none.
    ("ALTER TABLE threads ADD COLUMN labels TEXT",),
    (
        "ALTER TABLE threads ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE threads ADD COLUMN unpriced INTEGER NOT NULL DEFAULT 0",
    ),
    # It is below 0 where writing to a provider's cache cost more than reading from it saved.
    ("ALTER TABLE threads ADD COLUMN cache_saved_microcents INTEGER NOT NULL DEFAULT 0",),
    # Calls of tools that wait for a person's approval, and the answers.
    (
        """CREATE TABLE approvals (
            approval_id TEXT PRIMARY KEY NOT NULL,
            thread_id TEXT NOT NULL REFERENCES threads (thread_id) ON DELETE CASCADE,
            call_id TEXT NOT NULL,
            tool_name TEXT NOT NULL,
            arguments TEXT NOT NULL,
            reason TEXT NOT NULL,
            tool_digest TEXT NOT NULL,
            call_digest TEXT NOT NULL,
            requested_at TEXT NOT NULL,
            approved INTEGER,
            answer_reason TEXT NOT NULL DEFAULT '',
            answered_at TEXT,
            used INTEGER NOT NULL DEFAULT 0
        ) STRICT""",
        "CREATE INDEX approvals_by_thread ON approvals (thread_id)",
    ),
    # The queue whose workers run a thread, where machines share the state.
    ("ALTER TABLE threads ADD COLUMN queue TEXT",),
    # The machine whose process runs a thread, or has run it.
    ("ALTER TABLE threads ADD COLUMN host TEXT",),
)
"""The statements that upgrade each version of the file's schema to the next."""
