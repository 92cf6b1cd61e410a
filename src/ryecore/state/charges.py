"""The rows of requests: one a try, which is how a request is never charged twice."""

import sqlite3
from typing import Final

from ryecore.errors import BudgetError

__all__ = ["MARK", "find", "place"]

_PLACE: Final = (
    "INSERT INTO charges (thread_id, turn, attempt, held_spend, held_tokens) VALUES (?, ?, ?, ?, ?)"
)
_FIND: Final = (
    "SELECT held_spend, held_tokens, spend, tokens, mark FROM charges"
    " WHERE thread_id = ? AND turn = ? AND attempt = ?"
)
MARK: Final = (
    "UPDATE charges SET spend = ?, tokens = ?, mark = ?"
    " WHERE thread_id = ? AND turn = ? AND attempt = ?"
)
"""Says what a request cost, and how that is known."""


def place(
    run: sqlite3.Connection, thread_id: str, turn: int, attempt: int, spend: int, tokens: int
) -> bool:
    """Write a hold down, and say whether it is new.

    Raises:
        BudgetError: This try was settled already, or another amount is held for it.
    """
    try:
        run.execute(_PLACE, (thread_id, turn, attempt, spend, tokens))
    except sqlite3.IntegrityError:
        found = run.execute(_FIND, (thread_id, turn, attempt)).fetchone()
        if found is None:
            raise
        if tuple(found) == (spend, tokens, 0, 0, "held"):
            return False
        raise BudgetError(
            f"The try {attempt} of turn {turn} of {thread_id} has a charge already.",
            next_step="Give each try a number of its own.",
            account=thread_id,
        ) from None
    return True


def find(
    run: sqlite3.Connection, thread_id: str, turn: int, attempt: int
) -> tuple[int, int, int, int, str]:
    """What was held for a try, what it cost, and its mark.

    Raises:
        BudgetError: Nothing was held for it.
    """
    found = run.execute(_FIND, (thread_id, turn, attempt)).fetchone()
    if found is None:
        raise BudgetError(
            f"Nothing was held for the try {attempt} of turn {turn} of {thread_id}.",
            next_step="Hold what a request can cost before it is sent.",
            account=thread_id,
        )
    return tuple(found)
