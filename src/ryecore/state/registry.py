"""The thread registry: one row a thread, for every process of the project.

Source: docs/design/threads.md#registry; decisions 35 to 38 and 46.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

import sqlite3
from collections.abc import Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe

from attrs import astuple

from ryecore.errors import InputError, ThreadConflict
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.model import (
    Cost,
    Predecessor,
    Status,
    ThreadRecord,
    check_status,
    thread_not_found,
)
from ryecore.state.owners import is_abandoned
from ryecore.state.queries import ThreadQueries
from ryecore.state.refusals import id_taken, refuse_another
from ryecore.state.schema import ENDED, MIGRATIONS, NOW, SET_COST
from ryecore.state.start_keys import IdempotencyKey, free_start_key, keep_start_key, refuse_started
from ryecore.state.thread_rows import (
    OWNERSHIP,
    SET_LEASE,
    SET_OWNERSHIP,
    SpawnLimit,
    as_json,
    ask_to_stop,
    columns,
    conflict,
    count_spawn,
    end_abandoned,
    new_lease,
    ownership,
    ownership_of,
    record_of,
    set_result,
    set_status,
)

__all__ = ["MIGRATIONS", "ThreadRegistry"]


class ThreadRegistry(ThreadQueries):
    """Every thread of a project, past and present.

    What a thread's owner writes carries the fence that `claim` gave it: once another process has
    declared the owner dead, its writes are refused.

    Args:
        database: Where the rows are kept.
    """

    # A thread's life

    def register(
        self,
        thread_id: str,
        item_id: str,
        parent_id: str | None = None,
        *,
        owner: ProcessId | None = None,
        model: str | None = None,
        limits: Mapping[str, object] | None = None,
        follows: Predecessor | None = None,
        start: IdempotencyKey | None = None,
        spawns: SpawnLimit | None = None,
    ) -> ThreadRecord:
        """Create a thread's row, with the status `created`.

        A child of a parent that was asked to stop is asked to stop, too.

        Args:
            thread_id: Its id, which no other thread has.
            item_id: What will run in it, as a canonical ref.
            parent_id: The thread that starts it.
            owner: The process that answers for it until one claims it; the calling one.
            model: The model that its turns will use.
            limits: Its limits by name, JSON-ready.
            follows: What it goes on from.
            start: The idempotency key that it is started with.
            spawns: The parent's limit, which the thread is counted against in the same
                transaction; None where `count_spawn` does that.

        Raises:
            AlreadyStarted: The same was started with this key. It isn't counted again.
            LimitReached: The parent has started as many as it may.
            ThreadConflict: A thread has this id, or another one goes on from the same already.
            StateError: Nothing can be written.
        """
        written = None if limits is None else as_json(limits)
        with self._database.write() as run:
            refuse_another(run, follows)
            refuse_started(run, start, parent_id)
            root_id, cancelled, killed = thread_id, False, False
            if parent_id is not None:
                parent = self._row(run, parent_id)
                root_id = parent.root_id
                cancelled, killed = parent.cancel_requested, parent.kill_requested
                if spawns is not None:
                    count_spawn(run, parent_id, spawns)
            try:
                run.execute(
                    "INSERT INTO threads (thread_id, item_id, parent_id, root_id, model, limits,"
                    " chain_root_id, continuation_of,"
                    f" cancel_requested, kill_requested, created_at, updated_at, {OWNERSHIP})"
                    f" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {NOW}, {NOW}, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(thread_id, item_id, parent_id, root_id, model, written),
                        *((follows.chain_root_id, follows.thread_id) if follows else (None, None)),
                        *(cancelled, killed, *ownership(owner or current_process())),
                    ),
                )
            except sqlite3.IntegrityError:
                raise id_taken(thread_id) from None
            keep_start_key(run, thread_id, start, parent_id)
            return self._row(run, thread_id)

    def check_start(self, start: IdempotencyKey | None, parent_id: str | None) -> None:
        """Refuse a start whose idempotency key another one has, before anything else is done.

        Raises:
            AlreadyStarted: The same was started with this key.
            InputError: Another request was.
        """
        if start is not None:
            with self._database.write() as run:
                refuse_started(run, start, parent_id)

    def free_start_key(self, thread_id: str) -> None:
        """Free the idempotency key of a thread that failed before anything of it ran."""
        with self._database.write() as run:
            free_start_key(run, thread_id)

    def count_spawn(self, parent_id: str, most: int | None) -> int:
        """Count one more child of a thread, unless that would pass its limit.

        Args:
            parent_id: The thread that starts one.
            most: How many it may start in all; None for any number.

        Returns:
            How many it has started now, this one included.

        Raises:
            LimitReached: It has started that many already (`spawns_exceeded`). Nothing is counted.
            ThreadNotFound: There is none of this id.

        Source: docs/design/threads.md#spawns; decision 40.
        """
        with self._database.write() as run:
            return count_spawn(run, parent_id, SpawnLimit(most))

    def mint_token(self, thread_id: str) -> str:
        """Make the token that a created thread is claimed with, once; an older one is void.

        The row keeps its SHA-256 alone.

        Raises:
            ThreadConflict: The thread runs already, or has ended.
            ThreadNotFound: There is none of this id.

        Source: decision 41.
        """
        token = token_urlsafe()
        with self._database.write() as run:
            found = self._row(run, thread_id)
            if found.status != "created":
                raise conflict(found, "be given a token")
            run.execute(
                "UPDATE threads SET parent_token_hash = ? WHERE thread_id = ?",
                (sha256(token.encode()).hexdigest(), thread_id),
            )
        return token

    def claim(
        self,
        thread_id: str,
        owner: ProcessId | None = None,
        *,
        owns_process: bool = False,
        token: str | None = None,
    ) -> int:
        """Take a created thread over, and say that it runs.

        Args:
            thread_id: The thread.
            owner: The process that runs it from now on; the calling one.
            owns_process: Whether that process runs nothing else, and may be killed for it.
            token: What `mint_token` gave, where it was called for this thread; it is used up.

        Returns:
            The fence that this owner's writes carry.

        Raises:
            ThreadConflict: It has ended meanwhile, another process runs it, or the token is not
                the thread's.
            ThreadNotFound: There is none.
        """
        with self._database.write() as run:
            found = self._row(run, thread_id)
            if found.status != "created":
                raise conflict(found, "be started")
            (wanted,) = run.execute(
                "SELECT parent_token_hash FROM threads WHERE thread_id = ?", (thread_id,)
            ).fetchone()
            passed = sha256((token or "").encode()).hexdigest()
            if wanted is not None and not compare_digest(wanted, passed):
                raise ThreadConflict(
                    f"The thread {thread_id} is claimed with the token that its parent made for "
                    "it, and this is another one.",
                    next_step="Start a thread of your own.",
                    thread_id=thread_id,
                    state=found.status,
                )
            run.execute(
                f"UPDATE threads SET {SET_OWNERSHIP}, owns_process = ?,"
                " status = 'running', fence = fence + 1, parent_token_hash = NULL,"
                f" updated_at = {NOW} WHERE thread_id = ?",
                (*ownership(owner or current_process()), owns_process, thread_id),
            )
            return found.fence + 1

    def renew(self, thread_id: str, fence: int) -> None:
        """Say that the owner still runs the thread.

        Raises:
            StateError: Another process has declared it dead.
        """
        with self._database.write() as run:
            self._owned(run, thread_id, fence)
            values = (*new_lease(), thread_id)
            run.execute(f"UPDATE threads SET {SET_LEASE} WHERE thread_id = ?", values)

    def update_pid(self, thread_id: str, process: ProcessId) -> None:
        """Say which process is about to claim a created thread, and runs nothing else."""
        with self._database.write() as run:
            self._row(run, thread_id)
            run.execute(
                "UPDATE threads SET boot_id = ?, pid_namespace = ?, pid = ?, start_ticks = ?,"
                " time_namespace = ?, owns_process = 1"
                " WHERE thread_id = ? AND status = 'created'",
                (*columns(process), thread_id),
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
                raise conflict(found, f"become {status}")
            set_status(run, thread_id, wanted)

    def settle(
        self,
        thread_id: str,
        status: Status,
        result: object,
        *,
        fence: int | None = None,
        head: tuple[int, str] | None = None,
        snapshot: Cost | None = None,
    ) -> None:
        """End a thread in one transaction: its last status, its result, and its account's end.

        Args:
            thread_id: The thread.
            status: The status that it ends with.
            result: Its result, JSON-ready.
            fence: The writing owner's.
            head: The length in bytes and the digest of its transcript's last checkpoint.
            snapshot: What it has spent.

        Raises:
            ThreadConflict: It has ended already, or another process has taken it over.
            InputError: The result can't be written as JSON.
            StateError: Nothing can be written.
        """
        body = as_json(result)
        with self._database.write() as run:
            found = self._owned(run, thread_id, fence)
            if found.ended:
                raise conflict(found, f"become {status}")
            if head is not None:
                run.execute(
                    "UPDATE threads SET transcript_length = ?, transcript_digest = ?"
                    " WHERE thread_id = ?",
                    (*head, thread_id),
                )
            if snapshot is not None:
                self._set_cost(run, thread_id, snapshot)
            set_status(run, thread_id, status)
            set_result(run, thread_id, body)

    def set_result(self, thread_id: str, result: object) -> None:
        """Store a thread's result, as JSON."""
        body = as_json(result)
        with self._database.write() as run:
            self._row(run, thread_id)
            set_result(run, thread_id, body)

    def update_cost_snapshot(self, thread_id: str, cost: Cost, *, fence: int | None = None) -> None:
        """Store what a thread has spent so far."""
        with self._database.write() as run:
            self._owned(run, thread_id, fence)
            self._set_cost(run, thread_id, cost)

    def set_limits(
        self,
        thread_id: str,
        limits: Mapping[str, object],
        *,
        model: str | None = None,
        fence: int | None = None,
    ) -> None:
        """Store a thread's limits, by name and JSON-ready, and the model that its turns use."""
        written = as_json(limits)
        with self._database.write() as run:
            self._owned(run, thread_id, fence)
            run.execute(
                "UPDATE threads SET limits = ?, model = coalesce(?, model),"
                f" updated_at = {NOW} WHERE thread_id = ?",
                (written, model, thread_id),
            )

    def request_cancel(self, thread_id: str, *, kill: bool = False) -> ThreadRecord:
        """Ask a thread and all those below it to stop. Their owners read it from their rows.

        Those that go on from a thread that was handed off are asked with it.

        Args:
            thread_id: The thread.
            kill: Whether its process is about to be killed.

        Returns:
            The row as it stands; one that has ended is left as it is.
        """
        with self._database.write() as run:
            self._row(run, thread_id)
            column = "kill_requested" if kill else "cancel_requested"
            ask_to_stop(run, thread_id, column, and_after=True)
            return self._row(run, thread_id)

    def request_handoff(self, thread_id: str) -> ThreadRecord:
        """Ask a thread's owner to hand it off. The owner reads it from the row."""
        with self._database.write() as run:
            run.execute(
                f"UPDATE threads SET handoff_requested = 1, updated_at = {NOW}"
                f" WHERE thread_id = ? AND status NOT IN ({ENDED})",
                (thread_id,),
            )
            return self._row(run, thread_id)

    def settle_abandoned(self, records: Iterable[ThreadRecord]) -> tuple[str, ...]:
        """End the threads that nobody runs any more: killed where that was asked for, else error.

        Those below them, which may run in other processes, are asked to stop.

        Args:
            records: The threads to look at.

        Returns:
            The ids of those that were ended by this call.
        """
        ended: list[str] = []
        for record in records:
            if not is_abandoned(record):
                continue
            with self._database.write() as run:
                found = self._row(run, record.thread_id)
                # Between the look and this transaction another process may have claimed it, or
                # its owner renewed the lease.
                if found.ended or ownership_of(found) != ownership_of(record):
                    continue
                end_abandoned(run, found)
                ended.append(found.thread_id)
        return tuple(ended)

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
                raise conflict(found, "be continued")
            run.execute(
                "UPDATE threads SET continuation_thread_id = ? WHERE thread_id = ?",
                (continuation_thread_id, thread_id),
            )
            set_status(run, thread_id, "continued")

    def set_chain_info(self, thread_id: str, chain_root_id: str, continuation_of: str) -> None:
        """Say which thread this one continues, and which one its chain begins with."""
        with self._database.write() as run:
            self._row(run, thread_id)
            run.execute(
                "UPDATE threads SET chain_root_id = ?, continuation_of = ?,"
                f" updated_at = {NOW} WHERE thread_id = ?",
                (chain_root_id, continuation_of, thread_id),
            )

    def set_head(self, thread_id: str, head: tuple[int, str]) -> None:
        """Say where the transcript of a thread that has ended ends."""
        with self._database.write() as run:
            run.execute(
                "UPDATE threads SET transcript_length = ?, transcript_digest = ?"
                " WHERE thread_id = ?",
                (*head, thread_id),
            )

    def link_continuation(self, thread_id: str, continuation_thread_id: str) -> None:
        """Say which thread goes on with this one; how it ends is said by `settle`."""
        with self._database.write() as run:
            self._row(run, thread_id)
            run.execute(
                "UPDATE threads SET continuation_thread_id = ? WHERE thread_id = ?",
                (continuation_thread_id, thread_id),
            )

    # Rows

    def _row(self, run: sqlite3.Connection, thread_id: str) -> ThreadRecord:
        row = run.execute("SELECT * FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        if row is None:
            raise thread_not_found(thread_id)
        return record_of(row)

    def _owned(self, run: sqlite3.Connection, thread_id: str, fence: int | None) -> ThreadRecord:
        found = self._row(run, thread_id)
        if fence is not None and found.fence != fence:
            if found.ended:
                raise conflict(found, "be written by who ran it")
            raise ThreadConflict(
                f"Another process has taken the thread {thread_id} over.",
                next_step="Stop what runs here: the other process tells what becomes of it.",
                thread_id=thread_id,
                state=found.status,
            )
        return found

    def _set_cost(self, run: sqlite3.Connection, thread_id: str, cost: Cost) -> None:
        run.execute(
            f"UPDATE threads SET {SET_COST} WHERE thread_id = ?", (*astuple(cost), thread_id)
        )
