"""Cases: a thread begins in one transaction, and ends in one, as its lifecycle has it.

A store may have a fast path for such a transaction. Its outcome must be that of the operations one
by one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from ryecore.errors import InsufficientBudget, RyeError, ThreadConflict
from ryecore.frozen import frozen
from ryecore.policy.budget import Amount, Settlement
from ryecore.state.model import Cost
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.state.bench import (
    Place,
    StateCases,
    StateStore,
    process_case,
    raises,
    state_case,
)

__all__ = ["ThreadTransactionCases"]

_ITEM: Final = "directive:acme/x"
_LIMITS: Final = {"turns": 3}
_HELD, _SPENT = Amount(50, 20), Amount(30, 10)
_ROUNDS: Final = 12
_SHARES: Final = (False, False)
_HEAD: Final = (7, "ab" * 32)


@frozen
class _Situation:
    """What happens to a child; what isn't named is as on the fast path.

    Attributes:
        wanted: What it wants of its parent, which has 1,000 of both.
        reserves: Whether it reserves money, and tokens.
        before: What happens before it begins, to the tree of this name.
        meanwhile: What happens before it ends.
        spent: What its request costs.
    """

    wanted: Amount = Amount(400, 400)
    reserves: tuple[bool, bool] = (True, True)
    before: "Step | None" = None
    meanwhile: "Step | None" = None
    spent: Amount = _SPENT


Step: TypeAlias = Callable[[StateStore, str], Awaitable[object]]


async def _hold_more(store: StateStore, name: str) -> None:
    await store.ledger.hold(f"{name}-child", 2, 1, Amount(40, 4))


async def _hold_nothing(store: StateStore, name: str) -> None:
    await store.ledger.hold(f"{name}-child", 2, 1, Amount())


async def _settle(store: StateStore, name: str) -> None:
    await store.ledger.settle(f"{name}-child", 1, 1, _SPENT)


async def _cascade(store: StateStore, name: str) -> None:
    await _settle(store, name)
    await store.ledger.cascade_spend(f"{name}-child")


async def _hold_above(store: StateStore, name: str) -> None:
    await store.ledger.hold(name, 1, 1, Amount(800, 900))


async def _end_parent(store: StateStore, name: str) -> None:
    await store.registry.settle(name, "completed", {})


async def _hand_off(store: StateStore, name: str) -> None:
    await store.registry.request_handoff(f"{name}-child")


async def _cancel(store: StateStore, name: str) -> None:
    await store.registry.request_cancel(name)


async def _open(store: StateStore, name: str) -> None:
    await store.ledger.reserve(
        f"{name}-child", name, Amount(70, 70), reserves_spend=True, reserves_tokens=False
    )


async def _spawn(store: StateStore, name: str, *, reserves: bool) -> None:
    """Begin a thread below the child, which holds."""
    below = f"{name}-below"
    await store.registry.register(below, _ITEM, f"{name}-child")
    await store.ledger.reserve(
        below, f"{name}-child", Amount(90, 90), reserves_spend=reserves, reserves_tokens=reserves
    )
    await store.ledger.hold(below, 1, 1, Amount(60, 60))


_SITUATIONS: Final[Mapping[str, _Situation]] = {
    "nothing special": _Situation(),
    "all that is left": _Situation(Amount(1000, 1000)),
    "more than is left": _Situation(Amount(5000, 300)),
    "a parent that holds": _Situation(before=_hold_above),
    "nothing": _Situation(Amount(), spent=Amount()),
    "a shared budget": _Situation(reserves=(False, False)),
    "shared tokens": _Situation(reserves=(True, False)),
    "an account from before": _Situation(before=_open),
    "a request that is open": _Situation(meanwhile=_hold_more),
    "an open request that costs nothing": _Situation(meanwhile=_hold_nothing),
    "a request that was settled": _Situation(meanwhile=_settle),
    "an account that was cascaded": _Situation(meanwhile=_cascade),
    "an overspent request": _Situation(spent=Amount(60, 10)),
    "a request to hand off": _Situation(meanwhile=_hand_off),
    "a request to stop": _Situation(meanwhile=_cancel),
    "a parent that has ended": _Situation(meanwhile=_end_parent),
    "a child that reserves": _Situation(meanwhile=partial(_spawn, reserves=True)),
    "a child that shares": _Situation(meanwhile=partial(_spawn, reserves=False)),
}


class ThreadTransactionCases(StateCases):
    """A thread begins in one transaction, and ends in one."""

    @state_case
    async def test_a_begin_and_an_end_in_one_transaction_each(
        self, store: StateStore, place: Place
    ) -> None:
        """Their outcome is that of their operations one by one, in each situation."""
        for number, (title, situation) in enumerate(_SITUATIONS.items()):
            came = [
                await _live(store, f"{way}{number}", situation, together=way == "together")
                for way in ("single", "together")
            ]
            equal(came[1], came[0], f"a thread that meets {title}")

    @state_case
    async def test_a_begin_in_one_transaction_that_is_refused(
        self, store: StateStore, place: Place
    ) -> None:
        """Neither its account nor its row changes, nor the account above."""
        registry, ledger = store.registry, store.ledger
        await _root(store, "r")
        await registry.register("c", _ITEM, "r")
        await registry.mint_token("c")
        await ledger.hold("r", 1, 1, Amount(1, 1))
        before = await registry.get_thread("c"), await ledger.account("r")

        async def begin(**more: Any) -> int:
            await ledger.reserve("c", "r", Amount(5, 5), reserves_spend=True, reserves_tokens=True)
            return await registry.claim("c", **more)

        refused = registry.together(partial(begin, token="another"), tree="c")
        await raises(ThreadConflict, refused)
        equal((await registry.get_thread("c"), await ledger.account("r")), before, "the rows")
        await ledger.hold("r", 2, 1, Amount(999, 1))
        await raises(InsufficientBudget, registry.together(begin, tree="c"))
        equal((await registry.get_thread("c")).status, "created", "the refused child")

    @state_case
    async def test_an_end_in_one_transaction_that_is_refused(
        self, store: StateStore, place: Place
    ) -> None:
        """Of an owner whose thread was taken over, neither the row changes nor an account."""
        await _root(store, "r")
        await _begin(store, "c", "r", Amount(5, 5), (True, True), together=True)
        await store.ledger.hold("c", 1, 1, Amount(5, 5))

        async def rows() -> Sequence[object]:
            accounts = await store.ledger.account("c"), await store.ledger.account("r")
            charges = await store.ledger.charges("c")
            return *accounts, charges, await store.registry.get_thread("c")

        before = await rows()
        await raises(ThreadConflict, _end(store, "c", Amount(1, 1), 2, together=True))
        equal(await rows(), before, "what the end would have changed")

    @state_case
    async def test_an_account_tells_of_running_children(
        self, store: StateStore, place: Place
    ) -> None:
        """It does from the registration of a thread below it until the end of the last one."""
        await _root(store, "r")
        found = []
        for step in (
            None,
            store.registry.register("a", _ITEM, "r"),
            store.registry.register("b", _ITEM, "r"),
            store.registry.settle("a", "completed", {}),
            store.registry.settle("b", "error", {}),
        ):
            if step is not None:
                await step
            found.append((await store.ledger.account("r")).has_running_children)
        equal(found, [False, True, True, True, False], "whether children run")

    @process_case
    async def test_threads_of_eight_processes_below_one_parent(
        self, store: StateStore, place: Place
    ) -> None:
        """Below one parent, which is too small for all of them at once, every sum is exact."""
        await _root(store, "r")

        async def work(store: StateStore, number: int) -> int:
            done = 0
            while done < _ROUNDS:
                child = f"c-{number}-{done}"
                try:
                    await _begin(store, child, "r", Amount(200, 200), (True, True), together=True)
                except InsufficientBudget:
                    await store.registry.settle(child, "error", {})
                else:
                    await store.ledger.hold(child, 1, 1, Amount(5, 5), head=_HEAD)
                    await _end(store, child, Amount(1, 2), 1, together=True)
                done += 1
            return len([
                one for one in range(done)
                if (await store.registry.get_thread(f"c-{number}-{one}")).status == "completed"
            ])  # fmt: skip

        ended = sum(await place.race(work))
        account = await store.ledger.account("r")
        equal(account.children, Amount(ended, 2 * ended), "what the children have spent")
        equal((account.held, account.reserved), (Amount(), Amount()), "what is left open")

    @process_case
    async def test_shared_budgets_of_eight_processes(self, store: StateStore, place: Place) -> None:
        """Children and grandchildren that share a budget, with the root's own requests: exact."""
        await _root(store, "r")

        async def work(store: StateStore, number: int) -> int:
            ledger, spent = store.ledger, 0
            for one in range(_ROUNDS // 2):
                child, below = f"c-{number}-{one}", f"b-{number}-{one}"
                await _begin(store, child, "r", Amount(10**6, 10**6), _SHARES, together=True)
                await _begin(store, below, child, Amount(10**6, 10**6), _SHARES, together=True)
                for name, attempt in ((child, 1), (below, 1), ("r", number * _ROUNDS + one + 1)):
                    try:
                        await ledger.hold(name, 1, attempt, Amount(90, 90), head=_HEAD)
                        held = Settlement(1, attempt, Amount(90, 90), Amount(1, 2), "counted")
                        settled, refused = await ledger.settle_and_hold(
                            *(name, [held], 2, attempt, Amount(80, 80)),
                            snapshot=Cost(1),
                            head=_HEAD,
                        )
                    except InsufficientBudget:
                        continue
                    spent += len(settled)
                    if refused is None:
                        await ledger.settle(name, 2, attempt, Amount(3, 6))
                        spent += 3
                for name in (below, child):
                    await store.registry.settle(name, "completed", {}, fence=1)
            return spent

        spent = sum(await place.race(work))
        account = await store.ledger.account("r")
        equal(account.total, Amount(spent, 2 * spent), "what the tree has spent")
        equal((await store.ledger.tree("r")).spent, account.total, "the sum of the tree")
        equal((account.held, account.reserved), (Amount(), Amount()), "what is left open")
        check(spent > _ROUNDS, "Nearly all was refused.")


async def _root(store: StateStore, name: str) -> None:
    await store.registry.register(name, _ITEM)
    await store.ledger.register(name, Amount(1000, 1000))


async def _live(
    store: StateStore, name: str, situation: _Situation, *, together: bool
) -> Sequence[object]:
    """Live through a situation, below a root; return what it came to, without names."""
    child = f"{name}-child"
    await _root(store, name)
    await store.registry.register(child, _ITEM, name)
    came: list[object] = []
    if situation.before is not None:
        await situation.before(store, name)
    began = _begin(store, child, name, situation.wanted, situation.reserves, together=together)
    came.append(await _told(began))
    came.append(await _told(store.ledger.hold(child, 1, 1, _HELD, head=_HEAD)))
    if situation.meanwhile is not None:
        came.append(await _told(situation.meanwhile(store, name)))
    came.append(await _told(_end(store, child, situation.spent, 1, together=together)))
    for one in (name, child, f"{name}-below"):
        try:
            account, row = await store.ledger.account(one), await store.registry.get_thread(one)
        except RyeError as error:
            came.append(type(error))
            continue
        came += [
            *(account.ceiling, account.own, account.children, account.held, account.reserved),
            *(account.state, account.stopped, account.has_running_children),
            *(await store.ledger.charges(one), row.status, row.fence, row.cost, row.model),
            *(row.limits, row.transcript_head, row.cancel_requested, row.completed_at is None),
            await store.registry.get_result(one),
            await store.ledger.tree(one),
            await store.ledger.remaining(one),
        ]
    return came


async def _told(call: Awaitable[object]) -> object:
    """Return what a call returns, or the type of the error that it raises."""
    try:
        return await call
    except RyeError as error:
        return type(error)


async def _begin(
    store: StateStore,
    child: str,
    parent: str,
    wanted: Amount,
    reserves: tuple[bool, bool],
    *,
    together: bool,
) -> Sequence[object]:
    if child not in [one.thread_id for one in await store.registry.list_children(parent)]:
        await store.registry.register(child, _ITEM, parent)

    async def begin() -> Sequence[object]:
        granted = await store.ledger.reserve(
            child, parent, wanted, reserves_spend=reserves[0], reserves_tokens=reserves[1]
        )
        limits = {**_LIMITS, "tokens": granted.tokens}
        return granted, await store.registry.claim(child, limits=limits, model="fake/m")

    return await (store.registry.together(begin, tree=child) if together else begin())


async def _end(store: StateStore, child: str, spent: Amount, fence: int, *, together: bool) -> None:
    async def end() -> None:
        await store.ledger.settle(child, 1, 1, spent)
        await store.registry.settle(
            child, "completed", {"text": "x"}, fence=fence, head=_HEAD, snapshot=Cost(1, 2, 3, 30)
        )

    await (store.registry.together(end, tree=child) if together else end())
