"""The project files that a run on a node changed: fetched as a bundle, and applied when asked.

The bundle is applied whole or not at all. Where a file was changed at home meanwhile, nothing is
applied, and both versions stay: that of the node in the bundle's folder.

Source: docs/design/remote.md#at-home; decision 74.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ryecore.display.text import Rendered, StyledText, counted
from ryecore.errors import RemoteError, StateError
from ryecore.frozen import frozen
from ryecore.items.files import folder_without_links, make_folder_without_links
from ryecore.lillux.digests import sha256_file
from ryecore.remote.ports import Node
from ryecore.remote.protocol.reports import Change
from ryecore.remote.pull import read_object
from ryecore.remote.rules import fold_name, why_it_stays
from ryecore.state.node_files import NodeFiles
from ryecore.state.refusals import advice
from ryecore.state.waiting import run_in_thread

__all__ = ["PullReport", "pull_changes"]

_FOLDER: Final = "changes"
_MAX_BYTES: Final = 1024 * 1024 * 1024
"""The most bytes of one bundle."""


@frozen(slots=False)
class PullReport(Rendered):
    """What came of the project files that a run changed.

    Attributes:
        applied: Whether the project has them now; not where there is a conflict.
        changed: The files that were added or changed.
        added: Those of `changed` that the run made new.
        removed: The files that were removed.
        conflicts: The files that were changed at home meanwhile, which stay as they are.
        left_out: The files that are never taken from a node, such as items and keys.
        folder: Where the node's versions are.
    """

    applied: bool
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    conflicts: tuple[str, ...]
    left_out: tuple[str, ...]
    folder: Path
    added: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        return {
            "applied": self.applied,
            "changed": list(self.changed),
            "added": list(self.added),
            "removed": list(self.removed),
            "conflicts": list(self.conflicts),
            "left_out": list(self.left_out),
            "folder": str(self.folder),
        }

    def render(self) -> StyledText:
        """Return the report for a terminal."""
        text = StyledText()
        if self.applied:
            total = len(self.changed) + len(self.removed)
            count = counted(total, "file") if total else "no file"
            text.line((f"{count} of the project changed", "good"))
        else:
            text.line(
                ("nothing changed: ", "bad"),
                f"{counted(len(self.conflicts), 'file')} changed here meanwhile; the node's "
                f"versions are in {self.folder}",
            )
        changed = tuple(one for one in self.changed if one not in self.added)
        applied = (
            ("  new      ", self.added, "dim"),
            ("  changed  ", changed, "dim"),
            ("  removed  ", self.removed, "dim"),
        )
        kinds = (
            *(applied if self.applied else ()),
            ("  conflict ", self.conflicts, "bad"),
            ("  left out ", self.left_out, "warn"),
        )
        for label, paths, style in kinds:
            for path in paths:
                why = _why_it_stays(path) if paths is self.left_out else None
                text.line((label, style), path, (f"  {why}" if why else "", "dim"))
        return text


async def pull_changes(
    node: Node, changes: Sequence[Change], project: Path, files: NodeFiles
) -> PullReport:
    """Fetch what a run has changed, and apply it to the project, whole or not at all.

    Repeated, it completes what a process that died has begun, and changes nothing else.

    Args:
        node: The node.
        changes: The changes, from its proved report.
        project: The project's folder.
        files: Where the node's versions are kept.

    Raises:
        RemoteError: The node can't be reached, sends something else, or too much.
        StateError: A file can't be written; then the project is as it was.
    """
    wanted = [one for one in changes if _why_it_stays(one.path) is None]
    if sum(one.size_bytes for one in wanted) > _MAX_BYTES:
        raise RemoteError(
            f"The run changed files of more than {_MAX_BYTES:,} bytes in all, which is too much "
            "for one bundle.",
            next_step="Copy them from the node by other means.",
            remote=node.remote,
        )
    for one in wanted:
        if one.sha256 is None:
            continue
        folder, name = _in_bundle(files, one.path)
        if folder.digest(name) != (one.sha256, one.size_bytes):
            with folder.receiving(name) as path:
                await read_object(node, one.sha256, one.size_bytes, path)
    left_out = tuple(one.path for one in changes if _why_it_stays(one.path) is not None)
    return await run_in_thread(_Application(project, files, wanted, left_out).carry_out)


def _why_it_stays(path: str) -> str | None:
    """Return why a file is never taken from a node, as items, keys and secrets are not.

    That holds for every spelling that a file system may take for the same name.
    """
    folded = fold_name(path)
    if ".ai" in folded.split("/"):
        return "is an item, configuration or state"
    return why_it_stays(path) or why_it_stays(folded)


def _in_bundle(files: NodeFiles, path: str) -> tuple[NodeFiles, str]:
    *folders, name = path.split("/")
    return files.below(_FOLDER, *folders), name


class _Application:
    """One application of a bundle to a project. No link is followed."""

    def __init__(
        self, project: Path, files: NodeFiles, changes: Sequence[Change], left_out: tuple[str, ...]
    ) -> None:
        self._project = project
        self._files = files
        self._changes = changes
        self._left_out = left_out
        self._tag = hashlib.sha256(str(files.path).encode()).hexdigest()[:8]
        self._replaced: list[Change] = []

    def carry_out(self) -> PullReport:
        """Apply all, or nothing."""
        conflicts = [one.path for one in self._changes if self._conflicts(one)]
        if conflicts:
            return self._report(conflicts)
        open_ones = [one for one in self._changes if self._digest(one.path) != one.sha256]
        try:
            for one in open_ones:
                self._stage(one)
            for one in open_ones:
                if self._conflicts(one):  # changed this very moment
                    self._undo()
                    return self._report([one.path])
                self._replace(one)
        except OSError as problem:
            self._undo()
            raise StateError(
                f"The project's files can't be written: {problem.strerror or problem}. They are "
                "as they were.",
                next_step=advice(problem),
            ) from problem
        finally:
            for one in open_ones:
                self._clean(one)
        return self._report([])

    def _report(self, conflicts: Sequence[str]) -> PullReport:
        return PullReport(
            not conflicts,
            tuple(one.path for one in self._changes if one.sha256 is not None),
            tuple(one.path for one in self._changes if one.sha256 is None),
            tuple(conflicts),
            self._left_out,
            self._files.path / _FOLDER,
            tuple(
                one.path
                for one in self._changes
                if one.sha256 is not None and one.base_sha256 is None
            ),
        )

    def _conflicts(self, change: Change) -> bool:
        """Return whether a file is neither what the run began with, nor what it made of it."""
        return self._digest(change.path) not in (change.base_sha256, change.sha256)

    def _digest(self, path: str) -> str | None:
        """Return the SHA-256 of a project file; None where there is none; no digest for others."""
        try:
            with self._folder(path) as (folder, name):
                descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with open(descriptor, "rb", buffering=0) as file:
                    return hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            return None
        except OSError as problem:
            return f"unreadable: {problem.strerror}"  # such as a link

    @contextmanager
    def _folder(self, path: str) -> Iterator[tuple[Path, str]]:
        *folders, name = path.split("/")
        with folder_without_links(self._project, folders) as folder:
            yield folder, name

    def _staged(self, name: str) -> str:
        return f".{name}.{self._tag}-new"

    def _saved(self, name: str) -> str:
        return f".{name}.{self._tag}-old"

    def _stage(self, change: Change) -> None:
        """Copy a file to beside its place."""
        if change.sha256 is None:
            return
        *folders, _ = change.path.split("/")
        if folders:
            make_folder_without_links(self._project, folders, 0o755)
        bundle, name = _in_bundle(self._files, change.path)
        with self._folder(change.path) as (folder, _), bundle.writing() as kept:
            staged = folder / self._staged(name)
            staged.unlink(missing_ok=True)
            shutil.copyfile(kept / name, staged, follow_symlinks=False)
            mode = 0o755 if change.executable else 0o644
            with suppress(FileNotFoundError):
                own = (folder / name).lstat().st_mode & 0o666
                mode = own | ((own & 0o444) >> 2 if change.executable else 0)
            staged.chmod(mode)
            if sha256_file(staged) != change.sha256:
                raise OSError(None, "the bundle was changed meanwhile")

    def _replace(self, change: Change) -> None:
        with self._folder(change.path) as (folder, name):
            saved = folder / self._saved(name)
            saved.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                os.link(folder / name, saved, follow_symlinks=False)
            self._replaced.append(change)
            if change.sha256 is None:
                (folder / name).unlink(missing_ok=True)
            else:
                (folder / self._staged(name)).replace(folder / name)

    def _undo(self) -> None:
        """Put back what was replaced."""
        for change in reversed(self._replaced):
            with suppress(OSError), self._folder(change.path) as (folder, name):
                saved = folder / self._saved(name)
                if saved.exists():
                    saved.replace(folder / name)
                elif change.base_sha256 is None:
                    (folder / name).unlink(missing_ok=True)

    def _clean(self, change: Change) -> None:
        with suppress(OSError), self._folder(change.path) as (folder, name):
            (folder / self._staged(name)).unlink(missing_ok=True)
            (folder / self._saved(name)).unlink(missing_ok=True)
