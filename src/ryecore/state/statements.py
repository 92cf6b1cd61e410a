"""What the rules of the store need of a database: statements in a transaction, and queries.

SQLite's connection and rows have this form, and PostgreSQL's are given it, so that both databases
keep the same rules with the same statements.

Source: decision 77.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar

__all__ = ["DatabaseTime", "Row", "Rows", "SqlDatabase", "Statements"]

T = TypeVar("T")


class DatabaseTime(float):
    """A Unix time in seconds that a database whose clock others share stores by that clock."""

    __slots__ = ()


class Row(Protocol):
    """A row, whose values have an order and names."""

    def __getitem__(self, key: Any, /) -> Any:
        """Return a value by its place or name, or several by a slice."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the values."""
        ...

    def __len__(self) -> int:
        """Return the number of values."""
        ...

    def keys(self) -> list[str]:
        """Return the names."""
        ...


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that it changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row; None after the last one."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""
        ...


class Statements(Protocol):
    """A connection in a transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Run a statement with a `?` for each parameter."""
        ...


class SqlDatabase(Protocol):
    """A database of a store."""

    def writing(self, tree: str | None = None, /) -> AbstractAsyncContextManager[Statements]:
        """Return an awaited writing transaction, which no other one interrupts.

        Nothing else is awaited within it. Within `together` it is a part of that transaction.

        Args:
            tree: A thread, whose tree is all that the transaction reads for its decisions and
                writes: its root, all below, and what these hand their work on to. Others may then
                write other trees meanwhile.
        """
        ...

    def write(self, tree: str | None = None, /) -> AbstractContextManager[Statements]:
        """Return the same, for code in a worker thread."""
        ...

    def look(self) -> AbstractContextManager[Statements]:
        """Return a connection whose queries all see the same state."""
        ...

    async def fetch(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows that a query finds."""
        ...

    def read(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows that a query finds, to code in a worker thread."""
        ...

    async def together(
        self, work: Callable[[], Coroutine[Any, Any, T]], tree: str | None = None, /
    ) -> T:
        """Run operations as one transaction; see `Transactions.together`."""
        ...

    async def synced(self) -> None:
        """Wait until all commits so far have the promised durability."""
        ...

    def close(self) -> None:
        """Close the database. It isn't opened again."""
        ...
