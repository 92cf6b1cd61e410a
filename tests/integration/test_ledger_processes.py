"""The ledger and the registry under real processes: races, and kill -9 at any point."""

import json
import os
import random
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ryecore.lillux import current_process
from ryecore.policy.budget import Amount, TreeSum
from ryecore.state.database import Database
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost
from ryecore.state.registry import MIGRATIONS, ThreadRegistry
from tests.forking import ROOT, Forked
from tests.ledger_racing import (
    HELD,
    SPENT,
    books,
    hold_and_settle,
    hold_the_last,
    reserve_the_last,
    spawn_the_last,
)

PROCESSES = 8


def root(folder: Path, ceiling: Amount) -> tuple[ThreadRegistry, BudgetLedger]:
    registry, ledger = books(folder)
    registry.register("r", "directive:x")
    registry.claim("r")
    ledger.register("r", ceiling)
    return registry, ledger


def race(folder: Path, work: Callable[[ThreadRegistry, BudgetLedger, int], int]) -> list[int]:
    """What each of eight processes got, when they began together."""
    running = [
        Forked(
            ["tests.ledger_racing", str(folder), work.__name__, str(number)],
            cwd=ROOT,
            env=dict(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    got = []
    for one in running:
        said, problem = one.communicate(timeout=60)
        assert one.returncode == 0, problem
        got.append(int(said))
    return got


def test_eight_processes_never_hold_more_than_there_is(tmp_path: Path) -> None:
    _, ledger = root(tmp_path, Amount(50 * 200 + 49, 10**6))
    assert sum(race(tmp_path, hold_the_last)) == 200
    account = ledger.account("r")
    assert (account.held, account.available.spend_microcents) == (Amount(10_000, 1400), 49)


def test_eight_processes_spend_exactly_what_they_settle(tmp_path: Path) -> None:
    _, ledger = root(tmp_path, Amount(30_000, 10**6))
    settled = sum(race(tmp_path, hold_and_settle))
    account = ledger.account("r")
    assert account.own == Amount(30 * settled, 5 * settled)
    assert account.held == Amount()
    assert len(ledger.charges("r")) == settled
    assert account.own.spend_microcents > 30_000 - PROCESSES * 50  # no more than that was refused
    assert account.available.covers(Amount())


def test_eight_processes_never_reserve_more_than_there_is(tmp_path: Path) -> None:
    _, ledger = root(tmp_path, Amount(2_000, 10**6))
    assert sum(race(tmp_path, reserve_the_last)) == 2_000
    assert ledger.account("r").available.spend_microcents == 0


def test_eight_processes_never_spawn_more_than_they_may(tmp_path: Path) -> None:
    registry, _ = root(tmp_path, Amount())
    assert sum(race(tmp_path, spawn_the_last)) == 333
    assert registry.get_thread("r").spawn_count == 333


def child_of(folder: Path, tell: int) -> None:
    """Claims the child `c` and spends for ever; says what it has done once it was committed."""
    registry, ledger = books(folder)
    registry.claim("c", current_process())
    turn = 0
    while True:
        ledger.hold("c", turn, 1, HELD, head=(turn, "digest"))
        os.write(tell, f"h {turn}\n".encode())
        ledger.settle("c", turn, 1, SPENT, snapshot=Cost(turns=turn))
        os.write(tell, f"s {turn}\n".encode())
        turn += 1


@pytest.mark.parametrize("seed", range(12))
def test_who_is_killed_anywhere_leaves_nothing_unpaid(tmp_path: Path, seed: int) -> None:
    registry, ledger = root(tmp_path, Amount(10**9, 10**9))
    registry.register("c", "directive:x", "r")
    ledger.reserve("c", "r", Amount(10**6, 10**6), reserves_spend=True, reserves_tokens=False)
    heard, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            child_of(tmp_path, tell)
        finally:
            os._exit(1)
    os.close(tell)
    with os.fdopen(heard) as lines:
        said = [lines.readline() for _ in range(random.Random(seed).randrange(1, 60))]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said += lines.readlines()
    assert registry.settle_abandoned(registry.list_active()) == ("c",)
    charges = {one.turn: one for one in ledger.charges("c")}
    assert {one.mark for one in charges.values()} <= {"counted", "assumed"}
    for line in said:
        what, turn = line.split()
        charge = charges[int(turn)]  # what was told was kept
        assert charge.mark == "counted" or (what == "h" and charge.actual == HELD)
    assert sum(one.mark == "assumed" for one in charges.values()) <= 1
    paid = sum((one.actual for one in charges.values()), Amount())
    parent = ledger.account("r")
    assert (parent.children, parent.held, parent.reserved) == (paid, Amount(), Amount())
    assert ledger.tree("r") == TreeSum(paid, Amount(), 2)


class KilledAt:
    """A real connection whose process dies right before one of its statements."""

    def __init__(self, connection: sqlite3.Connection, statement: int) -> None:
        self._connection = connection
        self._left = statement

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return self._connection.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_every_statement_of_a_request_may_be_the_last(tmp_path: Path) -> None:
    """A hold and a settlement are there whole, or not at all, and so is the sweep after them."""
    states: set[str] = set()
    statement, ended = 0, False
    while not ended:
        folder = tmp_path / str(statement)
        folder.mkdir()
        registry, ledger = root(folder, Amount(1000, 1000))
        registry.register("c", "directive:x", "r")
        ledger.reserve("c", "r", Amount(500, 500), reserves_spend=True, reserves_tokens=False)
        child = os.fork()
        if child == 0:
            try:
                database = Database(folder / "threads.db", MIGRATIONS)
                ThreadRegistry(database).claim("c", current_process())
                database._connection = KilledAt(database._connection, statement)  # type: ignore[assignment]
                BudgetLedger(database).hold("c", 1, 1, HELD)
                BudgetLedger(database).settle("c", 1, 1, SPENT, snapshot=Cost(turns=1))
                ThreadRegistry(database).settle("c", "completed", {})
                os._exit(0)
            finally:
                os._exit(1)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        registry.settle_abandoned(registry.list_active())
        charges = ledger.charges("c")
        paid = sum((one.actual for one in charges), Amount())
        states.add(json.dumps([[one.mark for one in charges], registry.get_thread("c").status]))
        assert paid in (Amount(), HELD, SPENT)
        assert ledger.account("r").available == Amount(1000, 1000) - paid
        assert ledger.tree("r") == TreeSum(paid, Amount(), 2)
        statement += 1
    assert states == {
        '[[], "error"]',
        '[["assumed"], "error"]',
        '[["counted"], "error"]',
        '[["counted"], "completed"]',
    }
    assert statement > 15
