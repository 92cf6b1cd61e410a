"""The fast path of a transaction: its operations are one call of a stored function.

A thread begins with operations that build on each other: its account is opened, then its row is
claimed. In the common case all is granted and nothing is refused, and each result is known before.
So `together` first defers the operations, each with its result in that case. If they are the begin
or the end of a thread, one stored function does all of it, or nothing where one of these results
would be another. Then the operations are run again, one by one.

Source: ADR 029; ADR 053.
"""

from collections.abc import Sequence
from typing import Any, Final

from ryecore.policy.budget import Amount, Mark

__all__ = ["DeferredOperations", "FastPathMiss"]

_BEGIN: Final = f"begin_thread({', '.join('?' * 15)})"
_END: Final = f"end_thread({', '.join('?' * 14)})"
_NO_SETTLEMENT: Final = (None, None, None, 0, 0)


class FastPathMiss(BaseException):
    """A transaction has to be run operation by operation. Nothing of it has happened yet.

    Not an `Exception`, so that no operation handles it as a failure of its own.
    """


class DeferredOperations:
    """The operations of one transaction so far, each with the result that it was given.

    Each method defers an operation and returns True; or returns False, if the operation doesn't
    fit those before it: then all are run one by one.

    Args:
        thread_id: The thread that all of them have to be about.
    """

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._account: tuple[Any, ...] | None = None
        self._claim: tuple[Any, ...] | None = None
        self._settlement: tuple[Any, ...] | None = None
        self._end: tuple[Any, ...] | None = None
        self._file: str | None = None

    @property
    def _is_empty(self) -> bool:
        return self._account is self._claim is self._settlement is self._end is None

    def defer_account(self, thread_id: str, parent_id: str | None, spend: int, tokens: int) -> bool:
        """Defer opening an account that reserves all that it wants. The result: all is granted."""
        fits = thread_id == self._thread_id and self._is_empty
        if fits:
            self._account = (thread_id, parent_id, spend, tokens)
        return fits

    def defer_claim(self, thread_id: str, claim: Sequence[Any]) -> bool:
        """Defer claiming a created row by the values of `begin_thread`. The result: fence 1."""
        fits = thread_id == self._thread_id and self._account is not None and self._claim is None
        if fits:
            self._claim = tuple(claim)
        return fits

    def defer_settlement(
        self, thread_id: str, request: tuple[int, int], actual: Amount, mark: Mark
    ) -> bool:
        """Defer settling a request that cost no more than was held, of a thread that may go on."""
        fits = thread_id == self._thread_id and self._is_empty
        if fits:
            self._settlement = (*request, mark, actual.spend_microcents, actual.tokens)
        return fits

    def defer_end(self, thread_id: str, end: Sequence[Any]) -> bool:
        """Defer ending the row by the values of `end_thread`, which closes its account, too."""
        begins = self._account is not None
        fits = thread_id == self._thread_id and not begins and self._end is None
        if fits:
            self._end = tuple(end)
        return fits

    def defer_file(self, thread_id: str, content: str) -> bool:
        """Defer writing the signed file of the thread that has ended."""
        fits = thread_id == self._thread_id and self._end is not None and self._file is None
        if fits:
            self._file = content
        return fits

    def as_call(self) -> tuple[str, tuple[Any, ...]]:
        """Return the call of the stored function that does all of it, and its values.

        Raises:
            FastPathMiss: The operations are neither the begin nor the end of a thread.
        """
        if self._account is not None and self._claim is not None:
            return _BEGIN, (*self._account, *self._claim)
        if self._end is not None:
            settlement = self._settlement or _NO_SETTLEMENT
            return _END, (self._thread_id, *self._end, *settlement, self._file)
        raise FastPathMiss
