"""What a thread's log has to write before rows of that thread, in the same transaction.

Source: docs/design/threads.md#storage; ADR 042.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ryecore.errors import RyeError
from ryecore.frozen import frozen

__all__ = ["Ahead", "JoiningLog"]


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
