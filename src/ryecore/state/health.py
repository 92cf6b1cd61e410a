"""The condition of a project's state, examined without changing it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ryecore.errors import RyeError, StateError
from ryecore.frozen import frozen
from ryecore.lillux.digests import TreeFilter, list_tree
from ryecore.lillux.locks import LockHolder, find_lock_holders
from ryecore.state.adoption import DATABASE
from ryecore.state.attestation import find_attested_folder
from ryecore.state.model import THREADS_FOLDER, ThreadRecord
from ryecore.state.refusals import advice
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sqlite_files import file_system_of, is_shared, opened_copy
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.thread_rows import record_of

__all__ = [
    "MAX_PROBLEMS",
    "SQLITE_VERSION",
    "RegistryHealth",
    "StateExamination",
    "shared_file_system",
]

SQLITE_VERSION: Final = sqlite3.sqlite_version

MAX_PROBLEMS: Final = 5
"""The most problems of a registry that are reported."""

_TRANSCRIPTS: Final = TreeFilter(extensions=(Path(TRANSCRIPT).suffix,))


@frozen
class RegistryHealth:
    """The condition of the registry.

    Attributes:
        path: The place where a person finds it.
        problems: What is damaged, at most `MAX_PROBLEMS`.
        unregistered: The threads that have files but no row, sorted.
        strays: The number of rows of threads that are gone.
        threads: The number of threads; 0 where it is damaged.
        newer_version: The version of its schema, if a newer ryecore has written it.
    """

    path: Path
    problems: tuple[str, ...] = ()
    unregistered: tuple[str, ...] = ()
    strays: int = 0
    threads: int = 0
    newer_version: int | None = None


class StateExamination:
    """Examines the state of a project, by a copy of its registry."""

    def __init__(self, project_root: Path, user_root: Path) -> None:
        self._state = project_root / "state"
        self._user_root = user_root

    def find_folder(self) -> Path | None:
        """Return the folder of the threads; None if there is none. Another user's is refused."""
        found = find_attested_folder(self._state, THREADS_FOLDER, self._user_root)
        return None if found is None else found.path

    def folders_set_aside(self) -> tuple[str, ...]:
        """Return the names of folders that were set aside, sorted."""
        found = self._state.glob(f"{THREADS_FOLDER}.unattested-*")
        return tuple(sorted(one.name for one in found))

    def examine_registry(self) -> RegistryHealth | None:
        """Examine the registry; None if there is no state, or another user's."""
        with_files = self._threads_with_files()  # before the rows: a new thread's row comes first
        path = self._registry()
        if path is None:
            missing = self._state / THREADS_FOLDER
            return RegistryHealth(missing, unregistered=with_files) if with_files else None
        with _opened(path) as opened:
            problems = [row[0] for row in opened.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})")]
            if problems != ["ok"]:
                return RegistryHealth(path, tuple(problems))
            strays = len(opened.execute("PRAGMA foreign_key_check").fetchall())
            version = _version_of(opened)
            known = {row[0] for row in opened.execute("SELECT thread_id FROM threads")}
            threads = len(known)
            if version == len(MIGRATIONS):
                known |= {row[0] for row in opened.execute("SELECT thread_id FROM pruned")}
        newer_version = version if version > len(MIGRATIONS) else None
        lost = () if newer_version else tuple(one for one in with_files if one not in known)
        return RegistryHealth(path, (), lost, strays, threads, newer_version)

    def active_threads(self) -> tuple[ThreadRecord, ...] | None:
        """Return the threads that haven't ended; None without a registry."""
        path = self._registry()
        if path is None:
            return None
        with _opened(path) as opened:
            rows = opened.execute("SELECT * FROM threads WHERE completed_at IS NULL").fetchall()
            is_readable = _version_of(opened) == len(MIGRATIONS)
            return tuple(map(record_of, rows)) if is_readable else ()

    def find_lock_holders(self) -> tuple[LockHolder, ...]:
        """Find the processes that hold locks of the state."""
        files, path = [self._state], self._registry()
        if path is not None:
            files += [path, *(path.with_name(path.name + end) for end in ("-shm", ".gate"))]
        return find_lock_holders(*files)

    def find_writers(self) -> tuple[LockHolder, ...]:
        """Find the processes that write the records of threads that haven't ended."""
        folder = self._state / THREADS_FOLDER
        active = self.active_threads() or ()
        return find_lock_holders(*(folder / one.thread_id / TRANSCRIPT for one in active))

    def private_paths(self) -> tuple[Path, ...]:
        """Return the files and folders that only their owner may reach, missing ones included."""
        keys = self._user_root / "state/keys"
        found = (keys, keys / "run_key.pem", self._user_root / "config/keys/signing")
        path = self._registry()
        return found if path is None else (*found, path.parent.parent, path.parent, path)

    def _threads_with_files(self) -> tuple[str, ...]:
        with suppress(RyeError):
            folder = self.find_folder()
            if folder is not None:
                # Natively: each of ten thousand threads has a folder.
                found = (name for name, _ in list_tree(folder, _TRANSCRIPTS))
                end = f"/{TRANSCRIPT}"
                return tuple(sorted(one.removesuffix(end) for one in found if one.endswith(end)))
        return ()

    def _registry(self) -> Path | None:
        with suppress(RyeError):
            found = find_attested_folder(self._state, THREADS_FOLDER, self._user_root)
            if found is not None and (found.private / DATABASE).exists():
                return found.private / DATABASE
        return None


def shared_file_system(folder: Path) -> str:
    """Return the type of a folder's file system if machines may share it; else an empty text."""
    kind = file_system_of(folder)
    return kind if is_shared(kind) else ""


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with opened_copy(path) as opened:
            yield opened
    except sqlite3.Error as problem:
        raise StateError(
            f"It can't be examined: {problem}.", next_step=advice(problem)
        ) from problem


def _version_of(opened: sqlite3.Connection) -> int:
    (version,) = opened.execute("PRAGMA user_version").fetchone()
    return int(version)
