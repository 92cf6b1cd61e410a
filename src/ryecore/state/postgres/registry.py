"""The thread registry in PostgreSQL, with the fast paths of its operations.

Source: docs/design/threads.md#registry; decisions 35, 36 and 77; ADR 053.
"""

import json
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import ClassVar, Final

from typing_extensions import override

from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import Cost, Predecessor, SpawnLimit, Status, ThreadRecord
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.thread_rows import (
    COUNT_SPAWN,
    NO_OWNER,
    as_json,
    columns,
    created_record,
    new_lease,
)

__all__ = ["PostgresRegistry", "cost_array"]

_REGISTER: Final = f"SELECT * FROM register_thread({', '.join('?' * 17)})"  # noqa: S608 - constants


class PostgresRegistry(SqlRegistry):
    """The registry in PostgreSQL."""

    awaited: ClassVar = frozenset(
        {"count_spawn", "get_result", "get_thread", "last_of", "register", "together"}
    )
    """The operations that an event loop awaits itself; see `in_workers`."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._server = database

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
        if follows is None and start is None and spawns is None:
            owned = None if queue else owner or current_process()
            lease = new_lease()
            values = (
                *(*self._server.tree_lock, thread_id, item_id, parent_id, model),
                None if limits is None else as_json(limits),
                as_json(dict(labels)) if labels else None,
                *(queue, *(NO_OWNER if owned is None else columns(owned)), *lease),
            )
            row = await self._server.fetch_row(_REGISTER, values)
            made_at, root_id, cancelled, killed, kept = row
            if made_at is not None:
                return created_record(
                    thread_id,
                    item_id,
                    parent_id,
                    at=made_at,
                    root_id=root_id,
                    owner=owned,
                    lease=lease,
                    requests=(cancelled, killed),
                    model=model,
                    limits=limits,
                    follows=None,
                    labels=json.loads(kept) if kept else {},
                    queue=queue,
                )
        by_rules = partial(super().register, thread_id, item_id, parent_id, owner=owner)
        by_rules = partial(by_rules, model=model, limits=limits, labels=labels, queue=queue)
        return await self._server.operate(
            partial(by_rules, follows=follows, start=start, spawns=spawns)
        )

    @override
    async def count_spawn(self, parent_id: str, most: int | None) -> int:
        # It decides by its own row alone, and needs no lock but that.
        counted = await self._server.fetch_row(COUNT_SPAWN, (parent_id, most))
        if counted is not None:
            return int(counted[0])
        return await self._server.operate(partial(super().count_spawn, parent_id, most))

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
        deferred = self._server.deferred
        if deferred is not None:
            written = None if limits is None else as_json(limits)
            hashed = None if token is None else sha256(token.encode()).hexdigest()
            owned = (*columns(owner or current_process()), *new_lease())
            if deferred.defer_claim(thread_id, (*owned, owns_process, written, model, hashed)):
                return 1
        return await super().claim(
            thread_id, owner, owns_process=owns_process, token=token, limits=limits, model=model
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
        deferred = self._server.deferred
        if deferred is not None and fence is not None:
            cost, is_estimated = (None, None) if snapshot is None else cost_array(snapshot)
            at = head or (None, None)
            end = (fence, status, as_json(result), *at, cost, is_estimated)
            if deferred.defer_end(thread_id, end):
                return
        await super().settle(thread_id, status, result, fence=fence, head=head, snapshot=snapshot)


def cost_array(cost: Cost) -> tuple[list[int], bool]:
    """Return a cost as stored functions take it: its numbers, and whether it is an estimate."""
    numbers = [
        cost.turns,
        cost.input_tokens,
        cost.output_tokens,
        cost.spend_microcents,
        cost.cached_tokens,
        cost.unpriced,
        cost.cache_saved_microcents,
    ]
    return numbers, cost.estimated
