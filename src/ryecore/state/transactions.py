"""What registry and ledger share: one database, whose transactions may span both.

Source: decisions 37 and 77.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias, TypeVar

__all__ = ["Transactions", "Work"]

T = TypeVar("T")

Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
"""Awaits operations of the store, in order, and nothing else."""


class Transactions(Protocol):
    """A part of the store whose operations are transactions of one database."""

    async def synced(self) -> None:
        """Wait until all writes so far have the store's durability.

        Raises:
            StateError: They can't be made durable.
        """
        ...

    async def together(self, work: Work[T], *, tree: str | None = None) -> T:
        """Run several operations of the registry and the ledger as one transaction.

        All of them happen, or none. `work` may catch a `BudgetError`: the operation that raised it
        has changed nothing, and the others still happen. Any other error may undo them all, though
        it is caught.

        Args:
            work: Awaits the operations, in order, and nothing else. A store that tries a fast path
                first calls it again where that is refused; nothing has happened then.
            tree: A thread to whose tree they all belong, if they do: its root, all below, and what
                these hand their work on to. A store may let others write other trees meanwhile.

        Returns:
            What `work` returns.

        Raises:
            StateError: Nothing can be written.
            RyeError: The error of an operation that undid them all.

        Source: decision 77; ADR 029.
        """
        ...
