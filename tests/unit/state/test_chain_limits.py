"""A thread that goes on gets what the one before it has left, and nothing that is set aside."""

from decimal import Decimal
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import Amount
from ryecore.policy.limits import Limits
from ryecore.state.chain_limits import limit_along_chain
from ryecore.state.model import ContinuationLimits, Cost, Predecessor
from ryecore.state.waiting import run_blocking
from tests.unit.state.test_sql_ledger import Books

BOUNDS = Limits(turns=4, spawns=3, depth=2, tokens=100, spend_usd="0.000001", duration_s=60)


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def held_on(books: Books, thread_id: str, left: int) -> int:
    """Hold as much as goes, a unit at a time."""
    for turn in range(1, left + 1):
        try:
            run_blocking(books.ledger.hold(thread_id, 100 + turn, 1, Amount(1, 1)))
        except InsufficientBudget:
            return turn - 1
    return left


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("aside", [True, False], ids=["reserves", "shares"])
def test_what_children_that_still_run_have_is_not_handed_over(
    books: Books, aside: bool, is_root: bool
) -> None:
    if is_root:
        books.root("old", 100, 100)
    else:
        books.root("root", 500, 500)
        books.child("old", "root", 100, 100, spend_aside=True, tokens_aside=True)
    books.child("child", "old", 60, 60, spend_aside=aside, tokens_aside=aside)
    books.spend("old", 1, 5, 5)
    books.spend("child", 1, 10, 10)
    run_blocking(books.ledger.hold("child", 2, 1, Amount(20, 20)))
    run_blocking(books.registry.register("new", "directive:x", None if is_root else "root"))

    granted = run_blocking(books.ledger.transfer("old", "new"))

    left = 100 - 5 - 60 if aside else 100 - 5 - 10 - 20
    assert granted == Amount(left, left)
    held = 5 + 10 + 20 + held_on(books, "child", 100) + held_on(books, "new", 100)
    assert held == 100
    assert (
        run_blocking(books.ledger.transfer("old", "new")) == granted
    )  # said again, it is the same


def carried(books: Books, thread_id: str, previous_id: str, **more: object) -> Limits:
    given = ContinuationLimits(previous_id, BOUNDS, Decimal(10), evolve(BOUNDS, turns=25), **more)  # type: ignore[arg-type]
    with books.registry._database.write() as run:
        return limit_along_chain(run, thread_id, given)


def following(books: Books, thread_id: str, previous_id: str, *, forks: bool = False) -> str:
    root = None if forks else "first"
    run_blocking(
        books.registry.register(thread_id, "directive:x", follows=Predecessor(previous_id, root))
    )
    return thread_id


def used(books: Books, thread_id: str, turns: int, spend: int, tokens: int) -> None:
    books.spend(thread_id, 1, spend, tokens)
    run_blocking(books.registry.set_cost(thread_id, Cost(turns, tokens, 0, spend)))


def test_what_is_left_is_what_the_whole_chain_has_not_used(books: Books) -> None:
    books.root("first", 100, 100)
    used(books, "first", 1, 30, 20)
    run_blocking(books.registry.count_spawn("first", 3))
    run_blocking(books.registry.settle("first", "completed", {}))

    limits = carried(books, following(books, "second", "first"), "first")
    assert limits == Limits(
        turns=3, spawns=2, depth=2, tokens=80, spend_usd="0.0000007", duration_s=50
    )
    # It runs: all that it was granted counts for others that go on from the same thread.
    beside = carried(books, following(books, "beside", "first"), "first")
    assert (beside.turns, beside.spawns, beside.tokens, beside.spend_usd) == (0, 0, 0, 0)

    run_blocking(books.registry.settle("beside", "error", {}))
    run_blocking(books.ledger.register("second", Amount(70, 80)))
    used(books, "second", 1, 10, 10)
    run_blocking(books.registry.settle("second", "completed", {}))
    third = carried(books, following(books, "third", "first"), "first")
    assert (third.turns, third.spawns, third.tokens) == (2, 2, 70)  # what the second left counts
    assert third.spend_microcents == 60


def test_a_fork_counts_for_itself(books: Books) -> None:
    books.root("first", 100, 100)
    used(books, "first", 1, 30, 20)
    run_blocking(books.registry.settle("first", "completed", {}))
    following(books, "fork", "first", forks=True)
    run_blocking(books.ledger.register("fork", Amount(100, 100)))
    used(books, "fork", 3, 90, 90)

    assert carried(books, following(books, "second", "first"), "first").turns == 3


def test_what_the_host_sets_anew_counts_from_zero(books: Books) -> None:
    books.root("first", 100, 100)
    used(books, "first", 4, 100, 20)
    run_blocking(books.registry.settle("first", "error", {}))

    renewed = Limits(turns=9)
    limits = carried(books, following(books, "second", "first"), "first", renewed=renewed)
    assert (limits.turns, limits.tokens, limits.spend_microcents) == (9, 80, 0)


def test_who_shares_an_account_that_has_ended_gets_nothing_that_is_granted_on(
    books: Books,
) -> None:
    books.root("first", 100, 100)
    books.child("child", "first")
    books.spend("child", 1, 10, 10)
    run_blocking(
        books.registry.settle("first", "killed", {})
    )  # its child, in another process, runs still

    limits = carried(books, following(books, "second", "first"), "first")
    assert (limits.spend_microcents, limits.tokens) == (90, 90)
    assert held_on(books, "child", 5) == 0
