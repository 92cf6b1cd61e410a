"""Threads that may not go on: their budget, and their other limits."""

from typing import Literal, Protocol

from ryecore.errors.calls import StateError

__all__ = ["BudgetError", "BudgetNotRegistered", "InsufficientBudget", "LimitReached"]


class _Amount(Protocol):
    @property
    def spend_microcents(self) -> int: ...

    @property
    def tokens(self) -> int: ...


class LimitReached(StateError):
    """A limit of a thread is reached.

    Attributes:
        limit_code: Which, as `spawns_exceeded`.
        current_value: How much is used.
        current_max: How much may be.
    """

    error_type = "limit_reached"
    thread_id: str
    limit_code: str
    current_value: float
    current_max: float


class BudgetError(StateError):
    """The budget of a thread doesn't allow what was asked for.

    Attributes:
        account: The thread whose budget it is.
    """

    error_type = "budget"
    account: str


class InsufficientBudget(BudgetError):
    """There is less left than was asked for. Nothing was held or reserved.

    Attributes:
        dimension: `spend` or `tokens`.
        remaining: What is left, in money and in tokens.
        requested: What was asked for.
        reason: `exhausted`; `stopped` where a request cost more than was held for it; `released`
            where the thread has ended.
    """

    error_type = "insufficient_budget"
    dimension: Literal["spend", "tokens"] = "spend"
    remaining: _Amount
    requested: _Amount
    reason: Literal["exhausted", "stopped", "released"] = "exhausted"


class BudgetNotRegistered(BudgetError, LookupError):
    """The thread has no account."""

    error_type = "budget_not_registered"
