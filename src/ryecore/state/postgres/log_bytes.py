"""Reads the bytes of a log on a PostgreSQL server, a few rows at a time.

Source: docs/design/threads.md#storage; decision 77.
"""

import errno
import io
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from attrs import field
from typing_extensions import override

from ryecore.frozen import frozen
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.transcript_check import RecordSource

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["LogSource"]

_PAGE_BYTES: Final = 512 * 1024
"""How much is read at once, besides the end of a last row."""

_PAGE: Final = (
    "SELECT start, body FROM records WHERE thread_id = ? AND start >= ? AND start < ?"
    " ORDER BY start"
)
_ROW_AT: Final = "SELECT max(start) FROM records WHERE thread_id = ? AND start <= ?"


@frozen
class LogSource(RecordSource):
    """The bytes of a log."""

    database: PostgresDatabase = field(repr=False)
    thread_id: str

    def __str__(self) -> str:
        return f"of {self.thread_id} on {self.database.shown}"

    @override
    def open(self) -> BinaryIO:
        rows = self.database.read("SELECT length FROM logs WHERE thread_id = ?", (self.thread_id,))
        if not rows:
            raise FileNotFoundError(errno.ENOENT, "there is none")
        return cast("BinaryIO", io.BufferedReader(_LogBytes(self, int(rows[0][0]))))


class _LogBytes(io.RawIOBase):
    """Reads the bytes of a log, a few rows at a time."""

    def __init__(self, source: LogSource, size: int) -> None:
        self._source = source
        self._size = size
        self._position = 0
        self._next: int | None = 0
        """Where the row begins that is read next; None where that has to be looked up."""

        self._page: list[bytes] = []

    @override
    def readable(self) -> bool:
        return True

    @override
    def seekable(self) -> bool:
        return True

    @override
    def tell(self) -> int:
        return self._position

    @override
    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._position = (0, self._position, self._size)[whence] + offset
        self._next, self._page = (None if self._position else 0), []
        return self._position

    @override
    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        if not self._page:
            self._page = self._read_page()
        if not self._page:
            return 0
        view, piece = memoryview(buffer).cast("B"), self._page[0]
        size = min(len(piece), len(view))
        view[:size] = piece[:size]
        if size < len(piece):
            self._page[0] = piece[size:]
        else:
            del self._page[0]
        self._position += size
        return size

    def _read_page(self) -> list[bytes]:
        """Return the bytes of the next rows; none at the end."""
        read, thread_id = self._source.database.read, self._source.thread_id
        if self._position >= self._size:
            return []
        begin = self._next
        if begin is None:
            ((begin,),) = read(_ROW_AT, (thread_id, self._position))
        if begin is None:
            return []
        rows = read(_PAGE, (thread_id, begin, min(begin + _PAGE_BYTES, self._size)))
        page = [row["body"].encode() for row in rows]
        if page:
            self._next = rows[-1]["start"] + len(page[-1])
            page[0] = page[0][self._position - begin :]
        return [one for one in page if one]
