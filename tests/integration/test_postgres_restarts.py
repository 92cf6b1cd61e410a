"""A PostgreSQL server that ends and comes back while it is written: nothing is lost or doubled."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import anyio
import pytest
from anyio import to_thread

from ryecore.errors import StateUnreachable
from ryecore.policy.budget import Amount
from ryecore.state.model import Cost
from ryecore.state.store import ThreadStore
from tests.postgres import PostgresServer, needs_server, own_schema, running_postgres
from tests.thread_host import COST, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, needs_server]

T = TypeVar("T")

WRITERS = 4
HELD, SPENT = Amount(50, 7), Amount(30, 5)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of these tests alone, which keeps what it has committed when it crashes."""
    with running_postgres(options=("synchronous_commit=on",)) as running:
        yield running


@pytest.fixture
def state(server: PostgresServer) -> str:
    """The address of a schema of the test's own."""
    return own_schema(server.address)


def _planned(workspace: Workspace, state: str) -> PlannedWorkspace:
    workspace.environ["RYE_STATE"] = state
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["gate", {"name": "work"}], ["mark", {"text": "once"}])
    return planned


class _Writer:
    """A thread that holds, settles and records, and repeats what the server has not answered."""

    def __init__(self, store: ThreadStore, number: int) -> None:
        self.store = store
        self.thread_id = f"t-{number}"
        self.turns = 0
        self.failures: list[StateUnreachable] = []

    async def open(self) -> None:
        await self.store.registry.register(self.thread_id, "directive:acme/x")
        self.fence = await self.store.registry.claim(self.thread_id)
        await self.store.ledger.register(self.thread_id, Amount(10**9, 10**9))
        self.log = await self.store.records.create(self.thread_id)

    async def run(self) -> None:
        ledger, one = self.store.ledger, self.thread_id
        while True:
            turn = self.turns
            await self._surely(lambda turn=turn: ledger.hold(one, turn, 1, HELD, head=(turn, "x")))
            self.log.append("step", {"n": turn})
            await self._surely(self.log.commit)
            cost = Cost(turns=turn)
            await self._surely(
                lambda turn=turn, cost=cost: ledger.settle(one, turn, 1, SPENT, snapshot=cost)
            )
            if turn % 3 == 0:
                await self._surely(lambda turn=turn: self.log.checkpoint(turn))
            self.turns += 1

    async def _surely(self, write: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await write()
            except StateUnreachable as failure:
                self.failures.append(failure)
            await anyio.sleep(0.02)

    async def is_at(self, turn: int) -> None:
        while self.turns < turn:
            await anyio.sleep(0.01)


@pytest.mark.parametrize("crash", [False, True])
async def test_a_restart_under_load_loses_and_doubles_nothing(
    workspace: Workspace,
    server: PostgresServer,
    state: str,
    monkeypatch: pytest.MonkeyPatch,
    crash: bool,
) -> None:
    monkeypatch.setattr(
        "ryecore.state.postgres.pool._MAX_OUTAGE_S", 1
    )  # each writer hears that the server is away, and repeats itself
    store = ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=state)
    writers = [_Writer(store, number) for number in range(WRITERS)]
    for one in writers:
        await one.open()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for one in writers:
                group.start_soon(one.run)
            for one in writers:
                await one.is_at(5)
            await to_thread.run_sync(lambda: server.stop(crash=crash))
            for one in writers:
                while not one.failures:
                    await anyio.sleep(0.01)
            await to_thread.run_sync(server.start)
            turns = [one.turns for one in writers]
            for one, before in zip(writers, turns, strict=True):
                await one.is_at(before + 5)
            group.cancel_scope.cancel()
    for one in writers:
        assert all("psql" in failure.next_step for failure in one.failures)
        await one.log.close()
        written = [
            record.payload["n"]
            async for record in store.records.read(one.thread_id)
            if record.type == "step"
        ]
        assert written == list(range(len(written)))
        assert one.turns <= len(written) <= one.turns + 1
        assert (await store.records.verify(one.thread_id, ended=False)).ok
        account = await store.ledger.account(one.thread_id)
        charges = await store.ledger.charges(one.thread_id)
        settled = sum(charge.mark == "counted" for charge in charges)
        assert account.own == Amount(30 * settled, 5 * settled)
        assert one.turns <= settled <= len(charges) <= one.turns + 1
        assert account.held == (HELD if settled < len(charges) else Amount())
    store.close()


async def test_a_thread_goes_on_when_its_server_is_back(
    workspace: Workspace, server: PostgresServer, state: str
) -> None:
    planned = _planned(workspace, state)
    done: list[Any] = []

    async def run(rye: Any) -> None:
        done.append(await rye.execute("directive:acme/work", thread="fork"))

    with anyio.fail_after(60):
        async with planned.open() as rye:
            async with anyio.create_task_group() as group:
                group.start_soon(run, rye)
                await planned.begun("work")
                await to_thread.run_sync(lambda: server.stop(crash=True))
                planned.allow("work")
                await to_thread.run_sync(server.start)
            [ended] = await rye.threads.list(all=True)
            assert (done[0].success, ended.status) == (True, "completed")
            assert (await rye.threads.verify(ended.thread_id)).ok
            account = await rye.threads.account(ended.thread_id)
            assert (account.held, account.own.spend_microcents) == (Amount(), 3 * COST)
            assert (planned.root / "marks").read_text() == "once\n"


async def test_a_thread_whose_server_is_away_says_so_and_is_resumed_once_it_is_back(
    workspace: Workspace, server: PostgresServer, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ryecore.state.postgres.pool._MAX_OUTAGE_S", 0.1
    )  # else a server is waited for
    planned = _planned(workspace, state)
    outcome: list[Any] = []

    async def run(rye: Any) -> None:
        try:
            outcome.append(await rye.execute("directive:acme/work", thread="fork"))
        except StateUnreachable as failure:
            outcome.append(failure)

    with anyio.fail_after(60):
        async with planned.open() as rye:
            async with anyio.create_task_group() as group:
                group.start_soon(run, rye)
                await planned.begun("work")
                await to_thread.run_sync(server.stop)
                planned.allow("work")
            [failed] = outcome
            assert "can't be" in str(failed)
            await to_thread.run_sync(server.start)
        async with planned.open() as rye:  # the first one has written the end as it closed
            [ended] = await rye.threads.list(all=True)
            assert ended.status == "error"
            assert (await rye.threads.verify(ended.thread_id)).ok
            resumed = await rye.threads.resume(ended.thread_id)
            assert resumed.success
            assert (planned.root / "marks").read_text() == "once\n"
            account = await rye.threads.account(ended.thread_id)
            assert account.held == Amount()
            assert account.own.spend_microcents >= COST
