"""A process that takes from one account as much as it can get; others do so at the same time.

`python -m tests.ledger_racing FOLDER WORK NUMBER` says `ready`, waits for a line, and prints what
it got.
"""

import sys
from pathlib import Path
from typing import Final

from ryecore.errors import InsufficientBudget, LimitReached
from ryecore.policy.budget import Amount
from ryecore.state.database import Database
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost
from ryecore.state.registry import MIGRATIONS, ThreadRegistry

__all__ = [
    "HELD",
    "SPENT",
    "books",
    "hold_and_settle",
    "hold_the_last",
    "reserve_the_last",
    "spawn_the_last",
]

HELD: Final = Amount(50, 7)
SPENT: Final = Amount(30, 5)


def books(folder: Path) -> tuple[ThreadRegistry, BudgetLedger]:
    """Open a folder's registry and ledger."""
    database = Database(folder / "threads.db", MIGRATIONS)
    return ThreadRegistry(database), BudgetLedger(database)


def hold_the_last(registry: ThreadRegistry, ledger: BudgetLedger, number: int) -> int:
    """Hold until nothing is available; return how often that succeeded."""
    held = 0
    while True:
        try:
            ledger.hold("r", number, held, HELD)
        except InsufficientBudget:
            return held
        held += 1


def hold_and_settle(registry: ThreadRegistry, ledger: BudgetLedger, number: int) -> int:
    """Hold and settle until nothing is available; return how often that succeeded."""
    settled = 0
    while True:
        try:
            ledger.hold("r", number, settled, HELD)
        except InsufficientBudget:
            return settled
        ledger.settle("r", number, settled, SPENT, snapshot=Cost(turns=settled))
        settled += 1


def reserve_the_last(registry: ThreadRegistry, ledger: BudgetLedger, number: int) -> int:
    """Reserve for children until nothing is available; return the sum in microcents."""
    given = 0
    for turn in range(1000):
        child = f"c-{number}-{turn}"
        registry.register(child, "directive:x", "r")
        try:
            given += ledger.reserve(
                child, "r", Amount(30, 1), reserves_spend=True, reserves_tokens=False
            ).spend_microcents
        except InsufficientBudget:
            break
    return given


def spawn_the_last(registry: ThreadRegistry, ledger: BudgetLedger, number: int) -> int:
    """Count spawns until the limit is reached; return how many."""
    spawned = 0
    while True:
        try:
            registry.count_spawn("r", 333)
        except LimitReached:
            return spawned
        spawned += 1


if __name__ == "__main__":
    folder, work, number = sys.argv[1:]
    both = books(Path(folder))
    print("ready", flush=True)
    sys.stdin.readline()
    print(globals()[work](*both, int(number)))
