"""Cases: the ledger against a plain model of the tree, which adds everything up anew each time.

The sequences of operations come from Hypothesis; without it the case is skipped.
"""

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal
from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import Amount, Settled, Settlement
from ryecore.state.model import Cost
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.state.bench import StateCases, StateStore

__all__ = ["check_ledger_model"]

T = TypeVar("T")

_DISAGREE = "The ledger and the model disagree."

SPEND, TOKENS = 0, 1
Pair = tuple[int, int]
SMALL = st.tuples(st.integers(0, 40), st.integers(0, 40))


@define
class Tried:
    """One request in the model."""

    held: Pair
    actual: Pair = (0, 0)
    mark: str = "held"


@define(eq=False)
class Node:
    """One account in the model."""

    name: str
    above: "Node | None"
    ceiling: Pair
    reserves: tuple[bool, bool] = (True, True)
    tried: list[Tried] = field(factory=list)
    reported: list[int] = field(factory=lambda: [0, 0])
    cascaded: list[int] = field(factory=lambda: [0, 0])
    below: "list[Node]" = field(factory=list)
    open: bool = True
    stopped: bool = False

    def shares(self, d: int) -> bool:
        return self.above is not None and not (self.reserves[d] and self.open)

    def own(self, d: int) -> int:
        return sum(one.actual[d] for one in self.tried) + self.reported[d]

    def children(self, d: int) -> int:
        return sum(
            one.own(d) + one.children(d) if one.shares(d) else one.cascaded[d] for one in self.below
        )

    def held(self, d: int) -> int:
        mine = sum(one.held[d] for one in self.tried if one.mark == "held")
        return mine + sum(one.held(d) for one in self.below if one.shares(d))

    def reserved(self, d: int) -> int:
        return sum(
            one.reserved(d) if one.shares(d) else max(one.ceiling[d] - one.cascaded[d], 0)
            for one in self.below
        )

    def left(self, d: int) -> int:
        return self.ceiling[d] - self.own(d) - self.children(d) - self.held(d) - self.reserved(d)

    def remaining(self, d: int) -> int:
        """Return the least on the path."""
        least = self.left(d)
        return min(least, self.above.remaining(d)) if self.above and self.shares(d) else least

    def unspent(self, d: int) -> int:
        """Return the least on the path, with all that is held or reserved."""
        least = self.ceiling[d] - self.own(d) - self.children(d)
        return min(least, self.above.unspent(d)) if self.above and self.shares(d) else least

    def subtree(self) -> "list[Node]":
        return [self, *(found for one in self.below for found in one.subtree())]


def _grantable(above: Node, d: int, reserves: tuple[bool, bool]) -> int:
    return above.remaining(d) if reserves[d] else above.unspent(d)


def amount(pair: Pair) -> Amount:
    return Amount(*pair)


class _Ledgers(RuleBasedStateMachine):
    """Everything that can be asked of a ledger, in any order."""

    nodes = Bundle("nodes")
    requests: Bundle[tuple[Node, int]] = Bundle("requests")
    settled: Bundle[tuple[Node, int]] = Bundle("settled")

    cases: StateCases
    portal: BlockingPortal

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="rye-state-")
        place = Path(self.folder.name)
        self.opened: AbstractContextManager[StateStore] = self.portal.wrap_async_context_manager(
            self.cases.open_store(place)
        )
        store = self.opened.__enter__()
        self.registry, self.ledger = store.registry, store.ledger
        self.all: list[Node] = []
        self.within = True

    def teardown(self) -> None:
        self.opened.__exit__(None, None, None)
        self.folder.cleanup()

    def await_(self, call: Callable[..., Awaitable[T]], *values: Any, **options: Any) -> T:
        async def made() -> T:
            return await call(*values, **options)

        return self.portal.call(made)

    @initialize(target=nodes, ceiling=st.tuples(st.integers(50, 300), st.integers(50, 300)))
    def root(self, ceiling: Pair) -> Node:
        self.await_(self.registry.register, "t-0", "directive:x")
        self.await_(self.ledger.register, "t-0", amount(ceiling))
        self.all.append(Node("t-0", None, ceiling))
        return self.all[0]

    @rule(
        target=nodes,
        above=nodes,
        wanted=st.tuples(st.integers(0, 200), st.integers(0, 200)),
        reserves=st.tuples(st.booleans(), st.booleans()),
    )
    def reserve(self, above: Node, wanted: Pair, reserves: tuple[bool, bool]) -> Node:
        """Reserve for a child, twice: it gets at most what is left; nothing left is a refusal."""
        name = f"t-{len(self.all)}"
        ceiling = (
            min(wanted[SPEND], max(_grantable(above, SPEND, reserves), 0)),
            min(wanted[TOKENS], max(_grantable(above, TOKENS, reserves), 0)),
        )
        refused = not above.open or above.stopped
        for d in (SPEND, TOKENS):
            nothing = wanted[d] > 0 and ceiling[d] == 0
            refused |= nothing and (reserves[d] or above.ceiling[d] > 0)
        if len(self.await_(self.registry.find_by_prefix, name)) == 0:
            self.await_(self.registry.register, name, "directive:x", above.name)
        for _ in range(2):
            try:
                given = self.await_(self.ledger.reserve,
                    name, above.name, amount(wanted),
                    reserves_spend=reserves[SPEND], reserves_tokens=reserves[TOKENS],
                )  # fmt: skip
            except InsufficientBudget:
                check(refused, _DISAGREE)
                self.all.append(Node(name, None, (0, 0), open=False))  # its name is taken
                return above
            check(not refused, _DISAGREE)
            equal(given, amount(ceiling), "the ceilings")
        child = Node(name, above, ceiling, reserves)
        above.below.append(child)
        self.all.append(child)
        return child

    @rule(target=requests, node=nodes, wanted=SMALL)
    def hold(self, node: Node, wanted: Pair) -> tuple[Node, int]:
        """Hold for the next request, twice; return its turn, or -1 where that is refused."""
        turn = len(node.tried)
        fits = all(wanted[d] == 0 or wanted[d] <= node.remaining(d) for d in (SPEND, TOKENS))
        try:
            for _ in range(2):
                self.await_(self.ledger.hold, node.name, turn, 1, amount(wanted))
        except InsufficientBudget:
            check(not (fits and node.open and not node.stopped), _DISAGREE)
            return node, -1
        check(fits, _DISAGREE)
        check(node.open, _DISAGREE)
        check(not node.stopped, _DISAGREE)
        node.tried.append(Tried(wanted))
        return node, turn

    @rule(
        target=settled,
        request=consumes(requests),
        part=st.sampled_from([0.0, 0.3, 1.0]),
        mark=st.sampled_from(["counted", "estimated", "assumed"]),
    )
    def settle(self, request: tuple[Node, int], part: float, mark: str) -> tuple[Node, int]:
        node, turn = request
        if turn >= 0:
            held = node.tried[turn].held
            self._settle(node, turn, (int(held[SPEND] * part), int(held[TOKENS] * part)), mark)
        return request

    @rule(request=consumes(requests), more=st.tuples(st.integers(0, 9), st.integers(0, 9)))
    def overspend(self, request: tuple[Node, int], more: Pair) -> None:
        node, turn = request
        if turn >= 0:
            held = node.tried[turn].held
            self._settle(node, turn, (held[SPEND] + more[SPEND], held[TOKENS] + more[TOKENS]))

    @rule(request=settled, actual=SMALL)
    def settle_again(self, request: tuple[Node, int], actual: Pair) -> None:
        node, turn = request
        if turn >= 0:
            self._settle(node, turn, actual)

    @rule(
        target=requests,
        request=consumes(requests),
        part=st.sampled_from([0.0, 0.3, 1.0, 1.2]),
        wanted=SMALL,
    )
    def settle_and_hold(
        self, request: tuple[Node, int], part: float, wanted: Pair
    ) -> tuple[Node, int]:
        """Settle a request and hold for the next one in a single operation."""
        node, turn = request
        if turn < 0:
            return request
        held, following = node.tried[turn].held, len(node.tried)
        actual = (int(held[SPEND] * part), int(held[TOKENS] * part))
        settlement = Settlement(turn, 1, amount(held), amount(actual), "counted")
        (told,), refused = self.await_(self.ledger.settle_and_hold,
            node.name, [settlement], following, 1, amount(wanted),
            snapshot=Cost(turns=following), head=(following, "ab"), hands_off=True,
        )  # fmt: skip
        self._settled(node, turn, actual, "counted", told)
        if not node.open:
            equal(refused, "stopped", "the ended thread")
            return node, -1
        fits = all(wanted[d] == 0 or wanted[d] <= node.remaining(d) for d in (SPEND, TOKENS))
        equal(refused is None, fits and not node.stopped, "the hold")
        if refused is not None:
            return node, -1
        node.tried.append(Tried(wanted))
        return node, following

    def _settle(self, node: Node, turn: int, actual: Pair, mark: str = "counted") -> None:
        told = self.await_(self.ledger.settle, node.name, turn, 1, amount(actual), mark=mark)
        self._settled(node, turn, actual, mark, told)

    def _settled(self, node: Node, turn: int, actual: Pair, mark: str, told: Settled) -> None:
        tried = node.tried[turn]
        if tried.mark not in ("counted", "estimated"):
            # What was held for it may have been given away meanwhile.
            later = any(actual[d] > tried.actual[d] for d in (SPEND, TOKENS))
            self.within &= tried.mark == "held" or not later
            tried.actual, tried.mark = actual, mark
        over = any(tried.actual[d] > tried.held[d] for d in (SPEND, TOKENS))
        equal(told.overspent, over, "the settlement")
        if over:
            self.within = False
            for one in node.subtree():
                one.stopped = True
        equal(told.stopped, node.stopped, "the settlement")

    @precondition(lambda self: len(self.all) > 3)
    @rule(node=nodes, said=SMALL)
    def report(self, node: Node, said: Pair) -> None:
        for _ in range(2):
            self.await_(self.ledger.report_actual, node.name, amount(said))
        for d in (SPEND, TOKENS):
            more = max(said[d] - node.own(d), 0)
            node.reported[d] += more
            self.within &= not more

    @rule(node=nodes)
    def cascade(self, node: Node) -> None:
        for _ in range(2):
            self.await_(self.ledger.cascade_spend, node.name)
        for d in (SPEND, TOKENS):
            if node.open:
                node.cascaded[d] = node.own(d) + node.children(d)

    @precondition(lambda self: len(self.all) > 3)
    @rule(node=nodes)
    def end(self, node: Node) -> None:
        if node.open:
            self.await_(self.registry.settle, node.name, "completed", {})
        for one in node.tried:
            if node.open and one.mark == "held":
                one.actual, one.mark = one.held, "assumed"
        node.open = False

    @invariant()
    def the_accounts_agree(self) -> None:
        self.await_(self._compare, self.all[0].subtree() if self.all else [])

    async def _compare(self, nodes: list[Node]) -> None:
        for node in nodes:
            account = await self.ledger.account(node.name)
            for found, expected in (
                (account.own, node.own),
                (account.children, node.children),
                (account.held, node.held),
                (account.reserved, node.reserved),
                (account.available, node.left),
            ):
                equal(found, Amount(expected(SPEND), expected(TOKENS)), node.name)
            equal((account.state == "open", account.stopped), (node.open, node.stopped), node.name)
            if self.within:
                check(account.available.covers(Amount()), f"{node.name} is below nothing.")
            below = node.subtree()
            tree = await self.ledger.tree(node.name)
            spent = Amount(*(sum(one.own(d) for one in below) for d in (SPEND, TOKENS)))
            held = Amount(
                *(
                    sum(one.held[d] for at in below for one in at.tried if one.mark == "held")
                    for d in (SPEND, TOKENS)
                )
            )
            equal((tree.threads, tree.spent, tree.held), (len(below), spent, held), node.name)
            remaining = Amount()
            if node.open and not node.stopped:
                remaining = Amount(max(node.remaining(SPEND), 0), max(node.remaining(TOKENS), 0))
            equal(await self.ledger.remaining(node.name), remaining, node.name)


_CHECKS = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


def check_ledger_model(cases: StateCases, examples: int) -> None:
    """Compare the ledger with the model, over random sequences of operations."""
    with start_blocking_portal(cases.backends[0]) as portal:
        machine = type("Ledgers", (_Ledgers,), {"cases": cases, "portal": portal})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                suppress_health_check=_CHECKS,
            ),
        )
