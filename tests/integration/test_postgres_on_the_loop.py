"""Statements on a PostgreSQL server that the event loop awaits, without worker threads."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from ryecore.errors import BudgetError, StateError, StateUnreachable, ThreadConflict
from ryecore.items.signature import utc_now
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.model import Cost
from ryecore.state.owners import LEASE_S
from ryecore.state.record_log import RecordLog
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile
from tests.postgres import needs_server
from tests.workspace import Workspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, pytest.mark.both_loops, needs_server]

HELD, SPENT = Amount(10, 10), Amount(4, 5)


async def begun(store: ThreadStore, thread_id: str) -> RecordLog:
    """Begin a thread as its lifecycle does, and return its log, which has a record to write."""
    registry, ledger = store.registry, store.ledger

    async def claim() -> None:
        await ledger.register(thread_id, Amount(1000, 1000))
        await registry.claim(thread_id)

    await registry.register(thread_id, "directive:acme/a")
    await registry.together(claim, tree=thread_id)
    now = utc_now()
    file = (thread_id, "directive:acme/a", "acme/a", "f" * 64, "running", now, now, None, {}, ())
    log = await store.open_log(ThreadFile(*file))
    log.append("step", {"n": 0})
    await log.write_ahead()
    return log


async def run_to_end(store: ThreadStore, thread_id: str) -> None:
    """Write what a thread of two turns writes, with a call that has an effect between them."""
    log = await begun(store, thread_id)
    await store.ledger.hold(thread_id, 1, 1, HELD)
    log.append("step", {"n": 1})
    await log.commit()
    settled = Settlement(1, 1, HELD, SPENT, "counted")
    log.append("step", {"n": 2})
    await log.write_ahead()
    await store.ledger.settle_and_hold(
        thread_id, [settled], 2, 1, HELD, snapshot=Cost(turns=1), head=(1, "x")
    )
    assert (await store.ledger.account(thread_id)).own == SPENT
    head = await log.sign(2)
    await log.write_ahead(closes=True)

    async def charge() -> None:
        await store.ledger.settle(thread_id, 2, 1, SPENT)

    place = (head.offset, head.digest)
    await store.settle(thread_id, "completed", {}, 1, head=place, charge=charge)
    await log.close()


async def test_a_thread_whose_statements_are_prepared_asks_no_worker_thread(
    store: ThreadStore,
) -> None:
    await run_to_end(store, "before")

    def on_another_loop() -> set[threading.Thread]:
        before = set(threading.enumerate())

        async def main() -> set[threading.Thread]:
            await run_to_end(store, "a")
            return {one for one in threading.enumerate() if "AnyIO worker" in one.name} - before

        return anyio.run(main)

    assert not await anyio.to_thread.run_sync(on_another_loop)
    assert [one.payload.get("n") async for one in store.records.read("a")] == [0, 1, 2, None]


async def test_a_statement_is_done_though_its_caller_is_cancelled(
    store: ThreadStore, other: Any, anyio_backend_name: str
) -> None:
    await run_to_end(store, "before")
    log, ledger = await begun(store, "a"), store.ledger
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    kept = []

    @asynccontextmanager
    async def waits_for_the_server() -> AsyncIterator[None]:
        with other.transaction():
            other.execute("UPDATE accounts SET spend_own = spend_own")
            yield
            with anyio.fail_after(10):
                while other.execute(waiting).fetchone() == (0,):
                    await anyio.sleep(0.01)

    async def hold_in(scope: anyio.CancelScope, attempt: int) -> None:
        with scope:
            await ledger.hold("a", 1, attempt, HELD)

    async def cancel_scope(attempt: int) -> None:
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            async with waits_for_the_server():
                group.start_soon(hold_in, scope, attempt)
            scope.cancel()

    async def cancel_task(attempt: int) -> None:  # which passes a shield
        async with waits_for_the_server():
            task = asyncio.create_task(ledger.hold("a", 1, attempt, HELD))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    is_asyncio = anyio_backend_name == "asyncio"
    ways = [cancel_scope, cancel_task] * 2 if is_asyncio else [cancel_scope] * 2
    for attempt, cancel in enumerate(ways, 1):
        log.append("step", {"n": attempt})
        await log.write_ahead()
        await cancel(attempt)
        kept.append(attempt)
        assert (await ledger.account("a")).held == Amount(10 * attempt, 10 * attempt)
    head = await log.checkpoint(1)
    told = [one.payload.get("n") async for one in store.records.read("a")]
    assert told == [0, *kept, None]
    await log.close()
    assert (await store.records.verify("a", (head.offset, head.digest), ended=True)).ok


async def test_what_is_refused_on_the_loop_is_undone_with_the_records_before_it(
    store: ThreadStore, other: Any
) -> None:
    await run_to_end(store, "before")
    log = await begun(store, "a")
    with pytest.raises(BudgetError):
        await store.ledger.hold("a", 1, 1, Amount(2000, 10))
    await store.ledger.hold("a", 1, 1, HELD)
    log.append("step", {"n": 1})
    await log.commit()
    assert [one.payload["n"] async for one in store.records.read("a")] == [0, 1]
    other.execute("UPDATE logs SET fence = fence + 1 WHERE thread_id = 'a'")
    log.append("step", {"n": 2})
    with pytest.raises(ThreadConflict, match="taken it over"):
        await log.commit()
    await log.write_ahead()
    with pytest.raises(ThreadConflict, match="taken it over"):
        await store.ledger.hold("a", 2, 1, HELD)
    assert (await store.ledger.account("a")).held == HELD


async def test_threads_that_another_process_takes_over_at_once_are_each_refused(
    store: ThreadStore, other: Any
) -> None:
    async def commit(log: RecordLog) -> None:
        with pytest.raises(ThreadConflict, match="taken it over"):
            await log.commit()

    logs = [await begun(store, f"taken-{number}") for number in range(30)]
    async with anyio.create_task_group() as group:  # so that each connection has it prepared
        for log in logs:
            group.start_soon(log.commit)
    for log in logs:
        log.append("step", {"n": 1})
    async with anyio.create_task_group() as group:
        for log in logs:
            group.start_soon(log.commit)
    other.execute("UPDATE logs SET fence = fence + 1")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for log in logs:
                log.append("step", {"n": 2})
                group.start_soon(commit, log)


async def test_what_the_server_refuses_to_commit_is_an_error(
    store: ThreadStore, other: Any
) -> None:
    """The answer to a statement comes before that to its commit."""
    await run_to_end(store, "before")
    log = await begun(store, "a")
    other.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'refused at commit'; END $$;"
        " CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON accounts DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    with pytest.raises(StateError, match="refused at commit"):
        await store.ledger.hold("a", 1, 1, HELD)
    other.execute("DROP TRIGGER late ON accounts")
    await log.commit()
    assert (await store.ledger.account("a")).held == Amount(0, 0)
    assert [one.payload["n"] async for one in store.records.read("a")] == [0]


async def test_a_statement_that_takes_longer_than_the_server_allows_is_undone(
    workspace: Workspace, state: str, other: Any
) -> None:
    address = f"{state}&options=-c%20statement_timeout%3D200"
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=address)
    await run_to_end(store, "before")
    log = await begun(store, "a")
    with other.transaction():
        other.execute("UPDATE accounts SET spend_own = spend_own")
        with pytest.raises(StateUnreachable, match="Another process may write"):
            await store.ledger.hold("a", 1, 1, HELD)
    await store.ledger.hold("a", 1, 1, HELD)
    await log.commit()
    assert (await store.ledger.account("a")).held == HELD
    assert [one.payload["n"] async for one in store.records.read("a")] == [0]
    store.close()


async def test_more_threads_than_connections_wait_for_each_other(
    workspace: Workspace, state: str, other: Any
) -> None:
    address = f"{state}&application_name=counted"
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=address)
    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(run_to_end, store, f"many-{number}")
    ended = "SELECT count(*) FROM threads WHERE status = 'completed'"
    assert other.execute(ended).fetchone() == (30,)
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
    assert 1 <= other.execute(mine).fetchone()[0] <= 8
    store.close()


async def test_rows_are_read_though_their_table_has_got_another_column(
    store: ThreadStore, other: Any
) -> None:
    await begun(store, "one")
    for number in range(3):
        assert (await store.registry.get_thread("one")).status == "running"
        other.execute(f"ALTER TABLE threads ADD COLUMN later_{number} bigint DEFAULT 7")
    lease = (await store.registry.get_thread("one")).lease_until
    assert abs(lease - time.time() - LEASE_S) < 5  # by this machine's clock


async def test_rows_are_changed_though_their_table_has_got_another_column(
    store: ThreadStore, other: Any
) -> None:
    async def stop(thread_id: str) -> None:
        await store.registry.register(thread_id, "directive:acme/a")
        await store.registry.request_cancel(thread_id)
        await store.settle(thread_id, "cancelled", {}, 0)

    for number in range(6):  # from its fifth use on, the driver prepares a statement
        await stop(f"before-{number}")
    other.execute("ALTER TABLE threads ADD COLUMN later bigint DEFAULT 7")
    await stop("after")
    assert (await store.registry.get_thread("after")).status == "cancelled"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.filterwarnings("ignore")  # of what was left in the event loop
async def test_connections_of_an_event_loop_that_was_closed_under_its_statements_are_closed(
    workspace: Workspace, state: str, other: Any
) -> None:
    address = f"{state}&application_name=abandoned"
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=address)
    await run_to_end(store, "before")
    await begun(store, "a")
    hold = store.ledger.hold
    async with anyio.create_task_group() as group:  # so that there are connections
        for number in range(20):
            group.start_soon(hold, "a", 1, number, HELD)

    def run() -> None:
        loop = asyncio.new_event_loop()
        waiting = [loop.create_task(hold("a", 2, number, HELD)) for number in range(12)]
        loop.run_until_complete(asyncio.sleep(0.1))
        assert not any(one.done() for one in waiting)
        loop.close()

    with other.transaction():
        other.execute("UPDATE accounts SET spend_own = spend_own")
        await anyio.to_thread.run_sync(run)
        gc.collect()
    store.close()
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'abandoned'"
    with anyio.fail_after(10):
        while other.execute(mine).fetchone() != (0,):
            await anyio.sleep(0.01)
