"""Budgets: amounts of money and tokens, and what is left of an account. Pure.

Source: docs/design/threads.md#budget; decisions 39 and 40.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Final, Literal, Protocol, TypeAlias

from attrs import field

from ryecore.convert.fields import usd
from ryecore.convert.money import to_usd
from ryecore.convert.strict import WIRE
from ryecore.frozen import frozen
from ryecore.policy.limits import Limits

__all__ = [
    "MOST",
    "NOTHING",
    "Account",
    "Amount",
    "CallBudget",
    "CallCost",
    "Charge",
    "Dimension",
    "Mark",
    "Settled",
    "Settlement",
    "TreeSum",
    "grant",
    "outstanding",
]

Dimension = Literal["spend", "tokens"]
"""A quantity with its own account."""

Mark: TypeAlias = Literal["counted", "estimated", "assumed"]
"""How what a request cost is known: the provider counted it, we estimated it, or the whole hold is
assumed because nobody could say."""

MOST: Final = 2**53
"""No amount is larger, so that every sum of them fits into SQLite's integers."""


@frozen
class Amount:
    """Money and tokens. A difference of two may be negative.

    Attributes:
        spend_microcents: Money, in units of 1e-8 USD.
        tokens: Tokens, read and written.
    """

    spend_microcents: int = field(default=0, metadata=usd("spend"))
    tokens: int = 0

    @property
    def spend_usd(self) -> Decimal:
        """The money in US dollars."""
        return to_usd(self.spend_microcents)

    def to_dict(self) -> dict[str, object]:
        """Return the amount as JSON types: `spend` in US dollars, and `tokens`."""
        amount: dict[str, object] = WIRE.write(self)
        return amount

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.spend_microcents + other.spend_microcents, self.tokens + other.tokens)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.spend_microcents - other.spend_microcents, self.tokens - other.tokens)

    def covers(self, other: "Amount") -> bool:
        """Return whether another amount is no larger, in money and in tokens."""
        return self.spend_microcents >= other.spend_microcents and self.tokens >= other.tokens

    def at_most(self, other: "Amount") -> "Amount":
        """Return the smaller of the two, in money and in tokens."""
        return Amount(
            min(self.spend_microcents, other.spend_microcents), min(self.tokens, other.tokens)
        )

    def at_least(self, other: "Amount") -> "Amount":
        """Return the larger of the two, in money and in tokens."""
        return Amount(
            max(self.spend_microcents, other.spend_microcents), max(self.tokens, other.tokens)
        )


NOTHING: Final = Amount()
"""No money and no tokens."""


def grant(wanted: Amount, left: Iterable[Amount]) -> Amount:
    """Return the ceilings of a child: what it wants, or what each account above has left.

    Source: docs/design/threads.md#budget; decision 39.
    """
    for one in left:
        wanted = wanted.at_most(one)
    return wanted


@frozen(slots=False)
class Account:
    """The account of one thread: its ceiling, holds and spending.

    Attributes:
        thread_id: The thread.
        parent_id: The thread whose budget it is a part of; None for a root.
        ceiling: The most that it may spend, its children included.
        own: Its own spending.
        children: What the threads below it have spent, as far as it was charged for them: those
            that share its budget at once, those that reserved a part once that is cascaded.
        held: The amount held for requests in progress, its own and those of children that share.
        reserved: The amount set aside for children, and not yet cascaded.
        reserves_spend: Whether its money was set aside by its parent; else it shares its
            parent's. True for a root.
        reserves_tokens: The same of its tokens.
        state: `open`, or the status that its thread ended with.
        stopped: Whether it, or one above it, cost more than was held: nothing more is held here.
        has_running_children: Whether threads that were registered below it have not ended.
    """

    thread_id: str
    parent_id: str | None
    ceiling: Amount
    own: Amount = NOTHING
    children: Amount = NOTHING
    held: Amount = NOTHING
    reserved: Amount = NOTHING
    reserves_spend: bool = True
    reserves_tokens: bool = True
    state: str = "open"
    stopped: bool = False
    has_running_children: bool = False

    @property
    def total(self) -> Amount:
        """The charged spending of the thread and all below it."""
        return self.own + self.children

    @property
    def available(self) -> Amount:
        """The rest of its ceiling; negative where more was spent than was held."""
        return self.ceiling - self.total - self.held - self.reserved


@frozen(slots=False)
class Settled:
    """The result of `settle`.

    Attributes:
        overspent: Whether the request cost more than was held for it.
        cancel_requested: Whether the thread shall stop: it was asked to, or another process has
            declared its owner dead.
        stopped: Whether nothing more is held on this account.
        handoff_requested: Whether another thread shall continue this one.
    """

    overspent: bool
    cancel_requested: bool
    stopped: bool
    handoff_requested: bool = False


@frozen
class Charge:
    """The hold and the cost of one request to a model.

    Attributes:
        turn: The thread's turn.
        attempt: The number of the attempt in that turn.
        held: The hold.
        actual: The cost; nothing while it is held, and where it was freed.
        mark: `held`, `counted`, `estimated`, `assumed` or `freed`.
    """

    turn: int
    attempt: int
    held: Amount
    actual: Amount
    mark: str


@frozen(slots=False)  # one is made in each turn, in 40% of the time
class Settlement:
    """The cost of a request that is to be settled.

    Attributes:
        turn: The thread's turn.
        attempt: The number of the attempt in that turn.
        held: The hold.
        actual: The cost.
        mark: How the cost is known.
    """

    turn: int
    attempt: int
    held: Amount
    actual: Amount
    mark: Mark

    @property
    def is_overspent(self) -> bool:
        """Whether it cost more than was held for it."""
        held, actual = self.held, self.actual
        return actual.spend_microcents > held.spend_microcents or actual.tokens > held.tokens


@frozen
class TreeSum:
    """The spending of a thread and all threads below it.

    Attributes:
        spent: The spending, whether it was charged to the threads above already or not.
        held: The amount held for their requests in progress.
        threads: The number of accounts, its own included.
    """

    spent: Amount
    held: Amount
    threads: int


def outstanding(ceiling: int, cascaded: int) -> int:
    """Return what a parent still sets aside for a child that has cascaded a part of its ceiling."""
    return ceiling - cascaded if ceiling > cascaded else 0


@frozen
class CallCost:
    """The cost of a request that an agent made on behalf of another one, which called it.

    Attributes:
        input_tokens: The tokens that its model read.
        output_tokens: The tokens that it wrote.
        spend_microcents: The money, in units of 1e-8 USD.
        mark: How the cost is known.
        outcome: How the request ended, as in records of attempts.
        priced: Whether the model has a price.
        cached_tokens: The tokens that it read from its provider's cache, among those it read.
        cache_saved_microcents: What the cache saved; below 0 where writing to it cost more.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    spend_microcents: int = 0
    mark: Mark = "counted"
    outcome: str = "success"
    priced: bool = True
    cached_tokens: int = 0
    cache_saved_microcents: int = 0

    @property
    def amount(self) -> Amount:
        """The money and the tokens."""
        return Amount(self.spend_microcents, self.input_tokens + self.output_tokens)


class CallBudget(Protocol):
    """The budget of a thread, node or session, for the agents that its tools call.

    Each of their requests is held here before it is sent, and charged afterwards.
    """

    @property
    def bounds(self) -> Limits:
        """The limits of spend and tokens that bind whoever spends here."""
        ...

    async def left(self) -> Amount:
        """Return what may still be held."""
        ...

    @property
    def version(self) -> int:
        """Grows whenever budget may have come back."""
        ...

    async def wait(self, seen: int) -> bool:
        """Wait until budget may have come back since the version `seen`; False if none can."""
        ...

    async def most_left(self) -> Amount:
        """Return what could be held if all that other runs hold or have reserved came back."""
        ...

    async def hold_call(self, agent: str, amount: Amount) -> object:
        """Hold the most that a request of an agent can cost, and return the hold.

        Raises:
            InsufficientBudget: Less is left, here or above.
        """
        ...

    def settle_call(self, hold: object, cost: CallCost) -> None:
        """Charge the cost of a request in place of its hold."""
        ...
