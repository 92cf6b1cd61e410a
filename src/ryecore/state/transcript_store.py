"""The logs of threads as files: one transcript in each thread's folder.

An event loop never waits for a long read.

Source: ADR 028.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from ryecore.lillux.keys import SigningKey
from ryecore.state.change_watcher import ChangeWatcher
from ryecore.state.model import Durability
from ryecore.state.record_log import RecordLog, RecordStore
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript import Recovery, Transcript
from ryecore.state.transcript_check import Record, read_records, verify_transcript
from ryecore.state.transcript_format import Head
from ryecore.state.transcript_report import TranscriptReport
from ryecore.state.waiting import INLINE_BYTES, SYNC_WORKERS, run_in_thread, run_off_loop

__all__ = ["FileRecordStore", "follow_records", "stream_records"]

_LOOK_AGAIN_S: Final = 0.2
_PIECE_BYTES: Final = 512 * 1024
"""The size of the pieces that are read into memory."""


class FileRecordLog(RecordLog):
    """The log of a thread in one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript

    @property
    @override
    def offset(self) -> int:
        return self._transcript.offset

    @override
    def append(self, event_type: str, payload: Mapping[str, Any], /) -> None:
        self._transcript.append(event_type, payload)

    @override
    async def commit(self) -> None:
        self._transcript.commit()
        await self._transcript.synced()

    @override
    async def checkpoint(self, turn: int) -> Head:
        head = self._transcript.checkpoint(turn)
        await self._transcript.synced()
        return head

    @override
    async def close(self) -> None:
        self._transcript.close()


class FileRecordStore(RecordStore):
    """The logs of a project's threads, in their folders.

    Args:
        folder_of: Returns a thread's folder.
        make_folder: Makes a thread's folder if it is missing, and returns it.
        load_key: Returns the run key, which signs checkpoints and proves them.
        durability: What a commit survives.
    """

    def __init__(
        self,
        folder_of: Callable[[str], Path],
        make_folder: Callable[[str], Path],
        load_key: Callable[[], SigningKey],
        durability: Durability,
    ) -> None:
        self._folder_of = folder_of
        self._make_folder = make_folder
        self._load_key = load_key
        self._durability: Durability = durability

    @override
    async def create(self, thread_id: str) -> RecordLog:
        return FileRecordLog(
            await run_off_loop(
                self._durability,
                Transcript.create,
                self._make_folder(thread_id) / TRANSCRIPT,
                thread_id,
                self._load_key(),
                self._durability,
            )
        )

    @override
    async def resume(
        self, thread_id: str, head: tuple[int, str] | None = None
    ) -> tuple[RecordLog, Recovery]:
        resume = partial(Transcript.resume, head=head)
        found, recovery = await run_in_thread(
            resume, self._path(thread_id), thread_id, self._load_key(), self._durability
        )
        return FileRecordLog(found), recovery

    @override
    def read(
        self, thread_id: str, *, from_offset: int = 0, to_offset: int | None = None
    ) -> AsyncGenerator[Record, None]:
        return stream_records(self._path(thread_id), from_offset=from_offset, to_offset=to_offset)

    @override
    async def verify(
        self, thread_id: str, head: tuple[int, str] | None = None, *, ended: bool
    ) -> TranscriptReport:
        verify = partial(verify_transcript, ended=ended)
        key = self._load_key().public
        return await run_in_thread(verify, self._path(thread_id), thread_id, key, head)

    def _path(self, thread_id: str) -> Path:
        return self._folder_of(thread_id) / TRANSCRIPT


async def stream_records(
    path: Path, *, from_offset: int = 0, to_offset: int | None = None
) -> AsyncGenerator[Record, None]:
    """Read a transcript's records like `read_records`; a long one in pieces, in a worker thread.

    Args:
        path: The file.
        from_offset: The start in bytes: a record's `offset` or `end`.
        to_offset: The end in bytes; by default the end of the file.

    Yields:
        Each record of any type, up to the first line that isn't a record or has no line end.

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
    """Read the records of a thread that runs in another process, or has ended.

    Args:
        folder: The thread's folder.
        has_ended: Returns whether the thread has ended; called in a worker thread.
        from_start: Whether to begin with the existing records.
        follow: Whether to wait for more until the thread has ended.

    Yields:
        Each record of its transcript, as it arrives.

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
    except OSError:  # the reader reports the error
        return 0


def _next_piece(records: Generator[Record, None, None]) -> list[Record]:
    """Read at least one record; none at the end."""
    piece: list[Record] = []
    for record in records:
        piece.append(record)
        if record.end - piece[0].offset >= _PIECE_BYTES:
            break
    return piece
