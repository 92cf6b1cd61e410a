"""The logs of threads as files: one transcript in each thread's folder.

An event loop never waits for a long read.

Source: ADR 028.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from ryecore.lillux.keys import SigningKey
from ryecore.lillux.locks import find_lock_holders
from ryecore.state.record_log import RecordLog, RecordStore, Recovery
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript import Transcript
from ryecore.state.transcript_check import Record, proved_records, read_records, verify_transcript
from ryecore.state.transcript_format import Head
from ryecore.state.transcript_report import TranscriptReport, Unit
from ryecore.state.waiting import (
    INLINE_BYTES,
    SYNC_WORKERS,
    ChangeWatcher,
    Workers,
    is_blocking,
    run_in_thread,
)
from ryecore.state.write_ahead import WriteAhead

__all__ = ["FileRecordStore", "streamed"]

_LOOK_AGAIN_S: Final = 0.2
_PIECE_BYTES: Final = 512 * 1024
"""The size of the pieces that are read into memory."""


class FileRecordLog(RecordLog):
    """The log of a thread in one file.

    With `ahead`, a commit waits for the registry's log instead of the file.
    """

    def __init__(
        self, thread_id: str, transcript: Transcript, ahead: WriteAhead | None = None
    ) -> None:
        self._thread_id = thread_id
        self._transcript = transcript
        self._ahead = ahead
        if ahead is not None:
            transcript.unsynced = []

    @property
    @override
    def offset(self) -> int:
        return self._transcript.offset

    @override
    def append(self, event_type: str, payload: Mapping[str, Any], /) -> None:
        self._transcript.append(event_type, payload)

    @override
    def append_delta(self, text: str, /) -> None:
        self._transcript.delta(text)

    @override
    async def flush(self) -> None:
        self._transcript.commit()

    @override
    async def write_ahead(self, *, closes: bool = False) -> None:
        self._transcript.commit()
        if self._ahead is not None:
            await self._ahead.add(self._thread_id, self._transcript)

    @override
    async def commit(self) -> None:
        await self.write_ahead()
        if self._ahead is not None:
            await self._ahead.synced()

    @override
    async def checkpoint(self, turn: int) -> Head:
        return self._transcript.checkpoint(turn)

    @override
    async def write_soon(self) -> None:
        self._transcript.commit()

    @override
    async def sign(self, turn: int) -> Head:
        return self._transcript.checkpoint(turn)

    @override
    async def close(self) -> None:
        try:
            self._transcript.close()
        finally:
            if self._ahead is not None:
                await self._ahead.add(self._thread_id, self._transcript)


class FileRecordStore(RecordStore):
    """The logs of a project's threads, in their folders.

    `make_folder` makes a thread's folder if it is missing. The run key is loaded when it is needed.
    """

    def __init__(
        self,
        folder_of: Callable[[str], Path],
        make_folder: Callable[[str], str],
        load_key: Callable[[], SigningKey],
        ahead: WriteAhead | None = None,
        check_restored: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._folder_of = folder_of
        self._make_folder = make_folder
        self._load_key = load_key
        self._ahead = ahead
        self._check_restored = check_restored

    @override
    async def create(self, thread_id: str) -> RecordLog:
        path = f"{self._make_folder(thread_id)}/{TRANSCRIPT}"
        made = Transcript.create(path, thread_id, self._load_key())
        return FileRecordLog(thread_id, made, self._ahead)

    @override
    async def resume(
        self, thread_id: str, head: tuple[int, str] | None = None
    ) -> tuple[RecordLog, Recovery]:
        found, recovery = await run_in_thread(self._resume, thread_id, head)
        return FileRecordLog(thread_id, found, self._ahead), recovery

    def _resume(self, thread_id: str, head: tuple[int, str] | None) -> tuple[Transcript, Recovery]:
        self._check_restored(thread_id)
        path, key = self._path(thread_id), self._load_key()
        found, recovery = Transcript.resume(path, thread_id, key, head=head)
        if self._ahead is not None:  # what an earlier owner wrote may not be on the disk
            try:
                found.sync()
            except BaseException:
                found.close()
                raise
        return found, recovery

    @override
    async def exists(self, thread_id: str) -> bool:
        return _is_there(self._path(thread_id))

    @override
    def read(
        self, thread_id: str, *, from_offset: int = 0, to_offset: int | None = None
    ) -> AsyncGenerator[Record, None]:
        path = self._path(thread_id)
        records = read_records(path, from_offset=from_offset, to_offset=to_offset)
        return streamed(records, _workers_for(_size_of(path, to_offset) - from_offset))

    @override
    def read_proved(
        self, thread_id: str, head: tuple[int, str] | None, *, ended: bool
    ) -> AsyncGenerator[Record, None]:
        path, key = self._path(thread_id), self._load_key().public
        records = proved_records(path, thread_id, key, head, ended=ended)
        return streamed(records, _workers_for(_size_of(path)))

    @override
    async def follow(
        self,
        thread_id: str,
        has_ended: Callable[[], Awaitable[bool]],
        *,
        from_start: bool = True,
        follow: bool = True,
    ) -> AsyncGenerator[Record, None]:
        path = self._path(thread_id)
        offset = 0 if from_start else _size_of(path)
        async with ChangeWatcher(path.parent) as watched:
            while True:
                ended = await has_ended()
                if _is_there(path):
                    async with aclosing(self.read(thread_id, from_offset=offset)) as records:
                        async for record in records:
                            offset = record.end
                            yield record
                if ended or not follow:
                    return
                await watched.changed(_LOOK_AGAIN_S)

    @override
    async def verify(
        self,
        thread_id: str,
        head: tuple[int, str] | None = None,
        *,
        ended: bool,
        unit: Unit = "turn",
    ) -> TranscriptReport:
        return await run_in_thread(self._verify, thread_id, head, ended, unit)

    def _verify(
        self, thread_id: str, head: tuple[int, str] | None, ended: bool, unit: Unit
    ) -> TranscriptReport:
        self._check_restored(thread_id)
        path = self._path(thread_id)
        # An owner that was declared dead may be suspended, and still hold an open transcript.
        is_closed = ended and not find_lock_holders(path)
        key = self._load_key().public
        return verify_transcript(path, thread_id, key, head, ended=is_closed, unit=unit)

    def _path(self, thread_id: str) -> Path:
        return self._folder_of(thread_id) / TRANSCRIPT


async def streamed(
    records: Generator[Record, None, None], workers: Workers | None
) -> AsyncGenerator[Record, None]:
    """Yield records, which worker threads read in pieces if any are given."""
    with closing(records):
        if workers is None or is_blocking():
            for record in records:
                yield record
            return
        while piece := await workers.run(_next_piece, records):
            for record in piece:
                yield record


def _workers_for(size_bytes: int) -> Workers | None:
    """Return who reads a file: a long one isn't read on an event loop."""
    return None if size_bytes <= INLINE_BYTES else SYNC_WORKERS


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)  # a link or a FIFO too, which the reader refuses


def _size_of(path: Path, to_offset: int | None = None) -> int:
    """Return the size of a file up to an offset, in bytes; 0 if it is missing."""
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
