"""The ledger of threads' budgets, as every store provides it: exact across processes.

Each operation is awaited and is one transaction, as in the registry.

Source: docs/design/threads.md#budget; docs/design/threads.md#the-end; decisions 37, 39, 40 and 77.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import (
    Account,
    Amount,
    Charge,
    Mark,
    Settled,
    Settlement,
    TreeSum,
)
from ryecore.state.model import Cost
from ryecore.state.transactions import Transactions

__all__ = ["BudgetLedger", "RequestLedger"]


class RequestLedger(Protocol):
    """The part of a ledger that requests to models need: what holds and charges their costs."""

    async def hold(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        head: tuple[int, str] | None = None,
    ) -> None:
        """Hold the most that a request can cost, before it is sent, and renew the thread's lease.

        A repeated hold changes nothing.

        Args:
            thread_id: The thread.
            turn: Its turn.
            attempt: The number of the try in that turn.
            amount: The most that the request can cost.
            head: The length in bytes and the digest of the transcript's last checkpoint, which
                are written into the thread's row.

        Raises:
            InsufficientBudget: The account, or one that it shares, has less left; the account was
                stopped; or the thread has ended. Nothing is held then.
            BudgetNotRegistered: The thread has no account.
            BudgetError: The try was settled already, or has a hold of another amount.
            StateError: Nothing can be written.

        Source: decision 40.
        """
        ...

    async def settle(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        actual: Amount,
        *,
        mark: Mark = "counted",
        snapshot: Cost | None = None,
    ) -> Settled:
        """Free a hold, and charge the actual cost of the request in full.

        If it exceeds the hold, the account and its subtree are stopped. Settling again changes
        nothing, except that an assumed or freed charge is corrected on the whole path, even long
        after the end of the thread.

        Args:
            thread_id: The thread.
            turn: Its turn.
            attempt: The number of the try in that turn.
            actual: The actual cost of the request.
            mark: How the cost is known.
            snapshot: The thread's cost so far, for its row. This renews its lease too.

        Returns:
            Whether it overspent, and whether the thread was asked to stop or hand off.

        Raises:
            BudgetError: The try has no hold.
            StateError: Nothing can be written.

        Source: decision 40; docs/design/threads.md#turn-loop.
        """
        ...

    async def settle_and_hold(
        self,
        thread_id: str,
        settlements: Sequence[Settlement],
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        snapshot: Cost,
        head: tuple[int, str] | None = None,
        hands_off: bool = False,
    ) -> tuple[tuple[Settled, ...], InsufficientBudget | Literal["stopped"] | None]:
        """Settle the requests of earlier tries, and hold for the next one, as one transaction.

        It is what `settle` for each, then `hold` do `together`. A hold that is refused undoes no
        settlement. Nothing is held where a settlement finds that the thread shall stop.

        Args:
            thread_id: The thread.
            settlements: The requests to settle, in order.
            turn: The turn of the next try.
            attempt: Its number in that turn.
            amount: The most that its request can cost.
            snapshot: The thread's cost so far, for its row.
            head: The length in bytes and the digest of the transcript's last checkpoint.
            hands_off: Whether a request to hand off stops the thread, too.

        Returns:
            What each settlement has found, and why nothing is held, if so: the error of `hold`, or
            `stopped`.

        Raises:
            BudgetError: A request to settle has no hold, or the try has another charge.
            BudgetNotRegistered: The thread has no account.
            StateError: Nothing can be written.

        Source: ADR 029.
        """
        ...

    async def remaining(self, thread_id: str) -> Amount:
        """Return what a thread may still hold: the least rest of the accounts on its path.

        Raises:
            BudgetNotRegistered: The thread has no account.
        """
        ...

    async def synced(self) -> None:
        """Wait until what was written is as safe as the durability demands.

        Raises:
            StateError: It can't be made so.
        """
        ...


class BudgetLedger(RequestLedger, Transactions, Protocol):
    """The accounts of a project's threads, in money and in tokens.

    A root is registered with its ceiling. A child either reserves a part of its parent's rest, or
    shares it: then each of its holds counts on every account up to and including the nearest one
    with a reservation. Before a request its highest possible cost is held, so that spending and
    holds never exceed a ceiling, even in a race; after it, its actual cost is charged in full. The
    end of a thread in the registry closes its account.
    """

    async def register(self, thread_id: str, ceiling: Amount) -> None:
        """Open the account of a root. An open one is left unchanged.

        Args:
            thread_id: The thread, which the registry knows.
            ceiling: The most that it and its subtree may spend.

        Raises:
            BudgetError: The thread has an account already, as the child of another one.
            ThreadNotFound: The registry knows no such thread.
            ThreadConflict: The thread has ended.
            StateError: Nothing can be written.

        Source: docs/design/threads.md#budget; decision 39.
        """
        ...

    async def reserve(
        self,
        thread_id: str,
        parent_id: str,
        wanted: Amount,
        *,
        reserves_spend: bool,
        reserves_tokens: bool,
    ) -> Amount:
        """Open the account of a child, and reserve its budget if it wants one of its own.

        A repeated call returns the same and reserves nothing more.

        Args:
            thread_id: The child, which the registry knows.
            parent_id: The parent, whose budget it is a part of.
            wanted: The wanted ceilings.
            reserves_spend: Whether money is reserved only for it; else it shares its parent's.
            reserves_tokens: The same for tokens.

        Returns:
            Its ceilings: the wanted amount, or less. What it reserves is at most its parent's rest,
            and what it shares at most what isn't spent of it: holds of others may come back.

        Raises:
            InsufficientBudget: The parent has nothing left to reserve, or nothing unspent to share;
                or it was stopped, or has ended.
            BudgetNotRegistered: The parent has no account.
            BudgetError: The child has an account already, of another parent.
            ThreadNotFound: The registry knows no such child.
            ThreadConflict: The child has ended.

        Source: docs/design/threads.md#budget; decisions 39 and 40.
        """
        ...

    async def transfer(self, thread_id: str, continuation_thread_id: str) -> Amount:
        """Close a thread's account, and open that of its continuation with the rest.

        Returns:
            The ceilings of the continuation.

        Raises:
            InsufficientBudget: The account was stopped, or is closed.

        Source: decision 45.
        """
        ...

    async def report_actual(self, thread_id: str, actual: Amount) -> None:
        """Raise a thread's own spending to a total. It is never lowered.

        Args:
            thread_id: The thread.
            actual: Its total, without its subtree.

        Raises:
            BudgetNotRegistered: The thread has no account.

        Source: docs/design/threads.md#the-end.
        """
        ...

    async def cascade_spend(self, thread_id: str) -> None:
        """Charge the spending of a thread's subtree within its reservation to the accounts above.

        A repeated call charges only the difference. Shared budget was charged already.

        Raises:
            BudgetNotRegistered: The thread has no account.

        Source: docs/design/threads.md#the-end.
        """
        ...

    async def account(self, thread_id: str) -> Account:
        """Return a thread's account.

        Raises:
            BudgetNotRegistered: The thread has no account.
        """
        ...

    async def tree(self, thread_id: str) -> TreeSum:
        """Return the sum of spending and holds of a thread and its subtree.

        Raises:
            BudgetNotRegistered: The thread has no account.
        """
        ...

    async def charges(self, thread_id: str) -> tuple[Charge, ...]:
        """List the charges of a thread's requests, by turn and try."""
        ...
