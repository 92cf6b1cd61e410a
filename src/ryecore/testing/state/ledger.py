"""Cases: what the ledger holds, charges, sets aside and refuses."""

import pickle
from decimal import Decimal

from ryecore.errors import (
    BudgetError,
    BudgetNotRegistered,
    InsufficientBudget,
    ThreadConflict,
    ThreadNotFound,
)
from ryecore.frozen import frozen
from ryecore.policy.budget import Amount, Settled, Settlement, TreeSum
from ryecore.policy.limits import Limits
from ryecore.state.model import ContinuationLimits, Cost, Predecessor
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.state.bench import (
    Place,
    StateCases,
    StateStore,
    dead_process,
    raises,
    state_case,
)

__all__ = ["Accounts", "LedgerCases"]

_ITEM = "directive:acme/x"


@frozen
class Accounts:
    """Shorter ways to fill a ledger."""

    store: StateStore

    async def root(self, thread_id: str, spend: int, tokens: int) -> None:
        """Register a root with its ceiling."""
        await self.store.registry.register(thread_id, _ITEM)
        await self.store.ledger.register(thread_id, Amount(spend, tokens))

    async def child(
        self,
        thread_id: str,
        parent_id: str,
        spend: int = 10**6,
        tokens: int = 10**6,
        *,
        reserves: tuple[bool, bool] = (False, False),
    ) -> Amount:
        """Register a child that shares, or reserves money and tokens; return its ceilings."""
        await self.store.registry.register(thread_id, _ITEM, parent_id)
        return await self.store.ledger.reserve(
            thread_id,
            parent_id,
            Amount(spend, tokens),
            reserves_spend=reserves[0],
            reserves_tokens=reserves[1],
        )

    async def spend(self, thread_id: str, turn: int, spend: int, tokens: int) -> None:
        """Hold an amount, and settle it as it was held."""
        await self.store.ledger.hold(thread_id, turn, 1, Amount(spend, tokens))
        await self.store.ledger.settle(thread_id, turn, 1, Amount(spend, tokens))

    async def end(self, *thread_ids: str) -> None:
        """End threads in the registry, which closes their accounts."""
        for thread_id in thread_ids:
            await self.store.registry.settle(thread_id, "completed", {})


class LedgerCases(StateCases):
    """What the ledger holds, charges, sets aside and refuses."""

    @state_case
    async def test_a_root_spends_what_it_holds(self, store: StateStore, place: Place) -> None:
        """A repeated registration, hold or settlement changes nothing."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 1000)
        await ledger.register("r", Amount(5, 5))
        for _ in range(2):
            await ledger.hold("r", 1, 1, Amount(60, 500))
        account = await ledger.account("r")
        equal((account.held, account.available), (Amount(60, 500), Amount(40, 500)), "the hold")
        settled = await ledger.settle("r", 1, 1, Amount(30, 100))
        equal(await ledger.settle("r", 1, 1, Amount(99, 99)), settled, "the second settlement")
        check(not settled.overspent and not settled.stopped, "It didn't overspend.")
        account = await ledger.account("r")
        equal((account.own, account.held), (Amount(30, 100), Amount()), "the account")
        equal(await ledger.remaining("r"), Amount(70, 900), "what is left")
        await at.end("r")
        equal((await ledger.account("r")).state, "completed", "the state")
        equal(await ledger.tree("r"), TreeSum(Amount(30, 100), Amount(), 1), "the sum")

    @state_case
    async def test_a_refused_hold_leaves_nothing(self, store: StateStore, place: Place) -> None:
        """Neither an account, nor a charge, nor the thread's row changes."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 1000)
        await at.child("c", "r")
        before = await ledger.account("c"), await ledger.account("r")
        for wanted, dimension in ((Amount(101, 1), "spend"), (Amount(1, 1001), "tokens")):
            refused = await raises(
                InsufficientBudget, ledger.hold("c", 1, 1, wanted, head=(7, "ab" * 32))
            )
            error = pickle.loads(pickle.dumps(refused))  # noqa: S301 - of our own making
            equal((error.account, error.dimension), ("c", dimension), "the error")
            equal((error.remaining, error.requested), (Amount(100, 1000), wanted), "its amounts")
        equal((await ledger.account("c"), await ledger.account("r")), before, "the accounts")
        equal(await ledger.charges("c"), (), "the charges")
        equal((await store.registry.get_thread("c")).transcript_head, None, "the head")
        await ledger.hold("c", 1, 1, Amount(100, 1000))  # the last of it is not too much

    @state_case
    async def test_a_hold_reaches_the_nearest_reservation(
        self, store: StateStore, place: Place
    ) -> None:
        """Money and tokens follow their own path up to the account that reserved them."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 1000, 1000)
        await at.child("a", "r", 400, 5000, reserves=(True, False))
        equal(await at.child("b", "a", 100, 50, reserves=(False, True)), Amount(100, 50), "b")
        await ledger.hold("b", 1, 1, Amount(30, 20))
        accounts = [await ledger.account(one) for one in ("b", "a", "r")]
        held = [Amount(30, 20), Amount(30, 0), Amount(0, 0)]
        reserved = [Amount(0, 0), Amount(0, 50), Amount(400, 50)]
        equal([one.held for one in accounts], held, "what is held")
        equal([one.reserved for one in accounts], reserved, "what is reserved")
        equal((await ledger.tree("r")).held, Amount(30, 20), "the sum of holds")

    @state_case
    async def test_siblings_that_share_leave_less(self, store: StateStore, place: Place) -> None:
        """A refusal names the account that has too little left."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 100)
        await at.child("one", "r")
        await at.child("two", "r")
        await ledger.hold("one", 1, 1, Amount(80, 10))
        equal(await ledger.remaining("two"), Amount(20, 90), "what is left")
        error = await raises(InsufficientBudget, ledger.hold("two", 1, 1, Amount(21, 1)))
        equal((error.account, error.remaining), ("r", Amount(20, 90)), "the error")

    @state_case
    async def test_a_reservation_is_capped_and_given_back(
        self, store: StateStore, place: Place
    ) -> None:
        """A child gets what is left at most, and the end of one returns what it didn't spend."""
        at, ledger, aside = Accounts(store), store.ledger, (True, False)
        await at.root("r", 100, 100)
        equal(await at.child("a", "r", 70, 100, reserves=aside), Amount(70, 100), "the first")
        equal(await at.child("b", "r", 70, 100, reserves=aside), Amount(30, 100), "the second")
        again = ledger.reserve("b", "r", Amount(5, 5), reserves_spend=True, reserves_tokens=False)
        equal(await again, Amount(30, 100), "the same reservation once more")
        await raises(InsufficientBudget, at.child("c", "r", 1, 1, reserves=aside))
        await raises(BudgetNotRegistered, ledger.account("c"))
        equal(await at.child("d", "r", 1, 1), Amount(1, 1), "one that shares what is unspent")
        await raises(InsufficientBudget, ledger.hold("d", 1, 1, Amount(1, 0)))
        await at.spend("a", 1, 20, 1)
        await at.end("a")
        account = await ledger.account("r")
        equal((account.children, account.reserved), (Amount(20, 1), Amount(30, 0)), "the root")
        equal(account.available, Amount(50, 99), "what is left")

    @state_case
    async def test_nothing_may_be_shared(self, store: StateStore, place: Place) -> None:
        """Below a ceiling of no money, a child may do what costs none."""
        at = Accounts(store)
        await at.root("r", 0, 100)
        equal(await at.child("c", "r"), Amount(0, 100), "the ceilings")
        await at.spend("c", 1, 0, 100)
        await raises(InsufficientBudget, store.ledger.hold("c", 2, 1, Amount(1, 0)))
        await raises(InsufficientBudget, at.child("d", "r", 1, 0, reserves=(True, False)))

    @state_case
    async def test_three_levels_cascade_exactly(self, store: StateStore, place: Place) -> None:
        """A child's own report never overwrites what came up from below it."""
        at, ledger, both = Accounts(store), store.ledger, (True, True)
        await at.root("r", 1000, 1000)
        await at.child("a", "r", 500, 500, reserves=both)
        await at.child("b", "a", 300, 300, reserves=both)
        await at.spend("r", 1, 25, 1)
        await at.spend("a", 1, 10, 2)
        await at.spend("b", 1, 15, 4)
        for one, own in (("b", Amount(15, 4)), ("a", Amount(10, 2))):
            for _ in range(2):
                await ledger.report_actual(one, own)
                await ledger.report_actual(one, Amount(1, 1))  # never lowered
                await ledger.cascade_spend(one)
            await at.end(one)
        root = await ledger.account("r")
        equal((root.own, root.children), (Amount(25, 1), Amount(25, 6)), "the root")
        equal(root.reserved, Amount(), "what is reserved")
        equal(await ledger.tree("r"), TreeSum(Amount(50, 7), Amount(), 3), "the sum")

    @state_case
    async def test_an_overspend_stops_the_subtree(self, store: StateStore, place: Place) -> None:
        """It is charged in full; nothing more is held or reserved there, and beside it is."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 100)
        await at.child("a", "r", 50, 50, reserves=(True, False))
        await at.child("b", "a")
        await at.child("beside", "r")
        await ledger.hold("a", 1, 1, Amount(10, 10))
        settled = await ledger.settle("a", 1, 1, Amount(10, 70))
        check(settled.overspent and settled.stopped, "The overspend isn't reported.")
        equal(await ledger.settle("a", 1, 1, Amount(10, 70)), settled, "the same once more")
        equal((await ledger.account("r")).children, Amount(0, 70), "what was charged above")
        for stopped in ("a", "b"):
            equal(await ledger.remaining(stopped), Amount(), "what is left")
            error = await raises(InsufficientBudget, ledger.hold(stopped, 9, 1, Amount()))
            equal(error.reason, "stopped", "the reason")
            await raises(InsufficientBudget, at.child(f"below-{stopped}", stopped))
        await ledger.hold("beside", 1, 1, Amount(1, 30))
        await at.end("a", "beside")  # its open hold is charged in full
        equal((await ledger.tree("r")).spent, Amount(11, 100), "the sum")
        equal((await ledger.account("r")).total, Amount(11, 100), "the root's total")

    @state_case
    async def test_a_try_is_charged_once(self, store: StateStore, place: Place) -> None:
        """A try has one hold and one settlement, each try its own."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 100)
        await at.spend("r", 1, 1, 1)
        await raises(BudgetError, ledger.hold("r", 1, 1, Amount(1, 1)))
        await ledger.hold("r", 1, 2, Amount(2, 2))
        await raises(BudgetError, ledger.hold("r", 1, 2, Amount(3, 3)))
        await raises(BudgetError, ledger.settle("r", 1, 3, Amount(1, 1)))
        found = [(one.turn, one.attempt, one.mark) for one in await ledger.charges("r")]
        equal(found, [(1, 1, "counted"), (1, 2, "held")], "the charges")

    @state_case
    async def test_the_holds_of_the_dead(self, store: StateStore, place: Place) -> None:
        """They are charged in full and marked as assumed; a late settlement corrects them."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 1000, 1000)
        await store.registry.claim("r")
        await at.child("a", "r", 500, 500, reserves=(True, True))
        await at.child("b", "a", 400, 400, reserves=(True, False))
        for one in ("a", "b"):
            await store.registry.claim(one, dead_process())
        await ledger.hold("b", 1, 1, Amount(50, 60))
        await ledger.hold("a", 1, 1, Amount(5, 6))
        await store.registry.settle_abandoned(await store.registry.list_active())
        root = await ledger.account("r")
        equal((root.children, root.held), (Amount(55, 66), Amount()), "the root")
        equal([one.mark for one in await ledger.charges("b")], ["assumed"], "the mark")
        cost = (await store.registry.get_thread("b")).cost
        shown = (cost.spend_microcents, cost.tokens, cost.estimated)
        equal(shown, (50, 60, True), "the cost that the row shows")
        settled = await ledger.settle("b", 1, 1, Amount(20, 10), mark="estimated")
        check(settled.cancel_requested, "A thread that was declared dead isn't stopped.")
        equal((await ledger.account("r")).total, Amount(25, 16), "the corrected total")
        equal(await ledger.tree("r"), TreeSum(Amount(25, 16), Amount(), 3), "the sum")
        cost = (await store.registry.get_thread("b")).cost
        equal((cost.spend_microcents, cost.tokens), (20, 10), "the corrected cost")
        error = await raises(InsufficientBudget, ledger.hold("b", 2, 1, Amount(1, 1)))
        equal(error.reason, "released", "the reason")

    @state_case
    async def test_a_child_outlives_its_parent(self, store: StateStore, place: Place) -> None:
        """What still runs below an ended thread stays set aside above it."""
        at, ledger, both = Accounts(store), store.ledger, (True, True)
        await at.root("r", 100, 100)
        await at.child("a", "r", 60, 60, reserves=both)
        await at.child("shares", "a")
        await at.child("reserves", "a", 30, 30, reserves=both)
        await ledger.hold("shares", 1, 1, Amount(10, 10))
        await at.end("a")
        root = await ledger.account("r")
        equal((root.held, root.reserved), (Amount(10, 10), Amount(30, 30)), "the root")
        equal(await at.child("late", "r", 100, 100, reserves=both), Amount(60, 60), "the rest")
        await raises(InsufficientBudget, ledger.hold("shares", 2, 1, Amount(1, 1)))
        await at.spend("reserves", 1, 30, 30)
        await at.end("shares", "reserves")
        root = await ledger.account("r")
        equal((root.children, root.held), (Amount(40, 40), Amount()), "the root at the end")
        equal(root.reserved, Amount(60, 60), "what is reserved at the end")

    @state_case
    async def test_requests_keep_the_row(self, store: StateStore, place: Place) -> None:
        """A hold stores the head and a settlement the cost, and it reports requests to stop."""
        at, ledger, registry = Accounts(store), store.ledger, store.registry
        await at.root("r", 100, 100)
        await registry.claim("r")
        await ledger.hold("r", 1, 1, Amount(5, 5), head=(512, "ab" * 32))
        await ledger.hold("r", 1, 2, Amount(5, 5))  # without a head the last one stays
        equal((await registry.get_thread("r")).transcript_head, (512, "ab" * 32), "the head")
        settled = await ledger.settle("r", 1, 1, Amount(1, 1), snapshot=Cost())
        check(not settled.cancel_requested, "A request is reported that nobody made.")
        await registry.request_cancel("r")
        await registry.request_handoff("r")
        cost = Cost(1, 2, 3, 4)
        settled = await ledger.settle("r", 1, 2, Amount(1, 1), snapshot=cost)
        check(settled.cancel_requested and settled.handoff_requested, "Requests are missed.")
        equal((await registry.get_thread("r")).cost, cost, "the cost")

    @state_case
    async def test_accounts_that_do_not_exist(self, store: StateStore, place: Place) -> None:
        """Each operation refuses a thread without an account, and a second parent."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 100)
        await at.root("other", 100, 100)
        await store.registry.register("bare", _ITEM, "r")
        for call in (
            ledger.account("bare"),
            ledger.remaining("bare"),
            ledger.tree("bare"),
            ledger.cascade_spend("bare"),
            ledger.report_actual("bare", Amount(1, 1)),
            ledger.hold("bare", 1, 1, Amount(1, 1)),
            ledger.settle("bare", 1, 1, Amount(1, 1)),
            ledger.transfer("bare", "r2"),
            at.child("c1", "bare"),
        ):
            equal((await raises(BudgetNotRegistered, call)).account, "bare", "the account")
        equal(await ledger.charges("bare"), (), "the charges")
        await raises(ThreadNotFound, ledger.register("missing", Amount(1, 1)))
        await at.child("c", "r")
        await raises(BudgetError, ledger.register("c", Amount(1, 1)))
        second = ledger.reserve(
            "c", "other", Amount(1, 1), reserves_spend=False, reserves_tokens=False
        )
        await raises(BudgetError, second)
        await at.end("bare")  # a tool's thread has no account, and ends well

    @state_case
    async def test_an_ended_thread_gets_no_budget(self, store: StateStore, place: Place) -> None:
        """Nobody would give it back."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 100)
        await store.registry.register("other", _ITEM)
        await store.registry.register("child", _ITEM, "r")
        await at.end("other", "child")
        await raises(ThreadConflict, ledger.register("other", Amount(5, 5)))
        call = ledger.reserve("child", "r", Amount(5, 5), reserves_spend=True, reserves_tokens=True)
        await raises(ThreadConflict, call)
        equal((await ledger.account("r")).reserved, Amount(), "what is reserved")

    @state_case
    async def test_operations_together_happen_or_do_not(
        self, store: StateStore, place: Place
    ) -> None:
        """Registry and ledger share a transaction, and what the budget refuses leaves nothing."""
        registry, ledger = store.registry, store.ledger
        made = await registry.register("r", _ITEM)

        async def fails_at_last() -> None:
            await ledger.register("r", Amount(100, 100))
            await registry.claim("r")
            await ledger.hold("r", 1, 1, Amount(101, 1))

        await raises(InsufficientBudget, ledger.together(fails_at_last))
        equal(await registry.get_thread("r"), made, "the row after a transaction that failed")
        await raises(BudgetNotRegistered, ledger.account("r"))

        async def catches() -> int:
            """Catch refusals within the transaction, and return the fence."""
            await ledger.register("r", Amount(100, 100))
            fence = await registry.claim("r")
            await raises(InsufficientBudget, ledger.hold("r", 1, 1, Amount(101, 1)))
            await ledger.hold("r", 1, 2, Amount(40, 4))
            await raises(BudgetError, ledger.settle("r", 1, 3, Amount(1, 1)))
            await raises(BudgetError, ledger.hold("r", 1, 2, Amount(70, 7)))
            return fence

        fence = await registry.together(catches)
        row = await registry.get_thread("r")
        equal((row.status, row.fence), ("running", fence), "the claimed row")
        equal((await ledger.account("r")).held, Amount(40, 4), "what is held")
        equal([one.attempt for one in await ledger.charges("r")], [2], "the charged tries")

    @state_case
    async def test_a_settlement_and_the_next_hold(self, store: StateStore, place: Place) -> None:
        """One operation settles and holds; a refused hold leaves the settlement."""
        at, ledger, registry = Accounts(store), store.ledger, store.registry
        await at.root("r", 100, 1000)
        await at.child("c", "r")
        cost, head = Cost(turns=1, input_tokens=9, output_tokens=1, spend_microcents=5), (7, "ab")

        async def turn(
            thread_id: str, number: int, actual: Amount, wanted: Amount, *, hands_off: bool = False
        ) -> tuple[tuple[Settled, ...], object]:
            settlement = Settlement(number, 1, Amount(40, 400), actual, "counted")
            found = await ledger.settle_and_hold(
                *(thread_id, [settlement], number + 1, 1, wanted),
                snapshot=cost,
                head=head,
                hands_off=hands_off,
            )
            row = await registry.get_thread(thread_id)
            equal(row.cost, cost, "the cost in the row")
            return found

        as_held = (Settled(False, False, False),)
        for thread_id in ("r", "c"):  # alone, and on a shared account
            await ledger.hold(thread_id, 1, 1, Amount(40, 400))
            for _ in range(2):  # a repeated one changes nothing
                found = await turn(thread_id, 1, Amount(5, 10), Amount(40, 400))
                equal(found, (as_held, None), "a usual turn")
            account = await ledger.account(thread_id)
            equal((account.own, account.held.tokens % 400), (Amount(5, 10), 0), "the account")
            equal((await registry.get_thread(thread_id)).transcript_head, head, "the head")
        held = (await ledger.account("r")).held
        equal(held, Amount(80, 800), "what both hold")
        settled, refused = await turn("c", 2, Amount(5, 10), Amount(101, 1))
        check(isinstance(refused, InsufficientBudget), "More was held than is left.")
        equal(settled, as_held, "the settlement before a refused hold")
        equal((await ledger.account("c")).own, Amount(10, 20), "what it has charged")
        missing = ledger.settle_and_hold(
            *("c", [Settlement(9, 9, Amount(), Amount(), "counted")], 3, 1, Amount(1, 1)),
            snapshot=cost,
        )
        await raises(BudgetError, missing)
        await registry.request_handoff("r")
        equal((await turn("r", 2, Amount(5, 10), Amount(40, 400)))[1], None, "no handing off")
        settled, refused = await turn("r", 3, Amount(5, 10), Amount(1, 1), hands_off=True)
        equal((settled[0].handoff_requested, refused), (True, "stopped"), "a request to hand off")
        equal((await ledger.account("r")).own, Amount(15, 30), "the account after it")
        await at.root("s", 100, 1000)
        await ledger.hold("s", 1, 1, Amount(40, 400))
        await registry.request_cancel("s")
        settled, refused = await turn("s", 1, Amount(5, 10), Amount(1, 1))
        equal((settled[0].cancel_requested, refused), (True, "stopped"), "a request to stop")
        await at.root("o", 100, 1000)
        await ledger.hold("o", 1, 1, Amount(40, 400))
        settled, refused = await turn("o", 1, Amount(41, 1), Amount(1, 1))
        check(settled[0].overspent and settled[0].stopped, "It overspent.")
        check(isinstance(refused, InsufficientBudget), "A stopped account holds nothing.")
        equal((await ledger.account("o")).own, Amount(41, 1), "the overspent account")

    @state_case
    async def test_huge_and_negative_amounts(self, store: StateStore, place: Place) -> None:
        """A huge amount counts as 2**53; a negative one is refused."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 10**40, 10**40)
        await ledger.hold("r", 1, 1, Amount(10, 10))
        check((await ledger.settle("r", 1, 1, Amount(10**40, 11))).overspent, "It overspent.")
        equal((await ledger.account("r")).own, Amount(2**53, 11), "the account")
        await raises(ValueError, ledger.hold("r", 2, 1, Amount(-1, 0)))

    @state_case
    async def test_a_transfer_takes_the_rest(self, store: StateStore, place: Place) -> None:
        """The continuation gets what is neither spent, held nor reserved, once."""
        at, ledger = Accounts(store), store.ledger
        await at.root("r", 100, 100)
        await at.child("old", "r", 60, 60, reserves=(True, True))
        await at.child("below", "old", 20, 20, reserves=(True, True))
        await at.spend("old", 1, 10, 5)
        await store.registry.register("new", _ITEM, "r", follows=Predecessor("old", "old"))
        for _ in range(2):
            equal(await ledger.transfer("old", "new"), Amount(30, 35), "the rest")
        equal((await ledger.account("old")).state, "continued", "the old account")
        await raises(InsufficientBudget, ledger.hold("old", 2, 1, Amount(1, 1)))
        await ledger.hold("new", 1, 1, Amount(30, 35))
        await at.end("old", "below", "new")
        root = await ledger.account("r")
        equal((root.children, root.reserved), (Amount(40, 40), Amount()), "the root at the end")

    @state_case
    async def test_continuations_share_the_rest(self, store: StateStore, place: Place) -> None:
        """Two threads that continue the same one get no more together than it had left."""
        at, registry = Accounts(store), store.registry
        limits = Limits(turns=10, tokens=100)
        await at.root("first", 10**9, 100)
        await registry.set_cost("first", Cost(turns=3, input_tokens=20, output_tokens=10))
        await store.ledger.report_actual("first", Amount(0, 30))
        await at.end("first")
        found = []
        for name in ("second", "third"):
            await registry.register(name, _ITEM, follows=Predecessor("first", "first"))
            wanted = Limits(turns=5, tokens=100)
            bounds = ContinuationLimits("first", limits, Decimal(0), wanted)
            granted = await registry.limit_continuation(name, bounds)
            found.append((granted.turns, granted.tokens))
            await registry.claim(name)
        equal(found, [(5, 70), (2, 0)], "the limits")
