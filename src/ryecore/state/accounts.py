"""The arithmetic of accounts, as SQL within the caller's transaction.

A thread's holds, spending and reservations are charged along a path: to its own account and, for
money and tokens apart, to each account above it, up to and including the nearest open one with a
reservation of its own. A released account has no reservation any more, so threads that still run
below it are charged further up.

Source: docs/design/threads.md#budget; decisions 39 and 40.
"""

from typing import Final, NamedTuple

from ryecore.errors import BudgetError
from ryecore.policy.budget import MOST, Account, Amount, outstanding
from ryecore.state.refusals import not_registered, refuse_closed, refuse_opening
from ryecore.state.schema import IS_ACTIVE, OPEN_ACCOUNT, below
from ryecore.state.statements import Row, Statements

__all__ = [
    "ACCOUNT",
    "MARK",
    "MARK_HELD",
    "RESERVE",
    "Step",
    "account_of",
    "add_to_cost",
    "cascade",
    "charge",
    "close_account",
    "find",
    "is_placed",
    "keep_to_used",
    "open_account",
    "path_of",
    "place",
    "release",
    "stop_subtree",
    "transfer_account",
]

# ruff: noqa: S608 - what is spliced into statements is this module's own constants


class Step(NamedTuple):
    """One account on a path, and whether money and tokens are charged to it (1) or not (0)."""

    thread_id: str
    on_spend: int
    on_tokens: int
    spend_left: int
    tokens_left: int
    spend_unspent: int
    tokens_unspent: int
    state: str
    stopped: int

    @property
    def left(self) -> Amount:
        """The amount that may still be held here."""
        return Amount(max(self.spend_left, 0), max(self.tokens_left, 0))

    def share(self, *, reserves_spend: bool, reserves_tokens: bool) -> Amount:
        """The amount that a child may get here, without a bound on what isn't charged here.

        One that reserves gets what is left. One that shares gets what isn't spent, since what
        others hold may come back; its holds are bounded by what is left then.
        """
        spend = self.spend_left if reserves_spend else self.spend_unspent
        tokens = self.tokens_left if reserves_tokens else self.tokens_unspent
        return Amount(
            max(spend, 0) if self.on_spend else MOST, max(tokens, 0) if self.on_tokens else MOST
        )


_STEP: Final = """SELECT parent_id, reserves_spend, reserves_tokens,
    spend_ceiling - spend_own - spend_children - spend_held - spend_reserved,
    tokens_ceiling - tokens_own - tokens_children - tokens_held - tokens_reserved,
    spend_ceiling - spend_own - spend_children, tokens_ceiling - tokens_own - tokens_children,
    state, stopped FROM accounts WHERE thread_id = ?"""

_ABOVE: Final = "RETURNING parent_id, state <> 'open', reserves_spend, reserves_tokens, stopped"
_CHARGE_OWN: Final = f"""UPDATE accounts SET
    spend_held = spend_held - ?, spend_own = spend_own + ?,
    tokens_held = tokens_held - ?, tokens_own = tokens_own + ? WHERE thread_id = ? {_ABOVE}"""
_CHARGE_ABOVE: Final = f"""UPDATE accounts SET
    spend_held = spend_held - ?, spend_children = spend_children + ?,
    tokens_held = tokens_held - ?, tokens_children = tokens_children + ?
    WHERE thread_id = ? {_ABOVE}"""
_MOVE: Final = """UPDATE accounts SET
    spend_children = spend_children + ?, spend_held = spend_held + ?,
    spend_reserved = spend_reserved + ?,
    tokens_children = tokens_children + ?, tokens_held = tokens_held + ?,
    tokens_reserved = tokens_reserved + ? WHERE thread_id = ?"""

_OPEN: Final = (
    "SELECT *, (SELECT count(*) FROM charges WHERE charges.thread_id = accounts.thread_id"
    " AND mark = 'held') AS open_charges FROM accounts WHERE thread_id = ? AND state = 'open'"
)

_STOP: Final = (
    f"{below('accounts')} UPDATE accounts SET stopped = TRUE"
    " WHERE thread_id IN (SELECT thread_id FROM below)"
)

_KEEP: Final = (
    f"{below('accounts')} UPDATE accounts SET"
    " spend_ceiling = min(spend_ceiling,"
    " spend_own + spend_children + spend_held + spend_reserved),"
    " tokens_ceiling = min(tokens_ceiling,"
    " tokens_own + tokens_children + tokens_held + tokens_reserved)"
    " WHERE thread_id = ? AND state <> 'open' AND EXISTS (SELECT 1 FROM accounts AS one"
    " JOIN below ON below.thread_id = one.thread_id WHERE one.state = 'open')"
)


def path_of(run: Statements, thread_id: str | None, spend: int = 1, tokens: int = 1) -> list[Step]:
    """Return the accounts that a thread's requests are charged to, its own first.

    Follows the path of money where `spend` is 1, and that of tokens where `tokens` is. There is
    none above a root (None).
    """
    path: list[Step] = []
    while thread_id is not None and (spend or tokens):
        row = run.execute(_STEP, (thread_id,)).fetchone()
        if row is None:
            raise not_registered(thread_id)
        above, reserves_spend, reserves_tokens, *step = row
        path.append(Step._make((thread_id, spend, tokens, *step)))
        state = path[-1].state
        if state == "open":
            spend = 0 if reserves_spend else spend
            tokens = 0 if reserves_tokens else tokens
        thread_id = above
    return path


def charge(run: Statements, thread_id: str, freed: tuple[int, int], spent: tuple[int, int]) -> bool:
    """Free a held amount and add a spent one along a thread's path; both are money and tokens.

    Returns whether the thread's account is stopped.
    """
    statement, spend, tokens, is_stopped = _CHARGE_OWN, 1, 1, False
    above: str | None = thread_id
    while above is not None and (spend or tokens):
        row = run.execute(
            statement,
            (freed[0] * spend, spent[0] * spend, freed[1] * tokens, spent[1] * tokens, above),
        ).fetchone()
        if row is None:
            raise not_registered(above)
        above, is_closed, reserves_spend, reserves_tokens, stopped = row
        if statement is _CHARGE_OWN:
            statement, is_stopped = _CHARGE_ABOVE, bool(stopped)
        if not is_closed:
            spend = 0 if reserves_spend else spend
            tokens = 0 if reserves_tokens else tokens
    return is_stopped


def cascade(run: Statements, thread_id: str) -> None:
    """Charge a thread's total, as far as it isn't yet, to the accounts that reserved its budget."""
    row = _whole(run, thread_id)
    if row["state"] != "open" or row["parent_id"] is None:
        return
    _move(run, row, released=False)
    run.execute(
        "UPDATE accounts SET spend_cascaded = spend_own + spend_children,"
        " tokens_cascaded = tokens_own + tokens_children WHERE thread_id = ?",
        (thread_id,),
    )


def release(run: Statements, thread_id: str, status: str) -> None:
    """Close a thread's account as `close_account` does, if it has an open one."""
    row = open_account(run, thread_id)
    if row is not None:
        close_account(run, thread_id, status, row)


def open_account(run: Statements, thread_id: str) -> Row | None:
    """Return a thread's open account, with the number of its open holds; None if it has none."""
    found: Row | None = run.execute(_OPEN, (thread_id,)).fetchone()
    return found


def close_account(run: Statements, thread_id: str, status: str, row: Row) -> None:
    """Charge a thread's open holds in full, cascade, and release its reservation.

    Holds and reservations below it stay reserved above it. `row` is what `open_account` found.
    """
    if row["open_charges"]:
        _assume(run, thread_id)
        row = _whole(run, thread_id)
    if row["parent_id"] is not None:
        _move(run, row, released=True)
    run.execute(
        "UPDATE accounts SET state = ?, spend_cascaded = spend_own + spend_children,"
        " tokens_cascaded = tokens_own + tokens_children WHERE thread_id = ?",
        (status, thread_id),
    )


def keep_to_used(run: Statements, thread_id: str) -> None:
    """Lower a closed account to its spent and reserved amounts, if threads below it still run.

    The rest is granted to the continuation, so threads that share this account get none of it.
    """
    run.execute(_KEEP, (thread_id, thread_id))


def stop_subtree(run: Statements, thread_id: str) -> None:
    """Refuse every later hold and reservation of a thread and its subtree."""
    run.execute(_STOP, (thread_id,))


_ADD_TO_COST: Final = (
    "UPDATE threads SET spend_microcents = spend_microcents + ?, input_tokens = input_tokens + ?,"
    " cost_estimated = TRUE WHERE thread_id = ?"
)


def _assume(run: Statements, thread_id: str) -> None:
    """Settle open requests, whose costs will never be reported, at the full amounts held."""
    spend, tokens = run.execute(
        "SELECT CAST(sum(held_spend) AS BIGINT), CAST(sum(held_tokens) AS BIGINT) FROM charges"
        " WHERE thread_id = ? AND mark = 'held'",
        (thread_id,),
    ).fetchone()
    run.execute(
        "UPDATE charges SET mark = 'assumed', spend = held_spend, tokens = held_tokens"
        " WHERE thread_id = ? AND mark = 'held'",
        (thread_id,),
    )
    charge(run, thread_id, (spend, tokens), (spend, tokens))
    add_to_cost(run, thread_id, spend, tokens)


def add_to_cost(run: Statements, thread_id: str, spend: int, tokens: int) -> None:
    """Add what was charged without the thread to the cost that its row shows.

    The tokens count as read: whether they were read or written isn't known.
    """
    run.execute(_ADD_TO_COST, (spend, tokens, thread_id))


def _whole(run: Statements, thread_id: str) -> Row:
    row: Row | None = run.execute(
        "SELECT * FROM accounts WHERE thread_id = ?", (thread_id,)
    ).fetchone()
    if row is None:
        raise not_registered(thread_id)
    return row


def _move(run: Statements, row: Row, *, released: bool) -> None:
    """Charge the uncharged part above a reservation, and lower the reservation by as much."""
    spend = _moved(row, "spend", released=released)
    tokens = _moved(row, "tokens", released=released)
    for step in path_of(run, row["parent_id"], row["reserves_spend"], row["reserves_tokens"]):
        run.execute(
            _MOVE,
            (
                *(one * step.on_spend for one in spend),
                *(one * step.on_tokens for one in tokens),
                step.thread_id,
            ),
        )


def _moved(row: Row, dimension: str, *, released: bool) -> tuple[int, int, int]:
    """Return the amounts that accounts above gain in children, held and reserved."""
    total = row[f"{dimension}_own"] + row[f"{dimension}_children"]
    ceiling, cascaded = row[f"{dimension}_ceiling"], row[f"{dimension}_cascaded"]
    before = outstanding(ceiling, cascaded)
    if not released:
        return (total - cascaded, 0, outstanding(ceiling, total) - before)
    return (
        total - cascaded,
        row[f"{dimension}_held"],
        row[f"{dimension}_reserved"] - before,
    )


ACCOUNT: Final = (
    "SELECT parent_id, state, reserves_spend, reserves_tokens, stopped,"
    " EXISTS (SELECT 1 FROM threads AS child WHERE child.parent_id = accounts.thread_id"
    f" AND child.{IS_ACTIVE}) AS has_running_children,"
    " spend_ceiling, tokens_ceiling, spend_own, tokens_own, spend_children, tokens_children,"
    " spend_held, tokens_held, spend_reserved, tokens_reserved FROM accounts WHERE thread_id = ?"
)
"""The SQL that finds what `account_of` reads."""


def account_of(thread_id: str, row: Row) -> Account:
    """Return a row of `ACCOUNT` as an account."""
    parent_id, state, reserves_spend, reserves_tokens, stopped, has_running, *amounts = row
    spend, tokens = amounts[::2], amounts[1::2]
    ceiling, own, children, held, reserved = map(Amount, spend, tokens)
    return Account(
        thread_id=thread_id,
        parent_id=parent_id,
        ceiling=ceiling,
        own=own,
        children=children,
        held=held,
        reserved=reserved,
        reserves_spend=bool(reserves_spend),
        reserves_tokens=bool(reserves_tokens),
        state=state,
        stopped=bool(stopped),
        has_running_children=bool(has_running),
    )


_PLACE: Final = (
    "INSERT INTO charges (thread_id, turn, attempt, held_spend, held_tokens) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
_FIND: Final = (
    "SELECT held_spend, held_tokens, spend, tokens, mark FROM charges"
    " WHERE thread_id = ? AND turn = ? AND attempt = ?"
)
MARK: Final = (
    "UPDATE charges SET spend = ?, tokens = ?, mark = ?"
    " WHERE thread_id = ? AND turn = ? AND attempt = ?"
)
"""The SQL that stores the cost of a request, and how it is known."""

MARK_HELD: Final = f"{MARK} AND mark = 'held' RETURNING held_spend, held_tokens"
"""The same for a request that is still held."""


def place(
    run: Statements, thread_id: str, turn: int, attempt: int, spend: int, tokens: int
) -> bool:
    """Store a hold, and return whether it is new. A try that has another charge is refused."""
    if run.execute(_PLACE, (thread_id, turn, attempt, spend, tokens)).rowcount:
        return True
    is_placed(run, thread_id, turn, attempt, spend, tokens)
    return False


def is_placed(
    run: Statements, thread_id: str, turn: int, attempt: int, spend: int, tokens: int
) -> bool:
    """Return whether a try has this hold. One that has another charge is refused."""
    found = run.execute(_FIND, (thread_id, turn, attempt)).fetchone()
    if found is not None and tuple(found) != (spend, tokens, 0, 0, "held"):
        raise BudgetError(
            f"The try {attempt} of turn {turn} of {thread_id} has a charge already.",
            next_step="Give each try a number of its own.",
            account=thread_id,
        )
    return found is not None


def find(
    run: Statements, thread_id: str, turn: int, attempt: int
) -> tuple[int, int, int, int, str]:
    """Return the hold of a try, its cost, and its mark. A try without a hold is refused."""
    found = run.execute(_FIND, (thread_id, turn, attempt)).fetchone()
    if found is None:
        raise BudgetError(
            f"Nothing was held for the try {attempt} of turn {turn} of {thread_id}.",
            next_step="Hold what a request can cost before it is sent.",
            account=thread_id,
        )
    return tuple(found)


RESERVE: Final = (
    "UPDATE accounts SET spend_reserved = spend_reserved + ?, tokens_reserved = tokens_reserved + ?"
    " WHERE thread_id = ?"
)
"""The SQL that reserves money and tokens of an account for a child."""


def transfer_account(run: Statements, thread_id: str, continuation_id: str) -> Amount:
    """Close an account, and open one below the same parent with the rest of its budget.

    One transaction, so that no other thread can take the rest in between. Returns the new account's
    ceilings; a repeated call returns the same.
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
    opened = (old["parent_id"], *reserves, spend, tokens, continuation_id)
    if not run.execute(OPEN_ACCOUNT, opened).rowcount:
        raise refuse_opening(run, continuation_id)
    for step in path_of(run, old["parent_id"], *reserves):
        run.execute(RESERVE, (spend * step.on_spend, tokens * step.on_tokens, step.thread_id))
    return Amount(spend, tokens)


def _left(account: Row, dimension: str) -> int:
    """Return the rest to hand over, without holds and reservations of children that still run."""
    taken = ("own", "children", "held", "reserved")
    used = sum(int(account[f"{dimension}_{one}"]) for one in taken)
    return max(int(account[f"{dimension}_ceiling"]) - used, 0)


def _ceilings(run: Statements, thread_id: str) -> Amount | None:
    row = run.execute(
        "SELECT spend_ceiling, tokens_ceiling FROM accounts WHERE thread_id = ?", (thread_id,)
    ).fetchone()
    return None if row is None else Amount(row[0], row[1])
