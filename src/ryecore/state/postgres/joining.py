"""What a thread's log has to write before rows of that thread, in the same transaction.

Source: docs/design/threads.md#storage; ADR 042.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from ryecore.errors import RyeError
from ryecore.frozen import frozen

__all__ = ["Ahead", "JoiningLog", "tree_query"]

# ruff: noqa: S608 - what is spliced into statements is this package's own constants

_SHARED: Final = "lock_tree(?, ?, ?, ?, TRUE)"
"""Turns of one tree go beside each other, and never beside its sums."""


@frozen
class Ahead:
    """A write that comes before rows.

    Attributes:
        call: The call of a function of the server, which returns whether it was done.
        values: Its values.
        refused: Returns the error where it was not.
    """

    call: str
    values: Sequence[Any]
    refused: Callable[[], RyeError]


class JoiningLog(Protocol):
    """A log whose buffered lines may be written with rows."""

    def joining(self, *, waits: bool = True) -> AbstractContextManager[Ahead | None]:
        """Return the write of the buffered lines, for a transaction that ends with the block.

        Without an error at its end, the lines are written. None where nothing is to be written.

        Args:
            waits: Whether it may wait for another writer of the log, or for the server.

        Raises:
            MustBlock: It may not wait, and would have to.
        """
        ...


def tree_query(
    function: str, values: Sequence[Any], ahead: Ahead | None, lock: Sequence[Any]
) -> tuple[str, Sequence[Any]]:
    """Return the query that calls a stored function after what goes ahead of it, and its values.

    Its row says whether what goes ahead was written, and what the function has returned.

    Args:
        function: Its call.
        values: The values of the call.
        ahead: What goes ahead; None for nothing.
        lock: The numbers of the tree's lock, which the query shares, and a thread of the tree.
    """
    if ahead is None:
        return f"SELECT TRUE, {function} FROM {_SHARED}", (*values, *lock)
    query = (  # without the OFFSET, both calls would be one level, and their order open
        f"SELECT written, CASE WHEN written THEN {function} END"
        f" FROM (SELECT {ahead.call} AS written FROM {_SHARED} OFFSET 0) AS ahead"
    )
    return query, (*values, *ahead.values, *lock)
