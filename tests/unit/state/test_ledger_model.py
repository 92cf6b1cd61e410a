"""The ledger against a plain model of the tree, which adds everything up anew each time."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from ryecore.errors import BudgetError, InsufficientBudget
from ryecore.policy.budget import Amount
from ryecore.state.database import Database
from ryecore.state.ledger import BudgetLedger
from ryecore.state.registry import MIGRATIONS, ThreadRegistry

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
        """The least on the path."""
        least = self.left(d)
        return min(least, self.above.remaining(d)) if self.above and self.shares(d) else least

    def subtree(self) -> "list[Node]":
        return [self, *(found for one in self.below for found in one.subtree())]


def amount(pair: Pair) -> Amount:
    return Amount(*pair)


class Ledgers(RuleBasedStateMachine):
    """Everything that can be asked of a ledger, in any order."""

    nodes = Bundle("nodes")
    requests: Bundle[tuple[Node, int]] = Bundle("requests")
    settled: Bundle[tuple[Node, int]] = Bundle("settled")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.database = Database(Path(self.folder.name) / "threads.db", MIGRATIONS)
        self.registry = ThreadRegistry(self.database)
        self.ledger = BudgetLedger(self.database)
        self.all: list[Node] = []
        self.within = True

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    @initialize(target=nodes, ceiling=st.tuples(st.integers(50, 300), st.integers(50, 300)))
    def root(self, ceiling: Pair) -> Node:
        self.registry.register("t-0", "directive:x")
        self.ledger.register("t-0", amount(ceiling))
        self.all.append(Node("t-0", None, ceiling))
        return self.all[0]

    @rule(
        target=nodes,
        above=nodes,
        wanted=st.tuples(st.integers(0, 200), st.integers(0, 200)),
        reserves=st.tuples(st.booleans(), st.booleans()),
    )
    def reserve(self, above: Node, wanted: Pair, reserves: tuple[bool, bool]) -> Node:
        name = f"t-{len(self.all)}"
        ceiling = (
            min(wanted[SPEND], max(above.remaining(SPEND), 0)),
            min(wanted[TOKENS], max(above.remaining(TOKENS), 0)),
        )
        refused = not above.open or above.stopped
        for d in (SPEND, TOKENS):
            nothing = wanted[d] > 0 and ceiling[d] == 0
            refused |= nothing and (reserves[d] or above.ceiling[d] > 0)
        if len(self.registry.find_by_prefix(name)) == 0:
            self.registry.register(name, "directive:x", above.name)
        for _ in range(2):
            try:
                given = self.ledger.reserve(
                    name, above.name, amount(wanted),
                    reserves_spend=reserves[SPEND], reserves_tokens=reserves[TOKENS],
                )  # fmt: skip
            except InsufficientBudget:
                assert refused
                self.all.append(Node(name, None, (0, 0), open=False))  # its name is taken
                return above
            assert not refused
            assert given == amount(ceiling)
        child = Node(name, above, ceiling, reserves)
        above.below.append(child)
        self.all.append(child)
        return child

    @rule(target=requests, node=nodes, wanted=SMALL)
    def hold(self, node: Node, wanted: Pair) -> tuple[Node, int]:
        turn = len(node.tried)
        fits = all(wanted[d] == 0 or wanted[d] <= node.remaining(d) for d in (SPEND, TOKENS))
        try:
            for _ in range(2):
                self.ledger.hold(node.name, turn, 1, amount(wanted))
        except InsufficientBudget:
            assert not (fits and node.open and not node.stopped)
            return node, -1
        assert fits
        assert node.open
        assert not node.stopped
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

    def _settle(self, node: Node, turn: int, actual: Pair, mark: str = "counted") -> None:
        tried = node.tried[turn]
        told = self.ledger.settle(node.name, turn, 1, amount(actual), mark=mark)  # type: ignore[arg-type]
        if tried.mark not in ("counted", "estimated"):
            # What was held for it may have been given away meanwhile.
            later = any(actual[d] > tried.actual[d] for d in (SPEND, TOKENS))
            self.within &= tried.mark == "held" or not later
            tried.actual, tried.mark = actual, mark
        over = any(tried.actual[d] > tried.held[d] for d in (SPEND, TOKENS))
        assert told.overspent == over
        if over:
            self.within = False
            for one in node.subtree():
                one.stopped = True
        assert told.stopped == node.stopped

    @rule(target=settled, request=consumes(requests))
    def free(self, request: tuple[Node, int]) -> tuple[Node, int]:
        node, turn = request
        if turn >= 0:
            self.ledger.free(node.name, turn, 1)
            node.tried[turn].actual, node.tried[turn].mark = (0, 0), "freed"
        return request

    @rule(request=settled)
    def free_too_late(self, request: tuple[Node, int]) -> None:
        node, turn = request
        if turn >= 0 and node.tried[turn].mark in ("counted", "estimated"):
            with pytest.raises(BudgetError):
                self.ledger.free(node.name, turn, 1)

    @precondition(lambda self: len(self.all) > 3)
    @rule(node=nodes, said=SMALL)
    def report(self, node: Node, said: Pair) -> None:
        for _ in range(2):
            self.ledger.report_actual(node.name, amount(said))
        for d in (SPEND, TOKENS):
            more = max(said[d] - node.own(d), 0)
            node.reported[d] += more
            self.within &= not more

    @rule(node=nodes)
    def cascade(self, node: Node) -> None:
        for _ in range(2):
            self.ledger.cascade_spend(node.name)
        for d in (SPEND, TOKENS):
            if node.open:
                node.cascaded[d] = node.own(d) + node.children(d)

    @precondition(lambda self: len(self.all) > 3)
    @rule(node=nodes, in_registry=st.booleans())
    def release(self, node: Node, in_registry: bool) -> None:
        if in_registry and node.open:
            self.registry.settle(node.name, "completed", {})
        else:
            self.ledger.release(node.name, "completed")
        for one in node.tried:
            if node.open and one.mark == "held":
                one.actual, one.mark = one.held, "assumed"
        node.open = False

    @invariant()
    def the_books_agree(self) -> None:
        for node in self.all[0].subtree() if self.all else ():
            account = self.ledger.account(node.name)
            for found, expected in (
                (account.own, node.own), (account.children, node.children),
                (account.held, node.held), (account.reserved, node.reserved),
                (account.available, node.left),
            ):  # fmt: skip
                assert found == Amount(expected(SPEND), expected(TOKENS)), node.name
            assert (account.state == "open", account.stopped) == (node.open, node.stopped)
            if self.within:
                assert account.available.covers(Amount())

    @invariant()
    def the_sums_are_exact(self) -> None:
        for node in self.all[0].subtree() if self.all else ():
            below = node.subtree()
            tree = self.ledger.tree(node.name)
            assert tree.threads == len(below)
            for found, d in (
                (tree.spent.spend_microcents, SPEND), (tree.spent.tokens, TOKENS),
            ):  # fmt: skip
                assert found == sum(one.own(d) for one in below)
            held = [
                sum(tried.held[d] for one in below for tried in one.tried if tried.mark == "held")
                for d in (SPEND, TOKENS)
            ]
            assert tree.held == Amount(*held)
            remaining = Amount()
            if node.open and not node.stopped:
                remaining = Amount(max(node.remaining(SPEND), 0), max(node.remaining(TOKENS), 0))
            assert self.ledger.remaining(node.name) == remaining


TestLedgers = Ledgers.TestCase
TestLedgers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
