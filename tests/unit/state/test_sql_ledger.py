"""The ledger in SQLite: what it keeps in the thread's row, and what each statement leaves."""

import json
import os
import random
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ryecore.lillux import current_process
from ryecore.policy.budget import Amount, TreeSum
from ryecore.state.database import Database
from ryecore.state.model import Cost
from ryecore.state.owners import moment
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_ledger import SqlLedger
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.waiting import run_blocking


class Books:
    """A registry and a ledger, with shorter ways to fill them."""

    def __init__(self, folder: Path) -> None:
        database = Database(folder / "threads.db", MIGRATIONS)
        self.registry = SqlRegistry(database)
        self.ledger = SqlLedger(database)

    def root(self, thread_id: str, spend: int, tokens: int) -> None:
        run_blocking(self.registry.register(thread_id, "directive:x"))
        run_blocking(self.ledger.register(thread_id, Amount(spend, tokens)))

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
        run_blocking(self.registry.register(thread_id, "directive:x", parent_id))
        return run_blocking(
            self.ledger.reserve(
                thread_id,
                parent_id,
                Amount(spend, tokens),
                reserves_spend=spend_aside,
                reserves_tokens=tokens_aside,
            )
        )

    def spend(self, thread_id: str, turn: int, spend: int, tokens: int) -> None:
        run_blocking(self.ledger.hold(thread_id, turn, 1, Amount(spend, tokens)))
        run_blocking(self.ledger.settle(thread_id, turn, 1, Amount(spend, tokens)))


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)


def test_hold_and_settle_keep_the_threads_row(books: Books) -> None:
    books.root("r", 100, 100)
    run_blocking(books.registry.claim("r"))
    with books.registry._database.write() as run:
        run.execute("UPDATE threads SET lease_until = 0, lease_machine_s = 0")
    run_blocking(books.ledger.hold("r", 1, 1, Amount(5, 5), head=(512, "abc")))
    record = run_blocking(books.registry.get_thread("r"))
    assert record.lease_until > moment().unix_s
    assert record.lease_machine_s > moment().machine_s
    assert record.transcript_head == (512, "abc")
    run_blocking(books.ledger.hold("r", 1, 2, Amount(5, 5)))  # without a head the last one stays
    assert run_blocking(books.registry.get_thread("r")).transcript_head == (512, "abc")
    run_blocking(books.registry.request_cancel("r"))
    cost = Cost(1, 2, 3, 4)
    assert run_blocking(
        books.ledger.settle("r", 1, 2, Amount(1, 1), snapshot=cost)
    ).cancel_requested
    assert run_blocking(books.registry.get_thread("r")).cost == cost


def test_a_tree_of_a_thousand_threads_sums_up_exactly(books: Books) -> None:
    chance = random.Random(3)
    books.root("t-0", 2**52, 2**52)
    spent, own = Amount(), {"t-0": Amount()}
    for number in range(1, 1000):
        parent, name = f"t-{chance.randrange(max(0, number - 40), number)}", f"t-{number}"
        left = run_blocking(books.ledger.remaining(parent)).spend_microcents
        aside = left > 10**6 and chance.random() < 0.3
        books.child(name, parent, left // 3 if aside else left, 2**52, spend_aside=aside)
        held = Amount(chance.randrange(500), chance.randrange(500))
        actual = held.at_most(Amount(chance.randrange(500), chance.randrange(500)))
        run_blocking(books.ledger.hold(name, 1, 1, held))
        run_blocking(books.ledger.settle(name, 1, 1, actual))
        own[name] = actual
        spent += actual
    for name in chance.sample(list(own), len(own)):  # they end in any order
        run_blocking(books.registry.settle(name, "completed", {}))
    assert run_blocking(books.ledger.tree("t-0")) == TreeSum(spent, Amount(), 1000)
    root = run_blocking(books.ledger.account("t-0"))
    assert (root.total, root.held, root.reserved) == (spent, Amount(), Amount())
    for name in own:
        assert (
            run_blocking(books.ledger.account(name)).total
            == run_blocking(books.ledger.tree(name)).spent
        )


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
        books = Books(folder)
        registry, ledger = books.registry, books.ledger
        books.root("r", 1000, 1000)
        run_blocking(registry.claim("r"))
        books.child("c", "r", 500, 500, spend_aside=True)
        child = os.fork()
        if child == 0:
            try:
                database = Database(folder / "threads.db", MIGRATIONS)
                run_blocking(SqlRegistry(database).claim("c", current_process()))
                database._connection = KilledAt(database._connection, statement)  # type: ignore[assignment]
                run_blocking(SqlLedger(database).hold("c", 1, 1, Amount(50, 7)))
                run_blocking(
                    SqlLedger(database).settle("c", 1, 1, Amount(30, 5), snapshot=Cost(turns=1))
                )
                run_blocking(SqlRegistry(database).settle("c", "completed", {}))
                os._exit(0)
            finally:
                os._exit(1)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        run_blocking(registry.settle_abandoned(run_blocking(registry.list_active())))
        charges = run_blocking(ledger.charges("c"))
        paid = sum((one.actual for one in charges), Amount())
        states.add(
            json.dumps(
                [[one.mark for one in charges], run_blocking(registry.get_thread("c")).status]
            )
        )
        assert paid in (Amount(), Amount(50, 7), Amount(30, 5))
        assert run_blocking(ledger.account("r")).available == Amount(1000, 1000) - paid
        assert run_blocking(ledger.tree("r")) == TreeSum(paid, Amount(), 2)
        statement += 1
    assert states == {
        '[[], "error"]',
        '[["assumed"], "error"]',
        '[["counted"], "error"]',
        '[["counted"], "completed"]',
    }
    assert statement > 15
