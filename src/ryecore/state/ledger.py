"""The ledger of threads' budgets, as every store provides it: exact across processes.

Each operation is awaited and is one transaction, as those of the registry are.

Source: docs/design/threads.md#budget; docs/design/threads.md#the-end; decisions 37, 39, 40 and 77.
"""

from typing import Protocol

from ryecore.policy.budget import Account, Amount, Charge, Mark, Settled, TreeSum
from ryecore.state.model import Cost

__all__ = ["BudgetLedger"]


class BudgetLedger(Protocol):
    """The accounts of a project's threads, in money and in tokens.

    A root is registered with its ceiling. A child either reserves a part of what its parent has
    left, or shares it: then each of its holds is placed on every account up to and including the
    nearest one that reserved. Before a request the worst that it can cost is held, so that what is
    spent and held never passes a ceiling, whoever races; after it, its actual cost is charged in
    full. The end of a thread in the registry closes its account.
    """

    async def synced(self) -> None:
        """Wait until all writes so far survive what the store's durability names.

        Raises:
            StateError: They can't be made durable.
        """
        ...

    async def register(self, thread_id: str, ceiling: Amount) -> None:
        """Open the account of a root. One that is open stays as it is.

        Args:
            thread_id: The thread, which the registry knows.
            ceiling: What it and all those below it may spend.

        Raises:
            BudgetError: The thread has an account already, as another one's child.
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
        """Open the account of a child, and set its budget aside where it reserves one.

        A repeated call returns the same and sets nothing more aside.

        Args:
            thread_id: The child, which the registry knows.
            parent_id: The thread whose budget it is a part of.
            wanted: What it would like to spend at most.
            reserves_spend: Whether money is set aside for it alone; else it shares its parent's.
            reserves_tokens: The same of tokens.

        Returns:
            Its ceilings: the wanted amount, or what its parent has left where that is less.

        Raises:
            InsufficientBudget: The parent has nothing left, was stopped, or has ended.
            BudgetNotRegistered: The parent has no account.
            BudgetError: The child has an account already, of another parent.
            ThreadNotFound: The registry knows no such child.
            ThreadConflict: The child has ended.

        Source: docs/design/threads.md#budget; decisions 39 and 40.
        """
        ...

    async def hold(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        head: tuple[int, str] | None = None,
    ) -> None:
        """Hold the worst that a request can cost, before it is sent. Renews the thread's lease.

        A hold that stands already is left as it is.

        Args:
            thread_id: The thread.
            turn: Its turn.
            attempt: Which try of that turn.
            amount: What the request can cost at most.
            head: The length in bytes and the digest of the transcript's last checkpoint, which
                are written into the thread's row.

        Raises:
            InsufficientBudget: The account, or one that it shares, has less left; the account was
                stopped; or the thread has ended. Nothing is held anywhere then.
            BudgetNotRegistered: The thread has no account.
            BudgetError: This try was settled already, or another amount is held for it.
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
        """Free a hold, and charge in full what the request cost.

        Where it cost more than was held, the account and all those below it are stopped. Settling
        again changes nothing; only a charge that was assumed or freed is corrected, all the way
        up, however long its thread has ended.

        Args:
            thread_id: The thread.
            turn: Its turn.
            attempt: Which try of that turn.
            actual: What the request cost.
            mark: How the cost is known.
            snapshot: What the thread has spent so far, for its row. This renews its lease too.

        Returns:
            Whether it overspent, and whether somebody asked the thread to stop or hand off.

        Raises:
            BudgetError: Nothing was held for this try.
            StateError: Nothing can be written.

        Source: decision 40; docs/design/threads.md#turn-loop.
        """
        ...

    async def transfer(self, thread_id: str, continuation_thread_id: str) -> Amount:
        """Close a thread's account, and open that of its continuation with the rest.

        Returns:
            What the continuation may spend.

        Raises:
            InsufficientBudget: The account was stopped, or is closed.

        Source: decision 45.
        """
        ...

    async def report_actual(self, thread_id: str, actual: Amount) -> None:
        """Raise a thread's own spending to a total; it is never lowered.

        Args:
            thread_id: The thread.
            actual: Its total, without the threads below it.

        Raises:
            BudgetNotRegistered: It has no account.

        Source: docs/design/threads.md#the-end.
        """
        ...

    async def cascade_spend(self, thread_id: str) -> None:
        """Charge to the accounts above what a thread's subtree spent of its reservation.

        A repeated call charges only the difference. Shared budget was charged before.

        Raises:
            BudgetNotRegistered: It has no account.

        Source: docs/design/threads.md#the-end.
        """
        ...

    async def account(self, thread_id: str) -> Account:
        """Return a thread's account.

        Raises:
            BudgetNotRegistered: It has none.
        """
        ...

    async def remaining(self, thread_id: str) -> Amount:
        """Return what a thread may still hold: the least that any account on its path has left.

        Raises:
            BudgetNotRegistered: It has no account.
        """
        ...

    async def tree(self, thread_id: str) -> TreeSum:
        """Return what a thread and all below it have spent and hold.

        Raises:
            BudgetNotRegistered: It has no account.
        """
        ...

    async def charges(self, thread_id: str) -> tuple[Charge, ...]:
        """List a thread's requests, in the order of their turns and tries."""
        ...
