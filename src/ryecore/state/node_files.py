"""The files of a run on a node, below `node/` in its thread's folder.

They are the node's, and never count as this user's own records.

Source: docs/design/remote.md#at-home; decision 74.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Final

from ryecore.errors import StateError
from ryecore.items.files import (
    folder_without_links,
    make_folder_without_links,
    write_atomically,
)
from ryecore.lillux.keys import PublicKey
from ryecore.state.refusals import advice
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript_check import read_records, verify_transcript
from ryecore.state.transcript_format import Record
from ryecore.state.transcript_report import TranscriptReport

__all__ = ["NodeFiles"]

_FOLDER: Final = "node"
_MODE: Final = 0o700


class NodeFiles:
    """The folder of one run's files from its node. No link is followed on the way to it.

    Args:
        threads: The folder of all threads.
        thread_id: The run.
    """

    def __init__(self, threads: Path, thread_id: str) -> None:
        self._threads = threads
        self._names: tuple[str, ...] = (*thread_id.split("/"), _FOLDER)

    @property
    def path(self) -> Path:
        """Where a person finds them."""
        return self._threads.joinpath(*self._names)

    def below(self, *names: str) -> "NodeFiles":
        """Return the files of a folder below."""
        found = copy(self)
        found._names = (*self._names, *names)
        return found

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Open the folder, which is made if it is missing; the path holds until the block's end.

        Raises:
            StateError: It can't be made, or has a link.
        """
        try:
            link = make_folder_without_links(self._threads, self._names, _MODE)
            opened = folder_without_links(self._threads, self._names)
            folder = opened.__enter__()
        except OSError as problem:
            raise StateError(
                f"{self.path} can't be written: {problem.strerror}.", next_step=advice(problem)
            ) from problem
        try:
            if link is not None:
                raise StateError(
                    f"{self.path}/{link} is a link, so nothing is written beside it.",
                    next_step="Remove the link.",
                )
            yield folder
        finally:
            opened.__exit__(None, None, None)

    def write(self, name: str, content: bytes) -> None:
        """Write or replace a file.

        Raises:
            StateError: It can't be written.
        """
        with self.writing() as folder:
            try:
                write_atomically(folder / name, content, mode=0o600, durable=False)
            except OSError as problem:
                raise StateError(
                    f"{self.path / name} can't be written: {problem.strerror}.",
                    next_step=advice(problem),
                ) from problem

    @contextmanager
    def receiving(self, name: str) -> Iterator[Path]:
        """Yield the path of a file, which has its name once the block has ended well.

        An earlier block that failed may have left a part of it there.

        Raises:
            StateError: It can't be written.
        """
        with self.writing() as folder:
            part = folder / f".{name}.part"
            try:
                yield part
                part.replace(folder / name)
            except OSError as problem:
                raise StateError(
                    f"{self.path / name} can't be written: {problem.strerror or problem}.",
                    next_step=advice(problem),
                ) from problem

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name."""
        return (self.path / name).is_file()

    def remove(self, name: str) -> None:
        """Remove a file, unless it is missing.

        Raises:
            StateError: It can't be removed.
        """
        with self.writing() as folder:
            try:
                (folder / name).unlink(missing_ok=True)
            except OSError as problem:
                raise StateError(
                    f"{self.path / name} can't be removed: {problem.strerror}.",
                    next_step=advice(problem),
                ) from problem

    def digest(self, name: str) -> tuple[str, int] | None:
        """Return the SHA-256 and the length of a file; None where it is missing, or a link."""
        with suppress(OSError), folder_without_links(self._threads, self._names) as folder:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb", buffering=0) as file:
                return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
        return None

    def records(self) -> Iterator[Record]:
        """Yield the records of the transcript of a thread; none where it is missing.

        Raises:
            StateError: It can't be read, or is a link.
        """
        path = self.path / TRANSCRIPT
        if os.path.lexists(path):
            yield from read_records(path)

    def verify_transcript(
        self, thread_id: str, key: PublicKey, head: tuple[int, str] | None
    ) -> TranscriptReport:
        """Check the transcript of a thread that has ended on the node, turn by turn.

        Args:
            thread_id: Its id there.
            key: The run key that signed it there.
            head: Its last checkpoint, as the node reported it.
        """
        return verify_transcript(self.path / TRANSCRIPT, thread_id, key, head, ended=True)

    def read(self, name: str, max_bytes: int) -> bytes | None:
        """Return the content of a file; None where it is missing, too large, or a link."""
        with suppress(OSError), folder_without_links(self._threads, self._names) as folder:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                content = file.read(max_bytes + 1)
                return content if len(content) <= max_bytes else None
        return None
