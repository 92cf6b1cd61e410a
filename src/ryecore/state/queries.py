"""What the registry is asked: a thread's row and result, lists, trees and chains."""

# ruff: noqa: S608 - what is spliced into statements is constants

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.database import Database
from ryecore.state.model import ThreadRecord, thread_not_found
from ryecore.state.schema import ACTIVE, BELOW_AND_AFTER, IS_RUN, below
from ryecore.state.thread_rows import columns, record_of, result_of

__all__ = ["ThreadQueries"]


_PROCESS: Final = "boot_id, pid_namespace, pid, start_ticks, time_namespace"

_CONTINUES: Final = "substr(item_id, 1, 10) = 'directive:'"

_IS_BELOW: Final = """WITH RECURSIVE above (thread_id, parent_id) AS (
        SELECT thread_id, parent_id FROM threads WHERE thread_id = ?
        UNION SELECT parent.thread_id, parent.parent_id
        FROM threads AS parent JOIN above ON parent.thread_id = above.parent_id
    ) SELECT 1 FROM above WHERE thread_id = ?"""


class ThreadQueries:
    """Looks at the threads of a project, and changes nothing.

    Args:
        database: Where the rows are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

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
            StateError: It is damaged.
        """
        self.get_thread(thread_id)
        rows = self._database.read("SELECT body FROM results WHERE thread_id = ?", (thread_id,))
        return result_of(thread_id, rows[0]["body"]) if rows else None

    def list_active(self) -> tuple[ThreadRecord, ...]:
        """The threads that have not ended, oldest first."""
        return self._find(f"WHERE status IN ({ACTIVE}) ORDER BY rowid")

    def list_children(self, parent_id: str) -> tuple[ThreadRecord, ...]:
        """The threads that a thread has started, oldest first."""
        return self._find("WHERE parent_id = ? ORDER BY rowid", (parent_id,))

    def list_threads(self, *, limit: int = 50, offset: int = 0) -> tuple[ThreadRecord, ...]:
        """Threads of every status, newest first."""
        return self._find("ORDER BY rowid DESC LIMIT ? OFFSET ?", (limit, offset))

    def list_runs(self, *, limit: int = 50, offset: int = 0) -> tuple[ThreadRecord, ...]:
        """The runs of graphs, newest first."""
        return self._find(
            f"WHERE {IS_RUN} ORDER BY rowid DESC LIMIT ? OFFSET ?",
            (limit, offset),
        )

    def list_died(self) -> tuple[ThreadRecord, ...]:
        """Return the directives' threads and graphs' runs whose process died, oldest first.

        Children are left out, because their parents start them again; so are those that were
        stopped, and those that another one continues or has continued to its end.
        """
        rows = self._database.read(
            "SELECT threads.* FROM threads JOIN results USING (thread_id)"
            f" WHERE status = 'error' AND parent_id IS NULL AND ({_CONTINUES} OR {IS_RUN})"
            " AND body LIKE '%\"died\": true%' AND json_extract(body, '$.died') IS 1"
            " AND NOT EXISTS (SELECT 1 FROM threads AS later"
            " WHERE later.continuation_of = threads.thread_id"
            " AND later.chain_root_id IS NOT NULL AND later.status <> 'error')"
            " ORDER BY threads.rowid"
        )
        return tuple(map(record_of, rows))

    def count_threads(self, *, only_runs: bool = False) -> int:
        """Return the number of threads, or of runs of graphs."""
        condition = f"WHERE {IS_RUN}" if only_runs else ""
        return int(self._database.read(f"SELECT count(*) FROM threads {condition}")[0][0])

    def find_by_prefix(self, prefix: str, *, limit: int = 9) -> tuple[ThreadRecord, ...]:
        """The threads whose id begins with a text; the one that has no more than that first."""
        # Ids are ASCII, so all of them that begin with it stand below this bound.
        return self._find(
            "WHERE thread_id >= ? AND thread_id < ? ORDER BY thread_id LIMIT ?",
            (prefix, f"{prefix}\x7f", limit),
        )

    def list_tree(self, thread_id: str, *, and_after: bool = False) -> tuple[ThreadRecord, ...]:
        """List a thread and all those below it, oldest first; nothing where there is none.

        Args:
            thread_id: The thread.
            and_after: Whether those that go on from threads that were handed off are among them.
        """
        found = BELOW_AND_AFTER if and_after else below("threads")
        rows = self._database.read(
            f"{found} SELECT * FROM threads WHERE thread_id IN"
            " (SELECT thread_id FROM below) ORDER BY rowid",
            (thread_id,),
        )
        return tuple(map(record_of, rows))

    def processes_of(self, thread_id: str) -> tuple[ProcessId, ...]:
        """Return the processes that run, or have run, nothing but what is killed with a thread."""
        return self._processes(
            f"{BELOW_AND_AFTER} SELECT DISTINCT {_PROCESS} FROM threads WHERE owns_process"
            " AND pid IS NOT NULL AND thread_id IN (SELECT thread_id FROM below)",
            thread_id,
        )

    def processes_beside(self, thread_id: str) -> tuple[ProcessId, ...]:
        """Return the processes of threads that have not ended, and are not killed with a thread."""
        return self._processes(
            f"{BELOW_AND_AFTER} SELECT DISTINCT {_PROCESS} FROM threads WHERE"
            f" status IN ({ACTIVE}) AND pid IS NOT NULL"
            " AND thread_id NOT IN (SELECT thread_id FROM below)",
            thread_id,
        )

    def _processes(self, query: str, thread_id: str) -> tuple[ProcessId, ...]:
        return tuple(ProcessId(*row) for row in self._database.read(query, (thread_id,)))

    def is_below(self, thread_id: str, ancestor_id: str) -> bool:
        """Whether a thread belongs to the subtree of another one, which it does to its own."""
        rows = self._database.read(_IS_BELOW, (thread_id, ancestor_id))
        return bool(rows)

    def pending_requests(self, owner: ProcessId | None = None) -> tuple[ThreadRecord, ...]:
        """List the threads of a process (this one) that were asked to stop or hand off."""
        return self._find(
            f"WHERE status IN ({ACTIVE})"
            " AND (cancel_requested OR kill_requested OR handoff_requested)"
            " AND boot_id = ? AND pid_namespace = ? AND pid = ? AND start_ticks = ?"
            " AND time_namespace IN (0, ?)"
            " ORDER BY rowid",
            columns(owner or current_process()),
        )

    def get_chain(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        """The whole chain of continuations that a thread belongs to, from its root on."""
        # Back first, and forth from itself: one thread may be taken up again several times.
        chain = [self.get_thread(thread_id)]
        met = {thread_id}
        before = chain[0].continuation_of
        while before is not None and before not in met:
            chain.insert(0, self.get_thread(before))
            met.add(before)
            before = chain[0].continuation_of
        following = chain[-1].continuation_thread_id
        while following is not None and following not in met:
            chain.append(self.get_thread(following))
            met.add(following)
            following = chain[-1].continuation_thread_id
        return tuple(chain)

    def last_of(self, thread_id: str) -> str:
        """Return a thread's id, or of one that was handed off that of the last that goes on."""
        met = {thread_id}
        while (found := self.get_thread(thread_id)).status == "continued":
            thread_id = found.continuation_thread_id or thread_id
            if thread_id in met:
                break
            met.add(thread_id)
        return thread_id

    def list_following(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        """The threads that go on from one, oldest first."""
        return self._find("WHERE continuation_of = ? ORDER BY rowid", (thread_id,))

    def quiet(self, most_s: float) -> AbstractContextManager[bool]:
        """Have what is read meanwhile wait for nobody here; False where that isn't so in time."""
        return self._database.quiet(most_s)

    def _find(self, condition: str, parameters: Sequence[object] = ()) -> tuple[ThreadRecord, ...]:
        rows = self._database.read(f"SELECT * FROM threads {condition}", parameters)
        return tuple(map(record_of, rows))
