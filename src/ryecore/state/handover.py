"""Hand a thread's account over to the thread that goes on with it, in one transaction.

Source: decision 45.
"""

import sqlite3
from typing import Final

from ryecore.policy.budget import Amount
from ryecore.state.accounts import keep_to_used, path_of, release
from ryecore.state.refusals import not_registered, refuse_closed, refuse_opening
from ryecore.state.schema import OPEN_ACCOUNT

__all__ = ["hand_over"]

_RESERVE: Final = (
    "UPDATE accounts SET spend_reserved = spend_reserved + ?, tokens_reserved = tokens_reserved + ?"
    " WHERE thread_id = ?"
)


def hand_over(run: sqlite3.Connection, thread_id: str, continuation_id: str) -> Amount:
    """Close an account, and open one below the same parent with what it has left.

    Args:
        run: The transaction: between the two steps nobody can take what is handed over.
        thread_id: The thread that ends.
        continuation_id: The thread that goes on. The registry knows it.

    Returns:
        The new account's ceilings. Said again, they are the same.

    Raises:
        InsufficientBudget: The account was stopped, or is closed.
        BudgetNotRegistered: There is none.
    """
    there = _ceilings(run, continuation_id)
    if there is not None:
        return there
    old = run.execute("SELECT * FROM accounts WHERE thread_id = ?", (thread_id,)).fetchone()
    if old is None:
        raise not_registered(thread_id)
    refuse_closed(thread_id, old["state"], old["stopped"], Amount())
    release(run, thread_id, "continued")
    old = run.execute("SELECT * FROM accounts WHERE thread_id = ?", (thread_id,)).fetchone()
    spend, tokens = _left(old, "spend"), _left(old, "tokens")
    keep_to_used(run, thread_id)
    reserves = (old["reserves_spend"], old["reserves_tokens"])
    opened = (continuation_id, old["parent_id"], *reserves, spend, tokens)
    if not run.execute(OPEN_ACCOUNT, opened).rowcount:
        raise refuse_opening(run, continuation_id)
    for step in path_of(run, old["parent_id"], *reserves):
        run.execute(_RESERVE, (spend * step.on_spend, tokens * step.on_tokens, step.thread_id))
    return Amount(spend, tokens)


def _left(account: sqlite3.Row, dimension: str) -> int:
    """Return what is handed over: less the holds and reservations of children that still run."""
    taken = ("own", "children", "held", "reserved")
    used = sum(int(account[f"{dimension}_{one}"]) for one in taken)
    return max(int(account[f"{dimension}_ceiling"]) - used, 0)


def _ceilings(run: sqlite3.Connection, thread_id: str) -> Amount | None:
    row = run.execute(
        "SELECT spend_ceiling, tokens_ceiling FROM accounts WHERE thread_id = ?", (thread_id,)
    ).fetchone()
    return None if row is None else Amount(row[0], row[1])
