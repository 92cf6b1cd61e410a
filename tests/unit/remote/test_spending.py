"""What a run on a node may spend, in a real ledger."""

from pathlib import Path

import pytest

from ryecore.policy.budget import Amount
from ryecore.remote.spending import RemoteSpending
from ryecore.state.model import Cost
from ryecore.state.store import ThreadStore

pytestmark = pytest.mark.anyio

CEILING = Amount(1_000, 500)


async def begun(store: ThreadStore, run_id: str) -> tuple[RemoteSpending, int]:
    await store.registry.register(run_id, "directive:acme/x")
    await store.ledger.register(run_id, CEILING)
    fence = await store.registry.claim(run_id)
    spending = RemoteSpending(run_id, store.ledger, CEILING)
    await spending.hold()
    await spending.hold()  # a follower that takes over holds it again
    return spending, fence


@pytest.mark.parametrize(
    ("reported", "assumed", "spent", "marks"),
    [
        (Cost(1, 20, 10, 300), False, Amount(300, 30), ["counted"]),
        (Cost(1, 20, 10, 300), True, Amount(300, 30), ["assumed"]),
        (Cost(9, 600, 10, 1_300), False, Amount(1_300, 610), ["counted"]),
        (None, False, CEILING, ["assumed"]),
    ],
)
async def test_what_the_node_reports_is_charged_and_all_of_it_without_a_report(
    tmp_path: Path, reported: Cost | None, assumed: bool, spent: Amount, marks: list[str]
) -> None:
    (user := tmp_path / "user").mkdir()
    store = ThreadStore.open(tmp_path / "project/.ai", user)
    spending, fence = await begun(store, "acme/x")
    assert (await store.ledger.remaining("acme/x")) == Amount(0, 0)
    if reported is not None:
        spending.report(reported, assumed=assumed)
    unwritten = spending.waiting()
    await unwritten.write(store.ledger)
    await store.registry.settle("acme/x", "completed", {}, fence=fence)
    assert (await store.ledger.account("acme/x")).own == spent
    assert [one.mark for one in await store.ledger.charges("acme/x")] == marks
    store.close()


async def test_a_refused_run_costs_nothing(tmp_path: Path) -> None:
    (user := tmp_path / "user").mkdir()
    store = ThreadStore.open(tmp_path / "project/.ai", user)
    spending, fence = await begun(store, "acme/x")
    spending.free()
    await spending.settle_unwritten()
    await store.registry.settle("acme/x", "error", {}, fence=fence)
    assert (await store.ledger.account("acme/x")).own == Amount(0, 0)
    store.close()
