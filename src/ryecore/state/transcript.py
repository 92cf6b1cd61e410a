"""The transcript of a thread: its one writer.

Records are buffered until a commit writes them with one call; a checkpoint closes each turn. The
transcript of a killed process can be resumed: a torn line is dropped, and records after the last
checkpoint are kept and marked.

Source: docs/design/threads.md#storage; decisions 38 and 47.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from ryecore.errors import StateError, StateLocked
from ryecore.lillux.keys import SigningKey
from ryecore.lillux.locks import describe_holders, find_lock_holders, release_advice
from ryecore.state.record_buffer import Chain, RecordBuffer
from ryecore.state.record_log import Recovery
from ryecore.state.refusals import advice
from ryecore.state.transcript_check import read_chain
from ryecore.state.transcript_format import Head, open_plain
from ryecore.state.waiting import try_flock

__all__ = ["Transcript"]


class Transcript(RecordBuffer):
    """The writer of one thread's transcript, made by `create` or `resume`.

    Attributes:
        unsynced: What was written since this was last cleared; nothing is added to it while it is
            None.
    """

    def __init__(self, descriptor: int, thread_id: str, key: SigningKey) -> None:
        super().__init__(thread_id, key)
        self._descriptor = descriptor
        self._is_ragged = False  # a write broke off, and a part of it may be in the file
        self._failure = ""
        self.unsynced: list[bytes] | None = None

    @classmethod
    def create(cls, path: str | Path, thread_id: str, key: SigningKey) -> Self:
        """Create a thread's transcript. The file must not exist; its folder must."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as problem:
            raise _unusable(path, problem) from problem
        made = cls(descriptor, thread_id, key)
        try:
            _lock(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
        return made

    @classmethod
    def resume(
        cls,
        path: Path,
        thread_id: str,
        key: SigningKey,
        *,
        head: tuple[int, str] | None = None,
    ) -> tuple[Self, Recovery]:
        """Resume a transcript whose writer is gone; it must have the registry's last checkpoint.

        Only lines that no checkpoint covers are dropped, from the first one that isn't a whole
        record. A file that another process writes, or that isn't as it was signed, is refused.
        """
        try:
            descriptor = open_plain(path, os.O_RDWR | os.O_APPEND)
        except OSError as problem:
            raise _unusable(path, problem) from problem
        try:
            _lock(descriptor, path)
            with open(descriptor, "rb", closefd=False) as file:
                size = os.fstat(descriptor).st_size
                chain, last_type = read_chain(file, size, thread_id, key.public, head)
            chain.check(path)
            made = cls(descriptor, thread_id, key)
            recovery = made._continue(chain, last_type)
            if recovery.is_torn:
                os.ftruncate(descriptor, made._offset)
        except OSError as problem:
            os.close(descriptor)
            raise _unusable(path, problem) from problem
        except BaseException:
            os.close(descriptor)
            raise
        return made, recovery

    def commit(self) -> None:
        """Write the buffered records. Once this returns, they survive the death of the process.

        What can't be written stays buffered, and the next commit tries again.
        """
        if self._pieces:
            self._keep_delta()
        if self._lines:
            self._write_kept()

    def record(self, event_type: str, payload: Mapping[str, Any]) -> None:
        """Append a record, and commit."""
        self.append(event_type, payload)
        self.commit()

    def delta(self, text: str) -> None:
        """Append a piece of streamed text. Pieces are written together, and not synced.

        Source: decision 47.
        """
        if self._add_delta(text):
            self._keep_delta()
            self._write_kept()

    def checkpoint(self, turn: int) -> Head:
        """Close a turn: write the buffered records, and a signed checkpoint after them.

        Returns the new head of the chain. What can't be written is tried again by the next one.
        """
        if self._pieces:
            self._keep_delta()
        data = "".join(self._lines).encode("ascii")
        line, chain, head = self._closed_by(data, turn)
        self._write(data + line, chain)
        return head

    def _write_kept(self) -> None:
        data = "".join(self._lines).encode("ascii")
        self._write(data, self._chain_after(data))

    def _write(self, data: bytes, chain: Chain) -> None:
        """Write all buffered records, or leave none of them in the file."""
        if self._failure:
            self._refuse(self._failure)
        size = len(data)
        try:
            if self._is_ragged:
                os.ftruncate(self._descriptor, self._offset)
            self._is_ragged = True
            written = os.write(self._descriptor, data)
            while written < size:
                written += os.write(self._descriptor, data[written:])
        except OSError as problem:
            self._trim()
            self._refuse(problem.strerror or str(problem), problem)
        # In one statement: an interrupt before it undoes the write, one after it finds it complete.
        self._offset, self._chain, self._lines, self._is_ragged = (
            self._offset + size, chain, [], False
        )  # fmt: skip
        if self.unsynced is not None:
            self.unsynced.append(data)

    def _trim(self) -> None:
        """Truncate a partial write; if that fails, the next write or a resume does it."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._offset)
            self._is_ragged = False

    def sync(self) -> None:
        """Sync what was written, so that it survives a loss of power.

        After a failure, nothing is written any more.
        """
        if self._failure:
            self._refuse(self._failure)
        try:
            os.fdatasync(self._descriptor)
        except OSError as problem:
            # The kernel may have dropped the pages, and would report the next sync as a success.
            self._failure = problem.strerror or str(problem)
            self._refuse(self._failure, problem)

    def _refuse(self, why: str, cause: OSError | None = None) -> NoReturn:
        raise StateError(
            f"The transcript of {self._thread_id} can't be written: {why}.",
            next_step=f"{advice(cause)} Then resume the thread." if cause else "Resume the thread.",
        ) from cause

    def close(self) -> None:
        """Commit, and close the file, even if that commit fails. A second call does nothing."""
        if self._descriptor < 0:
            return
        try:
            self.commit()
        finally:
            descriptor, self._descriptor = self._descriptor, -1
            self._failure = "it is closed"
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _lock(descriptor: int, path: str | Path) -> None:
    """Lock the file for one writer of all processes; the kernel unlocks it if the writer dies."""
    try:
        if try_flock(descriptor):
            return
    except OSError as problem:
        raise _unusable(path, problem) from problem
    holders = find_lock_holders(Path(path))
    is_stopped = any(one.is_stopped for one in holders)
    raise StateLocked(
        f"The transcript {path} is written by {describe_holders(holders)}.",
        next_step=release_advice(holders)
        if is_stopped
        else "Wait until its thread has ended, or stop it: rye threads cancel",
        path=str(path),
        holders=holders,
    )


def _unusable(path: str | Path, problem: OSError) -> StateError:
    return StateError(
        f"The transcript {path} can't be used: {problem.strerror or problem}.",
        next_step=advice(problem),
    )
