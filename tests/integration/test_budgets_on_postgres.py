"""Budgets on a PostgreSQL server: eight processes spend from one parent, and every sum is exact."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.model import Cost
from ryecore.state.store import ThreadStore
from ryecore.testing.conformance.bench import equal
from ryecore.testing.state.bench import Place, StateCases, StateStore
from tests.matrix import IS_SOAK
from tests.postgres import needs_server

pytestmark = [pytest.mark.anyio, needs_server]

SECONDS = 60.0 if IS_SOAK else 0.5
ITEM, ROOT = "directive:acme/x", "root"
HELD, SPENT, CHILDS = Amount(50, 7), Amount(30, 5), Amount(400, 100)


class _Cases(StateCases):
    def __init__(self, state: str) -> None:
        self.state = state

    @asynccontextmanager
    async def open_store(self, place: Path) -> AsyncGenerator[StateStore, None]:
        store = ThreadStore.open(place / "project/.ai", place / "user/.ai", state=self.state)
        try:
            yield store
        finally:
            store.close()


async def _spend(store: StateStore, number: int) -> int:
    """Start children, which take turns and end, and spend from the parent itself meanwhile."""
    registry, ledger = store.registry, store.ledger
    settled, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        child = f"c-{number}-{settled}"
        await registry.register(child, ITEM, ROOT)
        try:
            await ledger.reserve(child, ROOT, CHILDS, reserves_spend=True, reserves_tokens=True)
            await ledger.hold(ROOT, number, settled, HELD)
        except InsufficientBudget:
            break
        fence = await registry.claim(child)
        await ledger.hold(child, 1, 1, HELD, head=(1, "ab" * 32))
        for turn in range(1, 4):
            held = Settlement(turn, 1, HELD, SPENT, "counted")
            snapshot, head = Cost(turns=turn), (turn, "ab" * 32)
            _, refused = await ledger.settle_and_hold(
                child, [held], turn + 1, 1, HELD, snapshot=snapshot, head=head
            )
            assert refused is None
        await ledger.settle(child, 4, 1, SPENT)
        await ledger.settle(ROOT, number, settled, SPENT)
        await registry.settle(child, "completed", {}, fence=fence)
        settled += 5
    return settled


async def test_eight_processes_on_one_parent_leave_exact_sums(
    tmp_path: Path, postgres_address: str
) -> None:
    cases = _Cases(f"{postgres_address}&schema=budgets_{tmp_path.name[-8:].strip('_').lower()}")
    place = Place(cases, tmp_path, "asyncio")
    async with place.open() as store:
        await store.registry.register(ROOT, ITEM)
        await store.ledger.register(ROOT, Amount(2**40, 2**40))
        settled = sum(await place.race(_spend))
        account = await store.ledger.account(ROOT)
        equal(account.own, Amount(30 * settled // 5, settled), "what the parent has spent itself")
        equal(account.children, Amount(24 * settled, 4 * settled), "what its children have spent")
        equal((account.held, account.reserved), (Amount(), Amount()), "what is left open")
        tree = await store.ledger.tree(ROOT)
        equal(tree.spent, Amount(30 * settled, 5 * settled), "the sum of the tree")
        assert settled
