"""The queries of the thread registry in a database, which change nothing.

Source: docs/design/threads.md#registry; decisions 35, 36 and 46.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

from collections.abc import Mapping, Sequence
from typing import Final

from typing_extensions import override

from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.cost_sums import CostSum, label_conditions, sum_costs_query
from ryecore.state.model import ThreadRecord, thread_not_found
from ryecore.state.registry import ThreadRegistry
from ryecore.state.schema import (
    BEFORE,
    BELOW_AND_AFTER,
    IS_ACTIVE,
    IS_BELOW,
    IS_RUN,
    LIST_DIED,
    below,
)
from ryecore.state.statements import SqlDatabase
from ryecore.state.thread_rows import columns, record_of, result_of, tells_of_death

__all__ = ["SqlRegistryQueries"]

_PROCESS: Final = "boot_id, pid_namespace, pid, start_ticks, time_namespace"


class SqlRegistryQueries(ThreadRegistry):
    """The part of the registry that reads."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database

    @override
    async def get_thread(self, thread_id: str) -> ThreadRecord:
        found = await self._find("WHERE thread_id = ?", (thread_id,))
        if not found:
            raise thread_not_found(thread_id)
        return found[0]

    @override
    async def get_result(self, thread_id: str) -> object:
        rows = await self._database.fetch(
            "SELECT threads.*, results.body FROM threads LEFT JOIN results USING (thread_id)"
            " WHERE thread_id = ?",
            (thread_id,),
        )
        if not rows:
            raise thread_not_found(thread_id)
        record_of(rows[0])  # a damaged row has no result
        body = rows[0]["body"]
        return None if body is None else result_of(thread_id, body)

    @override
    async def list_active(self) -> tuple[ThreadRecord, ...]:
        return await self._find(f"WHERE {IS_ACTIVE} ORDER BY rowid")

    @override
    async def list_children(self, parent_id: str) -> tuple[ThreadRecord, ...]:
        return await self._find("WHERE parent_id = ? ORDER BY rowid", (parent_id,))

    @override
    async def list_threads(
        self, *, limit: int = 50, offset: int = 0, after: str | None = None
    ) -> tuple[ThreadRecord, ...]:
        place = "" if after is None else BEFORE
        page = (limit, offset) if after is None else (after, limit, offset)
        return await self._find(f"{place} ORDER BY rowid DESC LIMIT ? OFFSET ?", page)

    @override
    async def list_runs(self, *, limit: int = 50, offset: int = 0) -> tuple[ThreadRecord, ...]:
        return await self._find(
            f"WHERE {IS_RUN} ORDER BY rowid DESC LIMIT ? OFFSET ?",
            (limit, offset),
        )

    @override
    async def list_died(self) -> tuple[ThreadRecord, ...]:
        rows = await self._database.fetch(LIST_DIED)
        return tuple(
            record_of(row) for row in rows if tells_of_death(row["thread_id"], row["body"])
        )

    @override
    async def count_threads(self, *, only_runs: bool = False) -> int:
        condition = f"WHERE {IS_RUN}" if only_runs else ""
        return int((await self._database.fetch(f"SELECT count(*) FROM threads {condition}"))[0][0])

    @override
    async def count_open(self, labels: Mapping[str, str]) -> int:
        matches, values = label_conditions(labels)
        condition = " AND ".join([IS_ACTIVE, "parent_id IS NULL", *matches])
        query = f"SELECT count(*) FROM threads WHERE {condition}"
        return int((await self._database.fetch(query, values))[0][0])

    @override
    async def sum_costs(
        self, by: str, since: str | None, labels: Mapping[str, str]
    ) -> tuple[CostSum, ...]:
        rows = await self._database.fetch(*sum_costs_query(by, since, labels))
        return tuple(CostSum.of_row(tuple(row)) for row in rows)

    @override
    async def find_by_prefix(self, prefix: str, *, limit: int = 9) -> tuple[ThreadRecord, ...]:
        # Ids are ASCII, so all ids with the prefix are below this bound.
        return await self._find(
            "WHERE thread_id >= ? AND thread_id < ? ORDER BY thread_id LIMIT ?",
            (prefix, f"{prefix}\x7f", limit),
        )

    @override
    async def find_by_suffix(self, suffix: str, *, limit: int = 9) -> tuple[ThreadRecord, ...]:
        # A text that is cut before its beginning is another one on each database, but shorter.
        return await self._find(
            "WHERE substr(thread_id, length(thread_id) - ? + 1) = ? ORDER BY rowid DESC LIMIT ?",
            (len(suffix), suffix, limit),
        )

    @override
    async def list_tree(
        self, thread_id: str, *, and_after: bool = False
    ) -> tuple[ThreadRecord, ...]:
        found = BELOW_AND_AFTER if and_after else below("threads")
        rows = await self._database.fetch(
            f"{found} SELECT * FROM threads WHERE thread_id IN"
            " (SELECT thread_id FROM below) ORDER BY rowid",
            (thread_id,),
        )
        return tuple(map(record_of, rows))

    @override
    async def processes_of(self, thread_id: str) -> tuple[ProcessId, ...]:
        return await self._processes(
            f"{BELOW_AND_AFTER} SELECT DISTINCT {_PROCESS} FROM threads WHERE owns_process"
            " AND pid IS NOT NULL AND thread_id IN (SELECT thread_id FROM below)",
            thread_id,
        )

    @override
    async def processes_beside(self, thread_id: str) -> tuple[ProcessId, ...]:
        return await self._processes(
            f"{BELOW_AND_AFTER} SELECT DISTINCT {_PROCESS} FROM threads WHERE"
            f" {IS_ACTIVE} AND pid IS NOT NULL"
            " AND thread_id NOT IN (SELECT thread_id FROM below)",
            thread_id,
        )

    async def _processes(self, query: str, thread_id: str) -> tuple[ProcessId, ...]:
        return tuple(ProcessId(*row) for row in await self._database.fetch(query, (thread_id,)))

    @override
    async def is_below(self, thread_id: str, ancestor_id: str) -> bool:
        rows = await self._database.fetch(IS_BELOW, (thread_id, ancestor_id))
        return bool(rows)

    @override
    async def pending_requests(self, owner: ProcessId | None = None) -> tuple[ThreadRecord, ...]:
        return await self._find(
            f"WHERE {IS_ACTIVE}"
            " AND (cancel_requested OR kill_requested OR handoff_requested)"
            " AND boot_id = ? AND pid_namespace = ? AND pid = ? AND start_ticks = ?"
            " AND time_namespace IN (0, ?)"
            " ORDER BY rowid",
            columns(owner or current_process()),
        )

    @override
    async def get_chain(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        # First back, then forth from the thread itself: a thread may be resumed several times.
        chain = [await self.get_thread(thread_id)]
        met = {thread_id}
        before = chain[0].continuation_of
        while before is not None and before not in met:
            chain.insert(0, await self.get_thread(before))
            met.add(before)
            before = chain[0].continuation_of
        following = chain[-1].continuation_thread_id
        while following is not None and following not in met:
            chain.append(await self.get_thread(following))
            met.add(following)
            following = chain[-1].continuation_thread_id
        return tuple(chain)

    @override
    async def last_of(self, thread_id: str) -> str:
        met = {thread_id}
        while (found := await self.get_thread(thread_id)).status == "continued":
            thread_id = found.continuation_thread_id or thread_id
            if thread_id in met:
                break
            met.add(thread_id)
        return thread_id

    @override
    async def list_following(self, thread_id: str) -> tuple[ThreadRecord, ...]:
        return await self._find("WHERE continuation_of = ? ORDER BY rowid", (thread_id,))

    async def _find(
        self, condition: str, parameters: Sequence[object] = ()
    ) -> tuple[ThreadRecord, ...]:
        rows = await self._database.fetch(f"SELECT * FROM threads {condition}", parameters)
        return tuple(map(record_of, rows))
