"""The thread registry: one row a thread, for every process of the project.

Source: seed 003, "Thread Registry"; decisions 35 to 38 and 46.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from ryecore.errors import InputError, StateError, ThreadConflict
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.database import Database, Migration
from ryecore.state.liveness import LEASE_S, is_abandoned
from ryecore.state.model import (
    TERMINAL,
    Cost,
    Status,
    ThreadRecord,
    check_status,
    has_ended,
    thread_not_found,
)

__all__ = ["MIGRATIONS", "ThreadRegistry"]

_NOW: Final = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
_CLOCK: Final = "((julianday('now') - 2440587.5) * 86400.0)"
_ENDED: Final = ", ".join(f"'{status}'" for status in sorted(TERMINAL))

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
)
"""How `threads.db` is made, version by version."""


class ThreadRegistry:
    """Every thread of a project, past and present.

    What a thread's owner writes carries the fence that `claim` gave it: once another process has
    declared the owner dead, its writes are refused.

    Args:
        database: Where the rows are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    # A thread's life

    def register(
        self,
        thread_id: str,
        item_id: str,
        parent_id: str | None = None,
        *,
        owner: ProcessId | None = None,
        model: str | None = None,
    ) -> ThreadRecord:
        """Create a thread's row, with the status `created`.

        Args:
            thread_id: Its id, which no other thread has.
            item_id: What will run in it, as a canonical ref.
            parent_id: The thread that starts it.
            owner: The process that answers for it until another one claims it; the calling one.
            model: The model that its turns will use.

        Returns:
            The row.

        Raises:
            StateError: A thread has this id, or nothing can be written.
        """
        with self._database.write() as run:
            try:
                run.execute(
                    "INSERT INTO threads (thread_id, item_id, parent_id, model, created_at,"
                    " updated_at, boot_id, pid_namespace, pid, start_ticks, lease_until)"
                    f" VALUES (?, ?, ?, ?, {_NOW}, {_NOW}, ?, ?, ?, ?, {_CLOCK} + {LEASE_S})",
                    (thread_id, item_id, parent_id, model, *_columns(owner or current_process())),
                )
            except sqlite3.IntegrityError:
                raise StateError(
                    f"There is a thread {thread_id} already.", next_step="Give it another id."
                ) from None
            if parent_id is not None:
                self._row(run, parent_id)
                run.execute(
                    "UPDATE threads SET spawn_count = spawn_count + 1 WHERE thread_id = ?",
                    (parent_id,),
                )
            return self._row(run, thread_id)

    def claim(
        self, thread_id: str, owner: ProcessId | None = None, *, owns_process: bool = False
    ) -> int:
        """Take a created thread over, and say that it runs.

        Args:
            thread_id: The thread.
            owner: The process that runs it from now on; the calling one.
            owns_process: Whether that process runs nothing else, and may be killed for it.

        Returns:
            The fence that this owner's writes carry.

        Raises:
            ThreadConflict: It has ended meanwhile, or another process runs it.
            ThreadNotFound: There is none.
        """
        with self._database.write() as run:
            found = self._row(run, thread_id)
            if found.status != "created":
                raise _conflict(found, "be started")
            run.execute(
                "UPDATE threads SET status = 'running', fence = fence + 1, boot_id = ?,"
                " pid_namespace = ?, pid = ?, start_ticks = ?, owns_process = ?,"
                f" lease_until = {_CLOCK} + {LEASE_S}, updated_at = {_NOW} WHERE thread_id = ?",
                (*_columns(owner or current_process()), owns_process, thread_id),
            )
            return found.fence + 1

    def renew(self, thread_id: str, fence: int) -> None:
        """Say that the owner still runs the thread.

        Raises:
            StateError: Another process has declared it dead.
        """
        with self._database.write() as run:
            self._owned(run, thread_id, fence)
            run.execute(
                f"UPDATE threads SET lease_until = {_CLOCK} + {LEASE_S} WHERE thread_id = ?",
                (thread_id,),
            )

    def update_pid(self, thread_id: str, process: ProcessId) -> None:
        """Say which process is about to claim a created thread; later than that it says nothing."""
        with self._database.write() as run:
            self._row(run, thread_id)
            run.execute(
                "UPDATE threads SET boot_id = ?, pid_namespace = ?, pid = ?, start_ticks = ?"
                " WHERE thread_id = ? AND status = 'created'",
                (*_columns(process), thread_id),
            )

    def update_status(self, thread_id: str, status: str, *, fence: int | None = None) -> None:
        """Move a thread to another status.

        Args:
            thread_id: The thread.
            status: The new status. A thread that has ended keeps the one it has.
            fence: The writing owner's.

        Raises:
            ThreadConflict: It has ended with another status.
            InputError: There is no such status.
        """
        try:
            wanted = check_status(status)
        except ValueError as problem:
            raise InputError(f"{problem}.", next_step="Pass one of them.") from None
        with self._database.write() as run:
            found = self._owned(run, thread_id, fence)
            if found.status == wanted:
                return
            if found.ended or wanted == "created":
                raise _conflict(found, f"become {status}")
            self._set_status(run, thread_id, wanted)

    def settle(
        self, thread_id: str, status: Status, result: object, *, fence: int | None = None
    ) -> None:
        """End a thread: its last status and its result, in one transaction.

        Raises:
            ThreadConflict: It has ended already.
            StateError: Another process has declared the owner dead.
        """
        body = _as_json(result)
        with self._database.write() as run:
            found = self._owned(run, thread_id, fence)
            if found.ended:
                raise _conflict(found, f"become {status}")
            self._set_status(run, thread_id, status)
            self._set_result(run, thread_id, body)

    def set_result(self, thread_id: str, result: object) -> None:
        """Store a thread's result, as JSON."""
        body = _as_json(result)
        with self._database.write() as run:
            self._row(run, thread_id)
            self._set_result(run, thread_id, body)

    def update_cost_snapshot(self, thread_id: str, cost: Cost, *, fence: int | None = None) -> None:
        """Store what a thread has spent so far."""
        with self._database.write() as run:
            self._owned(run, thread_id, fence)
            run.execute(
                "UPDATE threads SET turns = ?, input_tokens = ?, output_tokens = ?,"
                f" spend_microcents = ?, updated_at = {_NOW} WHERE thread_id = ?",
                (
                    cost.turns,
                    cost.input_tokens,
                    cost.output_tokens,
                    cost.spend_microcents,
                    thread_id,
                ),
            )

    def request_cancel(self, thread_id: str, *, kill: bool = False) -> ThreadRecord:
        """Ask a thread to stop; its owner sees the wish.

        Args:
            thread_id: The thread.
            kill: Whether its process is about to be killed.

        Returns:
            The row as it stands; one that has ended is left as it is.
        """
        column = "kill_requested" if kill else "cancel_requested"
        with self._database.write() as run:
            if not self._row(run, thread_id).ended:
                run.execute(
                    f"UPDATE threads SET {column} = 1, updated_at = {_NOW} WHERE thread_id = ?",
                    (thread_id,),
                )
            return self._row(run, thread_id)

    def settle_abandoned(self, records: Iterable[ThreadRecord]) -> tuple[str, ...]:
        """End the threads that nobody runs any more: killed where that was asked for, else error.

        Args:
            records: The threads to look at.

        Returns:
            The ids of those that were ended by this call.
        """
        ended: list[str] = []
        for record in records:
            if not is_abandoned(record, self.now()):
                continue
            with self._database.write() as run:
                found = self._row(run, record.thread_id)
                # Between the look and this transaction another process may have claimed it, or
                # its owner renewed the lease.
                if found.ended or _hold(found) != _hold(record):
                    continue
                status: Status = "killed" if found.kill_requested else "error"
                self._set_status(run, found.thread_id, status)
                self._set_result(run, found.thread_id, _as_json(_epitaph(found, status)))
                ended.append(found.thread_id)
        return tuple(ended)

    # Looking

    def get_thread(self, thread_id: str) -> ThreadRecord:
        """A thread's row.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        found = self._find("WHERE thread_id = ?", (thread_id,))
        if not found:
            raise thread_not_found(thread_id)
        return found[0]

    def get_result(self, thread_id: str) -> object:
        """A thread's result; None where it has none yet.

        Raises:
            ThreadNotFound: There is none of this id.
        """
        self.get_thread(thread_id)
        rows = self._database.read("SELECT body FROM results WHERE thread_id = ?", (thread_id,))
        return json.loads(rows[0]["body"]) if rows else None

    def list_active(self) -> tuple[ThreadRecord, ...]:
        """The threads that have not ended, oldest first."""
        return self._find(f"WHERE status NOT IN ({_ENDED}) ORDER BY created_at, rowid")

    def list_children(self, parent_id: str) -> tuple[ThreadRecord, ...]:
        """The threads that a thread has started, oldest first."""
        return self._find("WHERE parent_id = ? ORDER BY created_at, rowid", (parent_id,))

    def list_threads(self, *, limit: int = 50, offset: int = 0) -> tuple[ThreadRecord, ...]:
        """Threads of every status, newest first."""
        return self._find("ORDER BY created_at DESC, rowid DESC LIMIT ? OFFSET ?", (limit, offset))

    def find_by_prefix(self, prefix: str, *, limit: int = 9) -> tuple[ThreadRecord, ...]:
        """The threads whose id begins with a text; the one that has no more than that first."""
        return self._find(
            "WHERE substr(thread_id, 1, ?) = ? ORDER BY length(thread_id), created_at LIMIT ?",
            (len(prefix), prefix, limit),
        )

    # Continuations

    def set_continuation(
        self, thread_id: str, continuation_thread_id: str, *, fence: int | None = None
    ) -> None:
        """Mark a thread as continued by another one.

        Args:
            thread_id: The thread, which ends with this.
            continuation_thread_id: The thread that goes on with it.
            fence: The writing owner's.

        Raises:
            ThreadConflict: It has ended already, or another thread continues it.
        """
        with self._database.write() as run:
            found = self._row(run, thread_id)
            self._row(run, continuation_thread_id)
            if found.continuation_thread_id == continuation_thread_id:
                return
            self._owned(run, thread_id, fence)
            if found.ended:
                raise _conflict(found, "be continued")
            run.execute(
                "UPDATE threads SET continuation_thread_id = ? WHERE thread_id = ?",
                (continuation_thread_id, thread_id),
            )
            self._set_status(run, thread_id, "continued")

    def set_chain_info(self, thread_id: str, chain_root_id: str, continuation_of: str) -> None:
        """Say which thread this one continues, and which one its chain begins with."""
        with self._database.write() as run:
            self._row(run, thread_id)
            run.execute(
                "UPDATE threads SET chain_root_id = ?, continuation_of = ?,"
                f" updated_at = {_NOW} WHERE thread_id = ?",
                (chain_root_id, continuation_of, thread_id),
            )

    def get_chain(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        """The whole chain of continuations that a thread belongs to, from its root on."""
        first = self.get_thread(thread_id)
        seen = {first.thread_id}
        while first.continuation_of is not None and first.continuation_of not in seen:
            first = self.get_thread(first.continuation_of)
            seen.add(first.thread_id)
        chain = [first]
        met = {first.thread_id}
        following = first.continuation_thread_id
        while following is not None and following not in met:
            chain.append(self.get_thread(following))
            met.add(following)
            following = chain[-1].continuation_thread_id
        return tuple(chain)

    def now(self) -> float:
        """The Unix time in seconds, on the store's clock."""
        return float(self._database.read(f"SELECT {_CLOCK}")[0][0])

    # Rows

    def _find(self, condition: str, parameters: Sequence[object] = ()) -> tuple[ThreadRecord, ...]:
        rows = self._database.read(f"SELECT * FROM threads {condition}", parameters)
        return tuple(map(_record, rows))

    def _row(self, run: sqlite3.Connection, thread_id: str) -> ThreadRecord:
        row = run.execute("SELECT * FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        if row is None:
            raise thread_not_found(thread_id)
        return _record(row)

    def _owned(self, run: sqlite3.Connection, thread_id: str, fence: int | None) -> ThreadRecord:
        found = self._row(run, thread_id)
        if fence is not None and found.fence != fence:
            raise StateError(
                f"Another process has taken the thread {thread_id} over.",
                next_step="Stop what runs here: the other process tells what becomes of it.",
                thread_id=thread_id,
            )
        return found

    def _set_status(self, run: sqlite3.Connection, thread_id: str, status: Status) -> None:
        run.execute(
            f"UPDATE threads SET status = ?, updated_at = {_NOW} WHERE thread_id = ?",
            (status, thread_id),
        )
        if has_ended(status):
            run.execute(
                f"UPDATE threads SET completed_at = {_NOW}, fence = fence + 1 WHERE thread_id = ?",
                (thread_id,),
            )

    def _set_result(self, run: sqlite3.Connection, thread_id: str, body: str) -> None:
        run.execute(
            "INSERT INTO results (thread_id, body) VALUES (?, ?)"
            " ON CONFLICT (thread_id) DO UPDATE SET body = excluded.body",
            (thread_id, body),
        )


def _hold(record: ThreadRecord) -> tuple[object, ...]:
    """Who holds a thread, and until when."""
    return (record.fence, record.owner, record.lease_until)


def _columns(process: ProcessId) -> tuple[str, int, int, int]:
    return (process.boot_id, process.pid_namespace, process.pid, process.start_ticks)


def _record(row: sqlite3.Row) -> ThreadRecord:
    owner = None
    if row["pid"] is not None and not has_ended(row["status"]):
        owner = ProcessId(row["boot_id"], row["pid_namespace"], row["pid"], row["start_ticks"])
    return ThreadRecord(
        thread_id=row["thread_id"],
        item_id=row["item_id"],
        parent_id=row["parent_id"],
        status=check_status(row["status"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        completed_at=row["completed_at"],
        owner=owner,
        fence=row["fence"],
        lease_until=row["lease_until"],
        owns_process=bool(row["owns_process"]),
        cancel_requested=bool(row["cancel_requested"]),
        kill_requested=bool(row["kill_requested"]),
        model=row["model"],
        cost=Cost(row["turns"], row["input_tokens"], row["output_tokens"], row["spend_microcents"]),
        spawn_count=row["spawn_count"],
        continuation_of=row["continuation_of"],
        continuation_thread_id=row["continuation_thread_id"],
        chain_root_id=row["chain_root_id"],
    )


def _as_json(result: object) -> str:
    try:
        return json.dumps(result, default=str)  # ASCII: half a character is kept too
    except (TypeError, ValueError, RecursionError) as problem:
        raise InputError(
            f"The result can't be written as JSON: {problem}.",
            next_step="Return text, numbers, booleans, null, lists and mappings with text keys.",
        ) from None


def _epitaph(record: ThreadRecord, status: Status) -> dict[str, object]:
    who = f"The process {record.pid} that ran it" if record.pid else "The process that ran it"
    began = "ended" if record.status == "running" else "ended before it began"
    error = "It was killed." if status == "killed" else f"{who} {began} without a word."
    return {"status": "error", "error": error, "error_type": status, "item_id": record.item_id}


def _conflict(record: ThreadRecord, what: str) -> ThreadConflict:
    return ThreadConflict(
        f"The thread {record.thread_id} is {record.status} and can't {what}.",
        next_step=f"See what became of it: rye threads show {record.thread_id}",
        thread_id=record.thread_id,
        state=record.status,
    )
