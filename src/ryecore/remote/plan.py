"""The plan of a push: the snapshot of what travels, with the file of each object.

Source: docs/design/remote.md#at-home; decision 66.
"""

import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from typing import Final

import anyio.from_thread
import anyio.to_thread

from ryecore.display.text import Rendered, StyledText, byte_size, counted
from ryecore.errors import InputError
from ryecore.frozen import frozen
from ryecore.items.refs import ItemRef
from ryecore.items.spaces import project_digest
from ryecore.remote.inspected import Inspected, InspectedFiles, has_rested
from ryecore.remote.protocol.models import MAX_SNAPSHOT_BYTES
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile, check_snapshot
from ryecore.remote.rules import INSPECTED_BYTES, why_content_stays
from ryecore.remote.selection import (
    FileIdentity,
    LeftOut,
    SelectedFile,
    Selection,
    select_files,
)

__all__ = ["PushPlan", "PushPlanner", "make_plan", "open_selected"]

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE_BYTES: Final = 1024 * 1024
_GLANCED_AT: Final = 1000
_MAX_BYTES: Final = 1024**4
"""The most bytes of all files that travel at once, whatever the node would take."""

_MUCH_BYTES: Final = 256 * 1024 * 1024
"""From how many bytes that have to be read the node's room is asked for first."""


@frozen(slots=False)
class PushPlan(Rendered):
    """What travels to a node.

    Attributes:
        snapshot: The files, with their hashes.
        sources: The file here of each object, by its SHA-256.
        left_out: What lies among the files and doesn't travel.
        unmatched: The patterns of `push.include` that no file matches.
    """

    snapshot: Snapshot
    sources: Mapping[str, SelectedFile]
    left_out: tuple[LeftOut, ...]
    unmatched: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all objects; files of the same content count once."""
        return sum(one.identity.size_bytes for one in self.sources.values())

    def left_out_item(self, ref: ItemRef) -> LeftOut | None:
        """Return the file of an item that is used here and doesn't travel; None for another one."""
        return self._left_out_items.get(f".ai/{ref.folder}/{ref.id}")

    @cached_property
    def _left_out_items(self) -> Mapping[str, LeftOut]:
        """The items that are left out, by their paths without extension; the project's come first.

        One of user space that has the name of a project's isn't used here either.
        """
        found: dict[str, LeftOut] = {}
        in_project: set[str] = set()
        for one in self.left_out:  # the project's first
            item = one.path.rpartition(".")[0]
            if not item.startswith(".ai/"):
                continue
            if one.space == "user" and not in_project:
                files = self.snapshot.files
                in_project = {f.path.rpartition(".")[0] for f in files if f.space == "project"}
            if one.space == "project" or item not in in_project:
                found.setdefault(item, one)
        return found

    def to_dict(self) -> dict[str, object]:
        """Return the plan as a JSON-ready object."""
        return {
            "snapshot": self.snapshot.id,
            "size_bytes": self.size_bytes,
            "files": [
                {
                    "space": one.space,
                    "path": one.path,
                    "sha256": one.sha256,
                    "size_bytes": one.size_bytes,
                    "executable": one.executable,
                }
                for one in self.snapshot.files
            ],
            "left_out": [
                {"space": one.space, "path": one.path, "reason": one.reason}
                for one in self.left_out
            ],
            "unmatched_patterns": list(self.unmatched),
        }

    def render(self) -> StyledText:
        """Return the plan for a terminal."""
        text = StyledText()
        files = self.snapshot.files
        text.line(
            (counted(len(files), "file"), "strong"),
            f" would travel, {byte_size(self.size_bytes)}",
            (f"  snapshot {self.snapshot.id[:12]}", "dim"),
        )
        for one in files:
            text.line(
                (f"  {one.space:<7} ", "dim"),
                (one.path, "id"),
                (f"  {byte_size(one.size_bytes)}", "dim"),
            )
        if self.left_out:
            text.line((f"{len(self.left_out)} left out", "strong"))
        for left in self.left_out:
            text.line((f"  {left.space:<7} ", "dim"), left.path, (f"  {left.reason}", "warn"))
        for pattern in self.unmatched:
            text.line(("push.include ", "dim"), pattern, ("  matches no file", "warn"))
        return text


class PushPlanner:
    """Plans pushes. A file is read again only when its stat has changed, by any process.

    Threads may ask at the same time; at worst a file is read twice.

    Attributes:
        spaces: The folders that files travel from, by the names of their spaces.
    """

    def __init__(self, project: Path, user: Path) -> None:
        self.spaces: Mapping[str, Path] = {"project": project, "user": user}
        self._project = project
        self._user = user
        cache = user / ".ai/cache/remote" / f"{project_digest(project)}.json"
        self._inspected = InspectedFiles(cache)
        self._last: dict[tuple[str, ...], tuple[Selection, PushPlan]] = {}

    def current(self, include: Sequence[str] = ()) -> PushPlan | None:
        """Return the last plan, if a glance at the stats shows that nothing has changed.

        It takes some microseconds for each file and folder. None is returned where it would take
        long, or can't tell.
        """
        last = self._last.get(tuple(include))
        if last is None:
            return None
        selection, plan = last
        if len(selection.files) + len(selection.folders) > _GLANCED_AT:
            return None
        return plan if selection.is_current() else None

    def __call__(
        self,
        include: Sequence[str] = (),
        *,
        check: Callable[[], None] = lambda: None,
        find_room: Callable[[], int | None] = lambda: None,
    ) -> PushPlan:
        """Return what travels now.

        Args:
            include: Patterns of more files of the project.
            check: Called before each folder and between parts of files; what it raises ends this.
            find_room: Returns how many bytes the node would take, if that is known. It is called
                where much has to be read.

        Raises:
            LinkLeavesSpace: A link leads out of the project, or out of the user's `.ai`.
            InputError: The files are too many or too large, or one can't be read.
        """
        patterns = tuple(include)
        last = self._last.get(patterns)
        if last is not None and last[0].is_current():
            return last[1]
        selection = select_files(self._project, self._user, patterns, check=check)
        self._last.pop(patterns, None)
        self._check_size(selection, find_room)
        plan = self._plan(selection, check)
        if _is_settled(selection) and self._are_known(selection):
            self._last[patterns] = selection, plan
        return plan

    def _are_known(self, selection: Selection) -> bool:
        known = self._inspected
        return all(one.source in known for one in selection.files)

    def _check_size(self, selection: Selection, find_room: Callable[[], int | None]) -> None:
        """Refuse files that are too large, before any of them is read."""
        known = self._inspected
        sizes = {one.source: one.identity.size_bytes for one in selection.files}
        unread_bytes = sum(
            one.identity.size_bytes
            for one in selection.files
            if known.find(one.source, one.identity) is None
        )
        room_bytes = find_room() if unread_bytes > _MUCH_BYTES else None
        most_bytes = _MAX_BYTES if room_bytes is None else min(room_bytes, _MAX_BYTES)
        if sum(sizes.values()) <= most_bytes:
            return
        largest = max(sizes, key=lambda one: sizes[one])
        whose = "one push may have" if room_bytes is None else "the node keeps for you"
        raise InputError(
            f"Files of {byte_size(sum(sizes.values()))} would travel, and {whose} at most "
            f"{byte_size(most_bytes)}. The largest is {largest} with {byte_size(sizes[largest])}.",
            next_step="Leave large files out of push.include in remotes.yaml.",
        )

    def _plan(self, selection: Selection, check: Callable[[], None]) -> PushPlan:
        files: list[SnapshotFile] = []
        left_out = [*selection.left_out]
        sources: dict[str, SelectedFile] = {}
        for one in selection.files:
            found = self._inspect(one, check)
            if found.reason is not None:
                left_out.append(LeftOut(one.space, one.path, found.reason))
                continue
            size_bytes = found.identity.size_bytes
            files.append(
                SnapshotFile(one.space, one.path, found.sha256, size_bytes, one.executable)
            )
            sources[found.sha256] = SelectedFile(
                one.space, one.path, one.source, found.identity, one.executable
            )
        self._inspected.save(one.source for one in selection.files)
        snapshot = Snapshot(tuple(files))
        why = check_snapshot(snapshot)
        if why is None and len(snapshot.to_bytes()) > MAX_SNAPSHOT_BYTES:
            why = f"Its list of files takes more than {MAX_SNAPSHOT_BYTES:,} bytes."
        if why is not None:
            raise InputError(
                f"The files that would travel can't be sent: {why}",
                next_step="Rename or remove files, or narrow push.include in remotes.yaml.",
            )
        left_out.sort(key=lambda one: (one.space, one.path))
        return PushPlan(snapshot, sources, tuple(left_out), selection.unmatched)

    def _inspect(self, file: SelectedFile, check: Callable[[], None]) -> Inspected:
        found = self._inspected.find(file.source, file.identity)
        if found is None:
            found = _inspect(file, check)
            self._inspected.add(file.source, found)
        return found


async def make_plan(
    planner: PushPlanner,
    include: Sequence[str],
    find_room: Callable[[], Awaitable[int | None]] | None = None,
) -> PushPlan:
    """Plan a push in a worker thread, which ends soon after the call is cancelled.

    Args:
        planner: The planner.
        include: Patterns of more files of the project.
        find_room: Returns how many bytes the node would take, if that is known.
    """
    is_left = Event()

    def check() -> None:
        if is_left.is_set():  # as by Ctrl-C, which cancels no scope
            raise InputError("The call was cancelled.")
        anyio.from_thread.check_cancelled()

    async def find() -> int | None:
        return None if find_room is None else await find_room()

    ask = partial(anyio.from_thread.run, find)

    try:
        return await anyio.to_thread.run_sync(partial(planner, include, check=check, find_room=ask))
    finally:
        is_left.set()


def _is_settled(selection: Selection) -> bool:
    """Return whether every later change of a folder shows in its stat."""
    return all(one is None or has_rested(one) for _, one in selection.folders)


def open_selected(file: SelectedFile) -> int:
    """Open a selected file for reading, and return its descriptor.

    Raises:
        InputError: It can't be read, or isn't a regular file any longer.
    """
    try:
        descriptor = os.open(file.source, _READ)
    except OSError as problem:
        raise InputError(
            f"{file.source} can't be read: {problem.strerror}.",
            next_step="See that you may read it, or leave it out of push.include.",
        ) from problem
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{file.source} isn't a regular file any longer.", next_step="Try again.")
    return descriptor


def _inspect(file: SelectedFile, check: Callable[[], None]) -> Inspected:
    with open(open_selected(file), "rb", buffering=0) as opened:
        before = FileIdentity.of(os.fstat(opened.fileno()))
        digest, beginning = hashlib.sha256(), b""
        while piece := opened.read(_PIECE_BYTES):
            check()
            if not beginning:
                beginning = piece[:INSPECTED_BYTES]
            digest.update(piece)
        after = FileIdentity.of(os.fstat(opened.fileno()))
    if before != after:
        raise InputError(
            f"{file.source} was changed while it was read.", next_step="Try again when it rests."
        )
    return Inspected(after, digest.hexdigest(), why_content_stays(beginning))
