"""The budget ledger beside bare SQLite: one process, and eight on one parent's account.

`python -m tests.benchmarks.ledger`. The floor runs the statements that a hold and a settle need at
least, through a gate of its own, in the same run.
"""

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from ryecore.policy.budget import Amount
from ryecore.state.database import Database
from ryecore.state.model import Cost, Durability
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_ledger import SqlLedger
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.waiting import run_blocking
from tests.benchmarks.harness import compare, report

_PROCESSES = 8
_SECONDS = 2.0
_ROOT = "acme/research/research-1739820456"
_CEILING = Amount(2**52, 2**52)
_HELD = Amount(50, 20)
_SPENT = Amount(30, 10)
_HEAD = (4096, "a" * 64)
_SYNCHRONOUS = {"process": "NORMAL", "machine": "FULL"}
_GOALS = {
    "process": "25,000 a second, worst wait 150 ms, fairness 0.7",
    "machine": "3,500 a second, worst wait 150 ms, fairness 0.7",
}

_BARE = (
    "CREATE TABLE threads (thread_id TEXT PRIMARY KEY, lease REAL, cost INTEGER) STRICT",
    "CREATE TABLE accounts (thread_id TEXT PRIMARY KEY, held INTEGER, spent INTEGER,"
    " held_tokens INTEGER, spent_tokens INTEGER) STRICT",
    "CREATE TABLE charges (thread_id TEXT, turn INTEGER, held INTEGER, spent INTEGER,"
    " PRIMARY KEY (thread_id, turn)) STRICT, WITHOUT ROWID",
)


class _Bare:
    """A hold and a settle as bare statements behind the same kind of gate."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._gate = os.open(folder / "bare.gate", os.O_RDWR | os.O_CREAT, 0o600)
        self._connection = sqlite3.connect(folder / "bare.db", isolation_level=None, timeout=30)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")

    def set_up(self) -> None:
        for statement in _BARE:
            self._connection.execute(statement)
        self._connection.execute("INSERT INTO threads VALUES (?, 0, 0)", (_ROOT,))
        self._connection.execute("INSERT INTO accounts VALUES (?, 0, 0, 0, 0)", (_ROOT,))

    def _write(self, *statements: tuple[str, tuple[object, ...]]) -> None:
        run = self._connection.execute
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        run("BEGIN IMMEDIATE")
        for statement, values in statements:
            run(statement, values)
        run("COMMIT")
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def hold(self, turn: int) -> None:
        self._write(
            ("SELECT held, spent FROM accounts WHERE thread_id = ?", (_ROOT,)),
            ("INSERT INTO charges VALUES (?, ?, 50, 0)", (_ROOT, turn)),
            (
                "UPDATE accounts SET held = held + 50, held_tokens = held_tokens + 20"
                " WHERE thread_id = ?",
                (_ROOT,),
            ),
            ("UPDATE threads SET lease = ? WHERE thread_id = ?", (time.time(), _ROOT)),
        )

    def settle(self, turn: int) -> None:
        self._write(
            ("SELECT held FROM charges WHERE thread_id = ? AND turn = ?", (_ROOT, turn)),
            ("UPDATE charges SET spent = 30 WHERE thread_id = ? AND turn = ?", (_ROOT, turn)),
            (
                "UPDATE accounts SET held = held - 50, spent = spent + 30, held_tokens ="
                " held_tokens - 20, spent_tokens = spent_tokens + 10 WHERE thread_id = ?",
                (_ROOT,),
            ),
            ("UPDATE threads SET cost = 30 WHERE thread_id = ?", (_ROOT,)),
        )


def _ledger_in(folder: Path, durability: Durability) -> tuple[SqlRegistry, SqlLedger]:
    database = Database(folder / "threads.db", MIGRATIONS, durability=durability)
    return SqlRegistry(database), SqlLedger(database)


def _set_up(folder: Path, durability: Durability) -> SqlLedger:
    registry, ledger = _ledger_in(folder, durability)
    run_blocking(registry.register(_ROOT, "directive:acme/research"))
    run_blocking(registry.claim(_ROOT))
    run_blocking(ledger.register(_ROOT, _CEILING))
    _Bare(folder, durability).set_up()
    return ledger


def _alone(folder: Path, durability: Durability) -> None:
    ledger, bare = _set_up(folder, durability), _Bare(folder, durability)
    turns = {"ours": 0, "floor": 0}

    def ours_hold() -> None:
        turns["ours"] += 1
        run_blocking(ledger.hold(_ROOT, turns["ours"], 1, _HELD, head=_HEAD))

    def ours() -> None:
        ours_hold()
        run_blocking(
            ledger.settle(_ROOT, turns["ours"], 1, _SPENT, snapshot=Cost(turns["ours"], 5, 5, 30))
        )

    def floor_hold() -> None:
        turns["floor"] += 1
        bare.hold(turns["floor"])

    def floor() -> None:
        floor_hold()
        bare.settle(turns["floor"])

    calls = 100 if durability == "process" else 10
    goal = "70 us for the two" if durability == "process" else "beside the bare statements"
    compare(f"ledger, {durability}: a hold", ours_hold, floor_hold, goal=goal, calls=calls)
    compare(f"ledger, {durability}: hold and settle", ours, floor, goal=goal, calls=calls)


def _contended(folder: Path, durability: Durability) -> None:
    ledger = _set_up(folder, durability)
    rates: dict[str, float] = {}
    for kind in ("bare", "ledger"):
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, kind, str(folder), durability, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(_PROCESSES)
        ]
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()  # it is ready
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        told = [json.loads(worker.communicate(timeout=120)[0]) for worker in workers]
        assert all(worker.returncode == 0 for worker in workers)
        counts = [one["count"] for one in told]
        rates[kind] = sum(counts) / _SECONDS
        if kind == "ledger":
            tree = run_blocking(ledger.tree(_ROOT))
            pairs = sum(counts) // 2
            assert tree.spent == Amount(30 * pairs, 10 * pairs), "the sums are not exact"
            assert tree.held == Amount()
        report(
            f"{kind}, {durability}: {_PROCESSES} processes hold and settle on one account",
            rates[kind],
            "transactions/s",
            worst_wait_ms=max(one["worst_ms"] for one in told),
            fairness=min(counts) / max(counts),
            ratio=rates[kind] / rates["bare"],
            goal=_GOALS[durability],
        )


def _work(kind: str, folder: Path, durability: Durability, number: int) -> None:
    """One of the eight: as many holds and settles as it gets through."""
    hold, settle = _operations(kind, folder, durability)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    turn, worst, begun = number * 10**7, 0.0, time.perf_counter()
    first, before = turn, begun
    while before - begun < _SECONDS:
        turn += 1
        for operation in (hold, settle):
            operation(turn)
            now = time.perf_counter()
            worst = max(worst, now - before)
            before = now
    sys.stdout.write(json.dumps({"count": 2 * (turn - first), "worst_ms": worst * 1e3}))


def _operations(
    kind: str, folder: Path, durability: Durability
) -> tuple[Callable[[int], object], Callable[[int], object]]:
    if kind == "bare":
        bare = _Bare(folder, durability)
        return bare.hold, bare.settle
    _, ledger = _ledger_in(folder, durability)
    cost = Cost(1, 5, 5, 30)
    return (
        lambda turn: run_blocking(ledger.hold(_ROOT, turn, 1, _HELD, head=_HEAD)),
        lambda turn: run_blocking(ledger.settle(_ROOT, turn, 1, _SPENT, snapshot=cost)),
    )


def run() -> None:
    """Print the figures."""
    for durability in get_args(Durability):
        for measure in (_alone, _contended):
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), durability)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _work(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))  # type: ignore[arg-type]
    else:
        run()
