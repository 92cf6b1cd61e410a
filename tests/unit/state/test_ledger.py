"""The budget ledger: what it holds, charges, sets aside and refuses."""

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore.errors import (
    BudgetError,
    BudgetNotRegistered,
    InsufficientBudget,
    LimitReached,
    ThreadConflict,
    ThreadNotFound,
)
from ryecore.policy.budget import Amount, TreeSum
from ryecore.state.database import Database
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost
from ryecore.state.owners import moment
from ryecore.state.registry import MIGRATIONS, ThreadRegistry
from tests.unit.state.test_registry import dead_process


class Books:
    """A registry and a ledger, with shorter ways to fill them."""

    def __init__(self, folder: Path) -> None:
        database = Database(folder / "threads.db", MIGRATIONS)
        self.registry = ThreadRegistry(database)
        self.ledger = BudgetLedger(database)

    def root(self, thread_id: str, spend: int, tokens: int) -> None:
        self.registry.register(thread_id, "directive:x")
        self.ledger.register(thread_id, Amount(spend, tokens))

    def child(
        self,
        thread_id: str,
        parent_id: str,
        spend: int = 10**6,
        tokens: int = 10**6,
        *,
        spend_aside: bool = False,
        tokens_aside: bool = False,
    ) -> Amount:
        self.registry.register(thread_id, "directive:x", parent_id)
        return self.ledger.reserve(
            thread_id,
            parent_id,
            Amount(spend, tokens),
            reserves_spend=spend_aside,
            reserves_tokens=tokens_aside,
        )

    def spend(self, thread_id: str, turn: int, spend: int, tokens: int) -> None:
        self.ledger.hold(thread_id, turn, 1, Amount(spend, tokens))
        self.ledger.settle(thread_id, turn, 1, Amount(spend, tokens))


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def test_a_thread_that_was_stopped_before_it_began_is_given_no_budget(tmp_path: Path) -> None:
    books = Books(tmp_path)
    books.root("root", 100, 100)
    books.registry.register("root-2", "directive:x")
    books.registry.register("child", "directive:x", "root")
    for thread_id in ("root-2", "child"):
        books.registry.settle(thread_id, "cancelled", {})
    with pytest.raises(ThreadConflict, match="cancelled"):
        books.ledger.register("root-2", Amount(5, 5))
    with pytest.raises(ThreadConflict, match="cancelled"):
        books.ledger.reserve(
            "child", "root", Amount(5, 5), reserves_spend=True, reserves_tokens=True
        )
    assert books.ledger.account("root").reserved == Amount(0, 0)  # nobody would give it back


def test_a_root_spends_what_it_holds_and_is_recorded(books: Books) -> None:
    books.root("r", 100, 1000)
    books.ledger.register("r", Amount(5, 5))  # once is enough
    books.ledger.hold("r", 1, 1, Amount(60, 500))
    books.ledger.hold("r", 1, 1, Amount(60, 500))
    account = books.ledger.account("r")
    assert (account.held, account.available) == (Amount(60, 500), Amount(40, 500))
    settled = books.ledger.settle("r", 1, 1, Amount(30, 100))
    assert (settled.overspent, settled.cancel_requested, settled.stopped) == (False,) * 3
    assert books.ledger.settle("r", 1, 1, Amount(99, 99)) == settled  # and so is one settlement
    account = books.ledger.account("r")
    assert (account.own, account.held) == (Amount(30, 100), Amount())
    assert books.ledger.remaining("r") == Amount(70, 900)
    books.ledger.release("r", "completed")
    books.ledger.release("r", "error")
    assert books.ledger.account("r").state == "completed"
    assert books.ledger.tree("r") == TreeSum(Amount(30, 100), Amount(), 1)


@pytest.mark.parametrize(
    ("wanted", "dimension"), [(Amount(101, 1), "spend"), (Amount(1, 1001), "tokens")]
)
def test_a_hold_above_what_is_left_is_refused_and_leaves_nothing(
    books: Books, wanted: Amount, dimension: str
) -> None:
    books.root("r", 100, 1000)
    books.child("c", "r")
    before = books.ledger.account("c"), books.ledger.account("r")
    with pytest.raises(InsufficientBudget) as caught:
        books.ledger.hold("c", 1, 1, wanted, head=(7, "digest"))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.account, error.dimension, error.reason) == ("c", dimension, "exhausted")
    assert (error.remaining, error.requested) == (Amount(100, 1000), wanted)
    assert (books.ledger.account("c"), books.ledger.account("r")) == before
    assert books.ledger.charges("c") == ()
    assert books.registry.get_thread("c").transcript_head is None
    books.ledger.hold("c", 1, 1, Amount(100, 1000))  # the last of it is not too much


def test_a_hold_is_placed_up_to_the_nearest_that_reserved(books: Books) -> None:
    books.root("r", 1000, 1000)
    books.child("a", "r", 400, 5000, spend_aside=True)  # its tokens are the root's
    assert books.child("b", "a", 100, 50, tokens_aside=True) == Amount(100, 50)
    books.ledger.hold("b", 1, 1, Amount(30, 20))
    held = [books.ledger.account(one).held for one in ("b", "a", "r")]
    assert held == [Amount(30, 20), Amount(30, 0), Amount(0, 0)]
    reserved = [books.ledger.account(one).reserved for one in ("b", "a", "r")]
    assert reserved == [Amount(0, 0), Amount(0, 50), Amount(400, 50)]
    assert books.ledger.tree("r").held == Amount(30, 20)


def test_a_sibling_that_shares_leaves_less(books: Books) -> None:
    books.root("r", 100, 100)
    books.child("one", "r")
    books.child("two", "r")
    books.ledger.hold("one", 1, 1, Amount(80, 10))
    assert books.ledger.remaining("two") == Amount(20, 90)
    with pytest.raises(InsufficientBudget) as caught:
        books.ledger.hold("two", 1, 1, Amount(21, 1))
    assert (caught.value.account, caught.value.remaining) == ("r", Amount(20, 90))


def test_a_reservation_is_capped_by_what_is_left_and_given_back(books: Books) -> None:
    books.root("r", 100, 100)
    assert books.child("a", "r", 70, 100, spend_aside=True) == Amount(70, 100)
    assert books.child("b", "r", 70, 100, spend_aside=True) == Amount(30, 100)
    again = books.ledger.reserve("b", "r", Amount(5, 5), reserves_spend=True, reserves_tokens=False)
    assert again == Amount(30, 100)
    assert books.ledger.account("r").reserved == Amount(100, 0)
    with pytest.raises(InsufficientBudget, match=r"the thread r has \$0\.00000000 left"):
        books.child("c", "r", 1, 1, spend_aside=True)
    with pytest.raises(InsufficientBudget):  # nor is there anything to share
        books.child("d", "r", 1, 1)
    with pytest.raises(BudgetNotRegistered):
        books.ledger.account("c")
    books.spend("a", 1, 20, 1)
    books.ledger.release("a", "completed")
    account = books.ledger.account("r")
    assert (account.children, account.reserved) == (Amount(20, 1), Amount(30, 0))
    assert account.available == Amount(50, 99)


def test_on_what_costs_nothing_a_child_may_share_a_ceiling_of_nothing(books: Books) -> None:
    books.root("r", 0, 100)
    assert books.child("c", "r") == Amount(0, 100)
    books.spend("c", 1, 0, 100)
    with pytest.raises(InsufficientBudget):
        books.ledger.hold("c", 2, 1, Amount(1, 0))
    with pytest.raises(InsufficientBudget):
        books.child("d", "r", 1, 0, spend_aside=True)


def test_three_levels_cascade_to_the_root_exactly(books: Books) -> None:
    """A child's own report never overwrites what came up from below it."""
    books.root("root", 1000, 1000)
    books.child("child", "root", 500, 500, spend_aside=True, tokens_aside=True)
    books.child("grandchild", "child", 300, 300, spend_aside=True, tokens_aside=True)
    books.spend("root", 1, 25, 1)
    books.spend("child", 1, 10, 2)
    books.spend("grandchild", 1, 15, 4)
    for one, own in (("grandchild", Amount(15, 4)), ("child", Amount(10, 2))):
        for _ in range(2):
            books.ledger.report_actual(one, own)
            books.ledger.cascade_spend(one)
        for _ in range(2):
            books.ledger.release(one, "completed")
    root = books.ledger.account("root")
    assert (root.own, root.children, root.reserved) == (Amount(25, 1), Amount(25, 6), Amount())
    assert books.ledger.account("child").total == Amount(25, 6)
    assert books.ledger.tree("root") == TreeSum(Amount(50, 7), Amount(), 3)


def test_a_report_raises_and_never_lowers(books: Books) -> None:
    books.root("r", 100, 100)
    books.child("c", "r")
    books.spend("c", 1, 20, 20)
    books.ledger.report_actual("c", Amount(25, 5))
    books.ledger.report_actual("c", Amount(1, 1))
    assert books.ledger.account("c").own == Amount(25, 20)
    assert books.ledger.account("r").children == Amount(25, 20)


def test_an_overspend_is_recorded_in_full_and_stops_the_subtree(books: Books) -> None:
    books.root("r", 100, 100)
    books.child("a", "r", 50, 50, spend_aside=True)
    books.child("b", "a")
    books.child("beside", "r")
    books.ledger.hold("a", 1, 1, Amount(10, 10))
    settled = books.ledger.settle("a", 1, 1, Amount(10, 70))
    assert settled.overspent
    assert settled.stopped
    assert books.ledger.settle("a", 1, 1, Amount(10, 70)) == settled
    assert books.ledger.account("a").own == Amount(10, 70)
    assert books.ledger.account("r").children == Amount(0, 70)
    for stopped in ("a", "b"):
        assert books.ledger.account(stopped).stopped
        assert books.ledger.remaining(stopped) == Amount()
        with pytest.raises(InsufficientBudget, match="cost more than was held") as caught:
            books.ledger.hold(stopped, 9, 1, Amount())
        assert caught.value.reason == "stopped"
        with pytest.raises(InsufficientBudget):
            books.child(f"below {stopped}", stopped)
    books.ledger.hold("beside", 1, 1, Amount(1, 30))
    books.ledger.release("a", "error")
    books.ledger.release("beside", "completed")
    assert books.ledger.tree("r").spent == Amount(11, 100)
    assert books.ledger.account("r").total == Amount(11, 100)


def test_what_never_left_costs_nothing(books: Books) -> None:
    books.root("r", 100, 100)
    books.ledger.hold("r", 1, 1, Amount(60, 60))
    books.ledger.free("r", 1, 1)
    books.ledger.free("r", 1, 1)
    assert books.ledger.account("r").available == Amount(100, 100)
    assert [one.mark for one in books.ledger.charges("r")] == ["freed"]
    books.spend("r", 2, 1, 1)
    with pytest.raises(BudgetError, match="was settled already"):
        books.ledger.free("r", 2, 1)
    with pytest.raises(BudgetError, match="Nothing was held"):
        books.ledger.free("r", 3, 1)
    books.ledger.settle("r", 1, 1, Amount(5, 5))  # it did leave, after all
    assert books.ledger.account("r").own == Amount(6, 6)


def test_a_try_is_charged_once(books: Books) -> None:
    books.root("r", 100, 100)
    books.spend("r", 1, 1, 1)
    with pytest.raises(BudgetError, match="has a charge already"):
        books.ledger.hold("r", 1, 1, Amount(1, 1))
    books.ledger.hold("r", 1, 2, Amount(2, 2))
    with pytest.raises(BudgetError, match="has a charge already"):
        books.ledger.hold("r", 1, 2, Amount(3, 3))
    with pytest.raises(BudgetError, match="Nothing was held"):
        books.ledger.settle("r", 1, 3, Amount(1, 1))


def test_the_holds_of_the_dead_are_charged_in_full_and_corrected_late(books: Books) -> None:
    books.root("r", 1000, 1000)
    books.registry.claim("r")
    books.child("a", "r", 500, 500, spend_aside=True, tokens_aside=True)
    books.child("b", "a", 400, 400, spend_aside=True)
    for one in ("a", "b"):
        books.registry.claim(one, dead_process())
    books.ledger.hold("b", 1, 1, Amount(50, 60))
    books.ledger.hold("a", 1, 1, Amount(5, 6))
    ended = books.registry.settle_abandoned(books.registry.list_active())
    assert sorted(ended) == ["a", "b"]
    root = books.ledger.account("r")
    assert (root.children, root.held, root.reserved) == (Amount(55, 66), Amount(), Amount())
    assert [one.mark for one in books.ledger.charges("b")] == ["assumed"]
    settled = books.ledger.settle("b", 1, 1, Amount(20, 10), mark="estimated")
    assert settled.cancel_requested  # somebody declared it dead: it must not go on
    assert not settled.overspent
    books.ledger.settle("b", 1, 1, Amount(20, 10))
    assert books.ledger.account("r").total == Amount(25, 16)
    assert books.ledger.account("a").children == Amount(20, 10)
    assert books.ledger.tree("r") == TreeSum(Amount(25, 16), Amount(), 3)
    with pytest.raises(InsufficientBudget) as caught:
        books.ledger.hold("b", 2, 1, Amount(1, 1))
    assert caught.value.reason == "released"


@pytest.mark.parametrize("parents_first", [True, False])
def test_a_child_that_outlives_its_parent_stays_within_the_root(
    books: Books, parents_first: bool
) -> None:
    books.root("r", 100, 100)
    books.child("a", "r", 60, 60, spend_aside=True, tokens_aside=True)
    books.child("shares", "a")
    books.child("reserves", "a", 30, 30, spend_aside=True, tokens_aside=True)
    books.ledger.hold("shares", 1, 1, Amount(10, 10))
    order = ["a", "shares", "reserves"]
    books.ledger.release("a", "completed")
    root = books.ledger.account("r")
    assert (root.held, root.reserved) == (Amount(10, 10), Amount(30, 30))
    books.child("late", "r", 100, 100, spend_aside=True, tokens_aside=True)  # all that is left
    assert books.ledger.account("late").ceiling == Amount(60, 60)
    with pytest.raises(InsufficientBudget):
        books.ledger.hold("shares", 2, 1, Amount(1, 1))
    books.spend("reserves", 1, 30, 30)
    for one in order if parents_first else reversed(order):
        books.ledger.release(one, "completed")
    root = books.ledger.account("r")
    assert (root.children, root.held, root.reserved) == (
        Amount(40, 40), Amount(), Amount(60, 60),
    )  # fmt: skip


def test_whatever_ends_a_thread_closes_its_account(books: Books) -> None:
    books.root("r", 100, 100)
    ways: dict[str, Callable[[str], object]] = {
        "settled": lambda one: books.registry.settle(one, "completed", {}),
        "marked": lambda one: books.registry.update_status(one, "cancelled"),
        "continued": lambda one: books.registry.set_continuation(one, "r"),
    }
    for name, end in ways.items():
        books.child(name, "r", 10, 10, spend_aside=True)
        books.ledger.hold(name, 1, 1, Amount(1, 1))
        end(name)
        assert books.ledger.account(name).state == books.registry.get_thread(name).status
    assert books.ledger.account("r").total == Amount(3, 3)
    assert books.ledger.account("r").available == Amount(97, 97)


def test_hold_and_settle_keep_the_threads_row(books: Books) -> None:
    books.root("r", 100, 100)
    books.registry.claim("r")
    with books.registry._database.write() as run:
        run.execute("UPDATE threads SET lease_until = 0, lease_machine_s = 0")
    books.ledger.hold("r", 1, 1, Amount(5, 5), head=(512, "abc"))
    record = books.registry.get_thread("r")
    assert record.lease_until > moment().unix_s
    assert record.lease_machine_s > moment().machine_s
    assert record.transcript_head == (512, "abc")
    books.ledger.hold("r", 1, 2, Amount(5, 5))  # without a head the last one stays
    assert books.registry.get_thread("r").transcript_head == (512, "abc")
    books.registry.request_cancel("r")
    cost = Cost(1, 2, 3, 4)
    assert books.ledger.settle("r", 1, 2, Amount(1, 1), snapshot=cost).cancel_requested
    assert books.registry.get_thread("r").cost == cost


def test_who_has_no_account_or_another_one(books: Books) -> None:
    books.root("r", 100, 100)
    books.root("other", 100, 100)
    books.registry.register("bare", "directive:x", "r")
    calls: list[Callable[[str], object]] = [
        books.ledger.account,
        books.ledger.remaining,
        books.ledger.tree,
        books.ledger.cascade_spend,
        lambda one: books.ledger.release(one, "error"),
        lambda one: books.ledger.report_actual(one, Amount(1, 1)),
        lambda one: books.ledger.hold(one, 1, 1, Amount(1, 1)),
        lambda one: books.ledger.settle(one, 1, 1, Amount(1, 1)),
        lambda one: books.ledger.free(one, 1, 1),
        lambda one: books.child("c", one),
    ]
    for call in calls:
        with pytest.raises((BudgetNotRegistered, ThreadNotFound)):
            call("missing")
        if call is not calls[-1]:
            with pytest.raises(BudgetNotRegistered, match="The thread bare has no account"):
                call("bare")
    assert books.ledger.charges("bare") == ()
    with pytest.raises(ThreadNotFound):
        books.ledger.register("missing", Amount(1, 1))
    books.child("c", "r")
    with pytest.raises(BudgetError, match="an account already, below r"):
        books.ledger.register("c", Amount(1, 1))
    with pytest.raises(BudgetError, match="an account already"):
        books.ledger.reserve(
            "c", "other", Amount(1, 1), reserves_spend=False, reserves_tokens=False
        )
    books.registry.settle("bare", "completed", {})  # a tool's thread has none, and ends well


def test_amounts_out_of_all_proportion(books: Books) -> None:
    books.root("r", 10**40, 10**40)
    books.ledger.hold("r", 1, 1, Amount(10, 10))
    assert books.ledger.settle("r", 1, 1, Amount(10**40, 11)).overspent
    assert books.ledger.account("r").own == Amount(2**53, 11)
    with pytest.raises(ValueError, match="No amount is negative"):
        books.ledger.hold("r", 2, 1, Amount(-1, 0))


def test_spawns_are_counted_up_to_their_limit(books: Books) -> None:
    books.root("r", 1, 1)
    assert [books.registry.count_spawn("r", 2) for _ in range(2)] == [1, 2]
    with pytest.raises(LimitReached) as caught:
        books.registry.count_spawn("r", 2)
    error = caught.value
    assert (error.limit_code, error.current_value, error.current_max) == ("spawns_exceeded", 2, 2)
    assert books.registry.count_spawn("r", None) == 3
    with pytest.raises(ThreadNotFound):
        books.registry.count_spawn("missing", 2)


def test_a_tree_of_a_thousand_threads_sums_up_exactly(books: Books) -> None:
    chance = random.Random(3)
    books.root("t-0", 2**52, 2**52)
    spent, own = Amount(), {"t-0": Amount()}
    for number in range(1, 1000):
        parent, name = f"t-{chance.randrange(max(0, number - 40), number)}", f"t-{number}"
        left = books.ledger.remaining(parent).spend_microcents
        aside = left > 10**6 and chance.random() < 0.3
        books.child(name, parent, left // 3 if aside else left, 2**52, spend_aside=aside)
        held = Amount(chance.randrange(500), chance.randrange(500))
        actual = held.at_most(Amount(chance.randrange(500), chance.randrange(500)))
        books.ledger.hold(name, 1, 1, held)
        books.ledger.settle(name, 1, 1, actual)
        own[name] = actual
        spent += actual
    for name in chance.sample(list(own), len(own)):  # they end in any order
        books.ledger.release(name, "completed")
    assert books.ledger.tree("t-0") == TreeSum(spent, Amount(), 1000)
    root = books.ledger.account("t-0")
    assert (root.total, root.held, root.reserved) == (spent, Amount(), Amount())
    for name in own:
        assert books.ledger.account(name).total == books.ledger.tree(name).spent
