"""Read a transcript on an event loop, which never waits for a long one.

Source: ADR 028.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Final

from ryecore.state.change_watcher import ChangeWatcher
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript_check import Record, read_records
from ryecore.state.waiting import INLINE_BYTES, SYNC_WORKERS, run_in_thread

__all__ = ["follow_records", "stream_records"]

_LOOK_AGAIN_S: Final = 0.2
_PIECE_BYTES: Final = 512 * 1024
"""How much is read at a time, and held in memory."""


async def stream_records(
    path: Path, *, from_offset: int = 0, to_offset: int | None = None
) -> AsyncGenerator[Record, None]:
    """Read a transcript's records as `read_records` does; long ones in pieces, in a worker thread.

    Args:
        path: The file.
        from_offset: Where to begin, in bytes: a record's `offset` or `end`.
        to_offset: Where to stop, in bytes; the file's end by default.

    Yields:
        Each record, of whatever type, up to the first line that is none or has no end.

    Raises:
        StateError: The file can't be read.
    """
    records = read_records(path, from_offset=from_offset, to_offset=to_offset)
    with closing(records):
        if _size(path, to_offset) - from_offset <= INLINE_BYTES:
            for record in records:
                yield record
            return
        while piece := await SYNC_WORKERS.run(_next_piece, records):
            for record in piece:
                yield record


async def follow_records(
    folder: Path,
    has_ended: Callable[[], bool],
    *,
    from_start: bool = True,
    follow: bool = True,
) -> AsyncGenerator[Record, None]:
    """Read the records of a thread that runs in another process, or nowhere any more.

    Args:
        folder: The thread's folder.
        has_ended: Says whether the thread has ended; called in a worker thread.
        from_start: Whether to begin with the records that are there already.
        follow: Whether to wait for more until the thread has ended.

    Yields:
        Each record of its transcript, as it comes.

    Raises:
        StateError: The transcript can't be read.
    """
    path = folder / TRANSCRIPT
    offset = 0 if from_start else _size(path, None)
    async with ChangeWatcher(folder) as watched:
        while True:
            ended = await run_in_thread(has_ended)
            if path.exists():
                async with aclosing(stream_records(path, from_offset=offset)) as records:
                    async for record in records:
                        offset = record.end
                        yield record
            if ended or not follow:
                return
            await watched.changed(_LOOK_AGAIN_S)


def _size(path: Path, to_offset: int | None) -> int:
    if to_offset is not None:
        return to_offset
    try:
        return path.lstat().st_size
    except OSError:  # who reads it says what is wrong
        return 0


def _next_piece(records: Generator[Record, None, None]) -> list[Record]:
    """Read at least one record; none where there is none left."""
    piece: list[Record] = []
    for record in records:
        piece.append(record)
        if record.end - piece[0].offset >= _PIECE_BYTES:
            break
    return piece
