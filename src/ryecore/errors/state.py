"""Errors of `.ai/state`: the registry of threads, their limits and their budgets."""

from typing import Literal, Protocol

from ryecore.errors.base import RyeError

__all__ = [
    "AlreadyStarted",
    "BudgetError",
    "BudgetNotRegistered",
    "InsufficientBudget",
    "LimitReached",
    "StateError",
    "StateLocked",
    "StateUnreachable",
    "ThreadConflict",
    "ThreadNotFound",
    "UnattestedState",
]


class _Holder(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def command(self) -> str: ...

    @property
    def state(self) -> str: ...


class _Amount(Protocol):
    @property
    def spend_microcents(self) -> int: ...

    @property
    def tokens(self) -> int: ...


class StateError(RyeError):
    """The state in `.ai/state` can't be read, written or trusted."""

    error_type = "state"


class ThreadNotFound(StateError, LookupError):
    """No thread has this id."""

    error_type = "thread_not_found"
    thread_id: str


class ThreadConflict(StateError):
    """The thread's status rules the request out: it has ended, or runs already."""

    error_type = "thread_conflict"
    thread_id: str
    state: str


class AlreadyStarted(ThreadConflict):
    """A thread was started with the same idempotency key and request; `thread_id` names it."""

    error_type = "already_started"


class StateLocked(StateError):
    """Another process held a lock for too long. Nothing was changed.

    Attributes:
        path: The file that is locked, or the address of the schema.
        holders: The visible processes, or connections to the server, that hold the lock.
        waited_s: The length of the wait, in seconds.
    """

    error_type = "state_locked"
    path: str
    holders: tuple[_Holder, ...] = ()
    waited_s: float = 0.0


class StateUnreachable(StateError):
    """The server of the state can't be reached, or lets nobody in with this address."""

    error_type = "state_unreachable"


class UnattestedState(StateError):
    """The state was not made by this user space in this folder. Nothing of it was read or moved.

    Attributes:
        path: The folder.
        reason: `copied`: this user's own, but restored or copied. `foreign`: another user space's.
            `unsigned`: the owner is unknown.
        owners: The visible processes that use it now.
    """

    error_type = "unattested_state"
    path: str
    reason: str = "unsigned"
    owners: tuple[_Holder, ...] = ()


class LimitReached(StateError):
    """A limit of a thread is reached; `limit_code` names it.

    Attributes:
        thread_id: The thread.
        limit_code: The limit, such as `spawns_exceeded`.
        current_value: The amount in use.
        current_max: The most that is allowed.
    """

    error_type = "limit_reached"
    thread_id: str
    limit_code: str
    current_value: float
    current_max: float


class BudgetError(StateError):
    """A thread's budget doesn't allow the request.

    Attributes:
        account: The id of the thread with that budget.
    """

    error_type = "budget"
    account: str


class InsufficientBudget(BudgetError):
    """A budget has less left than was requested. Nothing was held or reserved.

    Attributes:
        dimension: `spend` or `tokens`.
        remaining: The money and tokens that are left.
        requested: The money and tokens that were requested.
        reason: `exhausted`; `stopped` after a model call cost more than was held for it; `released`
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
