"""The thread registry in a database: one row a thread, for every process of the project.

Source: docs/design/threads.md#registry; decisions 35 to 38 and 46.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

from collections.abc import Iterable, Mapping
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final, TypeVar

from typing_extensions import override

from ryecore.errors import ThreadConflict
from ryecore.lillux.processes import ProcessId, current_process
from ryecore.policy.limits import Limits
from ryecore.state.chain_limits import limit_along_chain
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import (
    ContinuationLimits,
    Cost,
    Predecessor,
    RemotePlace,
    SpawnLimit,
    Status,
    ThreadRecord,
    thread_not_found,
)
from ryecore.state.owners import is_abandoned
from ryecore.state.refusals import refuse_another
from ryecore.state.schema import (
    ENDED,
    NOW,
    SET_COST,
    SET_HEAD,
)
from ryecore.state.sql_registry_queries import SqlRegistryQueries
from ryecore.state.start_keys import free_start_key, keep_start_key, refuse_started
from ryecore.state.statements import Statements
from ryecore.state.thread_rows import (
    CLAIM,
    SET_LEASE,
    as_json,
    ask_to_stop,
    columns,
    conflict,
    cost_values,
    count_spawn,
    end_abandoned,
    end_row,
    insert_row,
    new_lease,
    ownership,
    ownership_of,
    record_of,
    set_place,
    take_over,
)
from ryecore.state.transactions import Work

__all__ = ["SqlRegistry"]

T = TypeVar("T")

_SET_HEAD: Final = f"UPDATE threads SET {SET_HEAD} WHERE thread_id = ?"

_SET_COST: Final = f"UPDATE threads SET {SET_COST} WHERE thread_id = ?"
_SET_LEASE: Final = f"UPDATE threads SET {SET_LEASE} WHERE thread_id = ?"


class SqlRegistry(SqlRegistryQueries):
    """The registry in a database."""

    @override
    async def synced(self) -> None:
        await self._database.synced()

    @override
    async def together(self, work: Work[T], *, tree: str | None = None) -> T:
        return await self._database.together(work, tree)

    # A thread's life

    @override
    async def register(
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
        labels: Mapping[str, str] | None = None,
        queue: str | None = None,
    ) -> ThreadRecord:
        is_alone = follows is None and start is None
        async with self._database.writing((parent_id or thread_id) if is_alone else None) as run:
            refuse_another(run, follows)
            refuse_started(run, start, parent_id)
            root_id, cancelled, killed = thread_id, False, False
            inherited: Mapping[str, str] = {}
            if follows is not None:
                inherited = self._row(run, follows.thread_id).labels
            if parent_id is not None:
                parent = self._row(run, parent_id)
                root_id = parent.root_id
                cancelled, killed = parent.cancel_requested, parent.kill_requested
                inherited = {**inherited, **parent.labels}
                if spawns is not None:
                    count_spawn(run, parent_id, spawns)
            record = insert_row(
                run,
                thread_id,
                item_id,
                parent_id,
                root_id=root_id,
                owner=None if queue and follows is None else owner or current_process(),
                requests=(cancelled, killed),
                model=model,
                limits=limits,
                follows=follows,
                labels={**(labels or {}), **inherited},
                queue=queue,
            )
            keep_start_key(run, thread_id, start, parent_id)
            return record

    @override
    async def check_start(self, start: IdempotencyKey | None, parent_id: str | None) -> None:
        if start is not None:
            async with self._database.writing() as run:
                refuse_started(run, start, parent_id)

    @override
    async def free_start_key(self, thread_id: str) -> None:
        async with self._database.writing() as run:
            free_start_key(run, thread_id)

    @override
    async def count_spawn(self, parent_id: str, most: int | None) -> int:
        async with self._database.writing(parent_id) as run:
            return count_spawn(run, parent_id, SpawnLimit(most))

    @override
    async def mint_token(self, thread_id: str) -> str:
        token = token_urlsafe()
        async with self._database.writing(thread_id) as run:
            found = self._row(run, thread_id)
            if found.status != "created":
                raise conflict(found, "be given a token")
            run.execute(
                "UPDATE threads SET parent_token_hash = ? WHERE thread_id = ?",
                (sha256(token.encode()).hexdigest(), thread_id),
            )
        return token

    @override
    async def claim(
        self,
        thread_id: str,
        owner: ProcessId | None = None,
        *,
        owns_process: bool = False,
        token: str | None = None,
        limits: Mapping[str, object] | None = None,
        model: str | None = None,
    ) -> int:
        written = None if limits is None else as_json(limits)
        # Only hashes are compared, so the time that it takes tells nothing of the token.
        hashed = None if token is None else sha256(token.encode()).hexdigest()
        async with self._database.writing(thread_id) as run:
            values = (*ownership(owner or current_process()), owns_process, written, model)
            claimed = run.execute(CLAIM, (*values, thread_id, hashed)).fetchone()
            if claimed is None:
                found = self._row(run, thread_id)
                if found.status != "created":
                    raise conflict(found, "be started")
                raise ThreadConflict(
                    f"The thread {thread_id} is claimed with the token that its parent made for "
                    "it, and this is another one.",
                    next_step="Start a thread of your own.",
                    thread_id=thread_id,
                    state="created",
                )
            return int(claimed[0])

    @override
    async def set_place(self, thread_id: str, place: RemotePlace, *, fence: int) -> None:
        async with self._database.writing(thread_id) as run:
            self._owned(run, thread_id, fence)
            set_place(run, thread_id, place)

    @override
    async def take_over(self, thread_id: str, owner: ProcessId | None = None) -> int:
        async with self._database.writing(thread_id) as run:
            return take_over(run, self._row(run, thread_id), owner or current_process())

    @override
    async def renew(self, thread_id: str, fence: int) -> None:
        async with self._database.writing(thread_id) as run:
            self._owned(run, thread_id, fence)
            run.execute(_SET_LEASE, (*new_lease(), thread_id))

    @override
    async def assign_process(self, thread_id: str, process: ProcessId) -> None:
        async with self._database.writing(thread_id) as run:
            self._row(run, thread_id)
            run.execute(
                "UPDATE threads SET boot_id = ?, pid_namespace = ?, pid = ?, start_ticks = ?,"
                " time_namespace = ?, owns_process = TRUE"
                " WHERE thread_id = ? AND status = 'created'",
                (*columns(process), thread_id),
            )

    @override
    async def settle(
        self,
        thread_id: str,
        status: Status,
        result: object,
        *,
        fence: int | None = None,
        head: tuple[int, str] | None = None,
        snapshot: Cost | None = None,
    ) -> None:
        body = as_json(result)
        async with self._database.writing(thread_id) as run:
            if not end_row(run, thread_id, status, body, fence=fence, head=head, snapshot=snapshot):
                raise conflict(self._owned(run, thread_id, fence), f"become {status}")

    @override
    async def set_cost(self, thread_id: str, cost: Cost, *, fence: int | None = None) -> None:
        async with self._database.writing(thread_id) as run:
            self._owned(run, thread_id, fence)
            run.execute(_SET_COST, (*cost_values(cost), thread_id))

    @override
    async def set_limits(
        self,
        thread_id: str,
        limits: Mapping[str, object],
        *,
        model: str | None = None,
        fence: int | None = None,
    ) -> None:
        written = as_json(limits)
        async with self._database.writing(thread_id) as run:
            self._owned(run, thread_id, fence)
            run.execute(
                "UPDATE threads SET limits = ?, model = coalesce(?, model),"
                f" updated_at = {NOW} WHERE thread_id = ?",
                (written, model, thread_id),
            )

    @override
    async def request_cancel(self, thread_id: str, *, kill: bool = False) -> ThreadRecord:
        async with self._database.writing() as run:
            self._row(run, thread_id)
            column = "kill_requested" if kill else "cancel_requested"
            ask_to_stop(run, thread_id, column, and_after=True)
            return self._row(run, thread_id)

    @override
    async def request_handoff(self, thread_id: str) -> ThreadRecord:
        async with self._database.writing(thread_id) as run:
            run.execute(
                f"UPDATE threads SET handoff_requested = TRUE, updated_at = {NOW}"
                f" WHERE thread_id = ? AND status NOT IN ({ENDED})",
                (thread_id,),
            )
            return self._row(run, thread_id)

    @override
    async def settle_abandoned(self, records: Iterable[ThreadRecord]) -> tuple[str, ...]:
        ended: list[str] = []
        for record in records:
            if not is_abandoned(record):
                continue
            async with self._database.writing(record.thread_id) as run:
                found = self._row(run, record.thread_id)
                # Since then another process may have claimed it, or its owner renewed the lease.
                if found.ended or ownership_of(found) != ownership_of(record):
                    continue
                end_abandoned(run, found)
                ended.append(found.thread_id)
        return tuple(ended)

    # Continuations

    @override
    async def set_head(self, thread_id: str, head: tuple[int, str]) -> None:
        async with self._database.writing(thread_id) as run:
            run.execute(_SET_HEAD, (*head, thread_id))

    @override
    async def link_continuation(self, thread_id: str, continuation_thread_id: str) -> None:
        async with self._database.writing(thread_id) as run:
            self._row(run, thread_id)
            run.execute(
                "UPDATE threads SET continuation_thread_id = ? WHERE thread_id = ?",
                (continuation_thread_id, thread_id),
            )

    # Rows

    def _row(self, run: Statements, thread_id: str) -> ThreadRecord:
        row = run.execute("SELECT * FROM threads WHERE thread_id = ?", (thread_id,)).fetchone()
        if row is None:
            raise thread_not_found(thread_id)
        return record_of(row)

    def _owned(self, run: Statements, thread_id: str, fence: int | None) -> ThreadRecord:
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

    @override
    async def limit_continuation(self, thread_id: str, bounds: ContinuationLimits) -> Limits:
        async with self._database.writing() as run:
            return limit_along_chain(run, thread_id, bounds)
