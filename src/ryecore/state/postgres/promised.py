"""Operations whose results are known before they run, so that all of them are one statement.

A thread begins with operations that build on each other: its account is opened, then its row is
claimed. Usually all is granted and nothing is refused, and then each result is known beforehand. So
`together` notes the operations first, each with the result that it has in the usual case. If they
are the beginning or the end of a thread, one function of the server does all of it, or nothing
where any of these results wouldn't be true. Then the operations are run again, one by one.

Source: ADR 029; ADR 053.
"""

from collections.abc import Sequence
from typing import Any, Final

from ryecore.policy.budget import Amount, Mark

__all__ = ["OneByOne", "Promises"]

_BEGIN: Final = f"begin_alone({', '.join('?' * 15)})"
_END: Final = f"end_alone({', '.join('?' * 14)})"
_NO_SETTLEMENT: Final = (None, None, None, 0, 0)


class OneByOne(BaseException):
    """The operations of a transaction aren't a usual case, so they are run one by one.

    No code of an operation catches it, as nothing has happened yet.
    """


class Promises:
    """The operations of one transaction so far, and what they were promised.

    Each method returns whether the operation fits; if not, the operations are run one by one.

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

    def opens(self, thread_id: str, parent_id: str | None, spend: int, tokens: int) -> bool:
        """Open an account that reserves all that it wants: all of it is granted."""
        fits = thread_id == self._thread_id and self._is_empty
        if fits:
            self._account = (thread_id, parent_id, spend, tokens)
        return fits

    def claims(self, thread_id: str, claim: Sequence[Any]) -> bool:
        """Claim a created row by the values of `begin_alone`: its fence is 1 then."""
        fits = thread_id == self._thread_id and self._account is not None and self._claim is None
        if fits:
            self._claim = tuple(claim)
        return fits

    def settles(self, thread_id: str, request: tuple[int, int], actual: Amount, mark: Mark) -> bool:
        """Settle a request: it cost no more than was held, and nobody asked the thread to stop."""
        fits = thread_id == self._thread_id and self._is_empty
        if fits:
            self._settlement = (*request, mark, actual.spend_microcents, actual.tokens)
        return fits

    def ends(self, thread_id: str, end: Sequence[Any]) -> bool:
        """End the row by the values of `end_alone`, and close its account."""
        begins = self._account is not None
        fits = thread_id == self._thread_id and not begins and self._end is None
        if fits:
            self._end = tuple(end)
        return fits

    def writes_file(self, thread_id: str, content: str) -> bool:
        """Write the signed file of the thread that has ended."""
        fits = thread_id == self._thread_id and self._end is not None and self._file is None
        if fits:
            self._file = content
        return fits

    def call(self) -> tuple[str, tuple[Any, ...]]:
        """Return the call of the server's function that does all of it, and its values."""
        if self._account is not None and self._claim is not None:
            return _BEGIN, (*self._account, *self._claim)
        if self._end is not None:
            settlement = self._settlement or _NO_SETTLEMENT
            return _END, (self._thread_id, *self._end, *settlement, self._file)
        raise OneByOne
