"""The removal of threads that ended long ago: their rows, accounts, folders and exports.

Threads that refer to each other (parents and children, chains of continuations, forks) are one
family. A family is removed as a whole, once its last thread has ended long enough ago, so that no
reference and no sum is left that includes a removed thread. Its rows are removed first, in one
transaction that notes its ids; then its files. After a kill in between, the next pruning finishes.

Source: ADR 027.
"""

# ruff: noqa: S608 - what is spliced into statements is the project's own constants

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ryecore.errors import ConfigError, InputError, LinkLeavesSpace, StateError
from ryecore.frozen import frozen
from ryecore.items.files import folder_without_links, writable_folder
from ryecore.items.refs import RECORD_LINE
from ryecore.lillux.digests import read_digest
from ryecore.state.attestation import AttestedFolder
from ryecore.state.exports import export_path
from ryecore.state.model import Status, check_status, has_ended
from ryecore.state.object_store import ObjectStore
from ryecore.state.refusals import advice
from ryecore.state.schema import ENDED
from ryecore.state.statements import Row, SqlDatabase
from ryecore.state.waiting import run_in_thread

__all__ = [
    "AGE_UNITS",
    "Family",
    "PrunePlan",
    "Retention",
    "ThreadPruning",
    "parse_age",
    "resolve_retention",
]

_AGE: Final = re.compile(r"(\d{1,6})\s*([smhdw])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
AGE_UNITS: Final = "s (seconds), m (minutes), h (hours), d (days) or w (weeks)"
"""The units of an age, for people."""
_MAX_AGE_S: Final = 100 * 365 * 86_400
_TRASH: Final = "pruned"
_MARK: Final = "pruned-at"
_EVERY_S: Final = 86_400
_MOST_S: Final = 2.0
_MAX_EXPORT_BYTES: Final = 64 * 1024 * 1024
_RESUMABLE: Final = ("error", "killed")
_RESUMABLE_FACTOR: Final = 2

_AMONG: Final = "(SELECT value FROM json_each(?))"
_LINKED: Final = (
    f"SELECT 1 FROM threads WHERE (parent_id IN {_AMONG} OR continuation_of IN {_AMONG})"
    f" AND thread_id NOT IN {_AMONG} LIMIT 1"
)
_NESTED: Final = (  # "0" is the character after "/"
    "SELECT 1 FROM json_each(?) AS one CROSS JOIN threads ON threads.thread_id > one.value || '/'"
    f" AND threads.thread_id < one.value || '0' WHERE threads.thread_id NOT IN {_AMONG} LIMIT 1"
)
_TABLES: Final = ("charges", "accounts", "results", "approvals", "threads")


def parse_age(text: object) -> float:
    """Parse an age such as `90s`, `15m`, `12h`, `30d` or `8w`, and return it in seconds."""
    found = _AGE.fullmatch(text.strip()) if isinstance(text, str) else None
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 0 < seconds <= _MAX_AGE_S:
        raise ConfigError(
            f"{text!r} can't be used as an age.",
            next_step=f"Write a whole number above 0 and a unit, such as 30d: {AGE_UNITS}.",
        )
    return float(seconds)


@frozen
class Retention:
    """The rule that decides which ended threads are kept.

    Attributes:
        older_than_s: The age in seconds of the last end in a family, from which it is removed.
        keep: The number of threads kept whatever their age, the latest first; families count whole.
        include_resumable: Whether families that may be resumed are removed at the same age as
            others. By default a family stays twice as long if a thread of it failed or was killed
            and no other thread continues it.
    """

    older_than_s: float
    keep: int = 0
    include_resumable: bool = False


def resolve_retention(
    configured: Retention | None,
    older_than: str | None,
    keep: int | None,
    include_resumable: bool | None,
) -> Retention:
    """Complete the caller's rule with the configured one. One of them has to name an age."""
    if keep is not None and (type(keep) is not int or keep < 0):
        raise InputError(f"keep is {keep!r}.", next_step="Pass a whole number from 0.")
    if older_than is None and configured is None:
        raise ConfigError(
            "Nothing says how long ended threads are kept.",
            next_step="Pass an age, such as --older-than 30d, or sign an agent/retention.yaml.",
        )
    asked = Retention(parse_age(older_than)) if older_than is not None else configured
    assert asked is not None  # noqa: S101 - one of the two is there
    base = configured or asked
    return Retention(
        asked.older_than_s,
        base.keep if keep is None else keep,
        base.include_resumable if include_resumable is None else include_resumable,
    )


@frozen
class Family:
    """Threads that refer to each other, all of which have ended, with the time of each end."""

    ended: tuple[tuple[str, str], ...]
    size_bytes: int = 0

    @property
    def thread_ids(self) -> tuple[str, ...]:
        """The ids of the threads."""
        return tuple(thread_id for thread_id, _ in self.ended)


@frozen
class PrunePlan:
    """The families that may be removed, the earliest end first.

    `kept_resumable` counts the threads kept for now because they may be resumed.
    """

    families: tuple[Family, ...]
    kept_resumable: int = 0


class ThreadPruning:
    """Removes ended threads of one project."""

    def __init__(
        self,
        database: SqlDatabase,
        place: AttestedFolder,
        shared_spaces: Callable[[str], Iterable[ObjectStore]],
        *,
        is_shared: bool,
    ) -> None:
        self._database = database
        self._is_shared = is_shared
        more = ("records", "logs", "thread_files") if is_shared else ("write_ahead",)
        self._tables = (*more, *_TABLES)
        self._folder = place.path
        self._shared_spaces = shared_spaces
        # A clone can bring a link of any known name. This folder's name is secret.
        self._trash = place.private / _TRASH
        self._mark = place.private / _MARK
        self._project_root = place.path.parent.parent

    async def plan(self, retention: Retention) -> PrunePlan:
        """Plan which families may be removed now, and measure their files. Nothing is changed."""
        return await run_in_thread(self._plan, retention)

    async def prune(self, family: Family) -> bool:
        """Remove a family, unless it was changed or referred to since it was planned.

        Returns whether it was removed. If its files can't be removed, the next call finishes that.
        """
        return await run_in_thread(self._prune, family)

    async def finish(self) -> int:
        """Remove the files that an earlier, killed pruning left, and count their threads."""
        return await run_in_thread(self._finish)

    async def prune_daily(self, retention: Retention) -> bool:
        """Prune unless that was done within a day: one family, and others for two seconds.

        Returns whether nothing is left to prune; otherwise the next call continues.
        """
        return await run_in_thread(self._prune_daily, retention)

    def is_due(self) -> bool:
        """Return whether `prune_daily` has something to do: it didn't end within a day."""
        with suppress(OSError):
            return not 0 <= time.time() - self._mark.stat().st_mtime < _EVERY_S
        return True

    def _prune_daily(self, retention: Retention) -> bool:
        if not self.is_due():
            return True
        self._finish()
        families = self._plan(retention, measures=False).families
        began = time.monotonic()
        for number, family in enumerate(families):
            if number and time.monotonic() - began > _MOST_S:
                return False  # the mark stays old
            self._prune(family)
        with suppress(OSError):
            self._mark.touch(mode=0o600)
            os.utime(self._mark)
        return True

    def _plan(self, retention: Retention, *, measures: bool = True) -> PrunePlan:
        rows = self._database.read(
            "SELECT thread_id, status, completed_at, parent_id, root_id, continuation_of,"
            " continuation_thread_id, chain_root_id FROM threads ORDER BY rowid"
        )
        now, age = datetime.now(UTC), timedelta(seconds=retention.older_than_s)
        cutoff = _moment(now - age)
        late_cutoff = _moment(now - age * _RESUMABLE_FACTOR)
        # A fork, which has no chain root, continues nothing.
        resumed = {row["continuation_of"] for row in rows if row["chain_root_id"] is not None}
        left, kept_resumable = retention.keep, 0
        going: list[list[Row]] = []
        # The latest first, because `keep` counts them; of those that ended at once, the youngest.
        for family in sorted(_families(rows), key=_ended_at)[::-1]:
            if left > 0:
                left -= len(family)
                continue
            if not all(row["completed_at"] and has_ended(_status(row)) for row in family):
                continue
            is_late = retention.include_resumable or not any(
                _may_be_resumed(row) and row["thread_id"] not in resumed for row in family
            )
            ended_at = _ended_at(family)
            if ended_at < (cutoff if is_late else late_cutoff):
                going.append(family)
            elif ended_at < cutoff:
                kept_resumable += len(family)
        logs: dict[str, int] = {}
        if measures and self._is_shared:
            found = self._database.read("SELECT thread_id, length FROM logs")
            logs = {row["thread_id"]: row["length"] for row in found}
        families = (
            Family(
                tuple((row["thread_id"], row["completed_at"]) for row in family),
                sum(
                    self._size_bytes(row["thread_id"]) + logs.get(row["thread_id"], 0)
                    for row in family
                )
                if measures
                else 0,
            )
            for family in reversed(going)
        )
        return PrunePlan(tuple(families), kept_resumable)

    def _prune(self, family: Family) -> bool:
        ids = json.dumps(family.thread_ids)
        with self._database.write() as run:
            ended = run.execute(
                f"SELECT thread_id, completed_at FROM threads WHERE thread_id IN {_AMONG}"
                f" AND status IN ({ENDED})",
                (ids,),
            ).fetchall()
            is_same = {tuple(row) for row in ended} == set(family.ended)
            if not is_same or any(
                run.execute(query, (ids,) * query.count("?")).fetchone()
                for query in (_LINKED, _NESTED)
            ):
                return False
            run.execute(
                "INSERT INTO pruned (thread_id) SELECT value FROM json_each(?) WHERE TRUE"
                " ON CONFLICT DO NOTHING",
                (ids,),
            )
            for table in self._tables:
                run.execute(f"DELETE FROM {table} WHERE thread_id IN {_AMONG}", (ids,))
        self._remove_files(family.thread_ids)
        return True

    def _finish(self) -> int:
        rows = self._database.read("SELECT thread_id FROM pruned")
        ids = [row["thread_id"] for row in rows]
        if ids:
            self._remove_files(ids)
        with suppress(OSError):
            for left in self._trash.iterdir():
                shutil.rmtree(left, ignore_errors=True)
        return len(ids)

    def _remove_files(self, thread_ids: Sequence[str]) -> None:
        for thread_id in thread_ids:
            for shared in self._shared_spaces(thread_id):
                shared.delete([one.sha256 for one in shared.list()])
        aside = self._trash / secrets.token_hex(8)
        try:
            aside.mkdir(parents=True, mode=0o700)
            with self._database.write() as run:  # no thread with such an id can be made meanwhile
                for number, thread_id in enumerate(thread_ids):
                    query = "SELECT 1 FROM threads WHERE thread_id = ?"
                    if run.execute(query, (thread_id,)).fetchone() is None:
                        *above, name = thread_id.split("/")
                        with (
                            suppress(FileNotFoundError, NotADirectoryError),
                            folder_without_links(self._folder, above) as folder,
                        ):
                            (folder / name).rename(aside / str(number))
                        self._remove_export(thread_id)
                    run.execute("DELETE FROM pruned WHERE thread_id = ?", (thread_id,))
        except OSError as problem:
            raise StateError(
                f"What is left of pruned threads can't be removed: {problem.strerror}.",
                next_step=advice(problem),
            ) from problem
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _remove_export(self, thread_id: str) -> None:
        """Remove an export. A file in its place that was signed as an item stays."""
        path = export_path(self._project_root, thread_id)
        if not path.is_file():
            return
        knowledge, boundary = self._project_root / "knowledge", self._project_root.parent
        with (
            suppress(LinkLeavesSpace, FileNotFoundError),
            writable_folder(path.parent, knowledge, boundary) as folder,
        ):
            content = read_digest(str(folder / path.name), max_bytes=_MAX_EXPORT_BYTES)[0]
            if content.startswith(RECORD_LINE):
                (folder / path.name).unlink()

    def _size_bytes(self, thread_id: str) -> int:
        total = 0
        with suppress(OSError):
            total += export_path(self._project_root, thread_id).lstat().st_size
        for parent, _, names in os.walk(self._folder / thread_id):
            for name in names:
                with suppress(OSError):
                    total += Path(parent, name).lstat().st_size
        return total


def _status(row: Row) -> Status:
    return check_status(row["status"])


def _moment(when: datetime) -> str:
    """Return a moment in the format of the rows."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03}Z"


def _ended_at(family: Iterable[Row]) -> str:
    """Return the last end in a family; a running thread counts as later than any end."""
    return max(row["completed_at"] or "~" for row in family)


def _may_be_resumed(row: Row) -> bool:
    return row["status"] in _RESUMABLE and row["continuation_thread_id"] is None


def _families(rows: Sequence[Row]) -> list[list[Row]]:
    """Group threads that refer to each other."""
    above: dict[str, str] = {}

    def head(thread_id: str) -> str:
        while (other := above.setdefault(thread_id, thread_id)) != thread_id:
            above[thread_id] = above.setdefault(other, other)
            thread_id = other
        return thread_id

    columns = ("parent_id", "root_id", "continuation_of", "continuation_thread_id", "chain_root_id")
    for row in rows:
        for column in columns:
            if row[column] is not None:
                above[head(row["thread_id"])] = head(row[column])
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(head(row["thread_id"]), []).append(row)
    return list(families.values())
