"""Verify every file that a tool can import.

Source: docs/design/chain.md#anchors; decisions 16 and 22.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ryecore.chain.spec import VerifyDepsSpec
from ryecore.convert.lines import quoted
from ryecore.errors import AnchorError, IntegrityError
from ryecore.items.packages import (
    EVERY_FILE,
    PACKAGE_FOLDERS,
    lock_of,
    locked_digest,
    packages_digest,
)
from ryecore.items.refs import ItemRef
from ryecore.items.signature import SIDECAR
from ryecore.items.spaces import ItemSource
from ryecore.items.verification import VerifiedItem, Verifier
from ryecore.lillux.digests import TreeFilter, list_tree, sha256_hex, stat_tree
from ryecore.lillux.witness import Evidence, TreeStat

__all__ = ["Dependencies"]

_MAX_THREADS: Final = 4
_FILES_A_THREAD: Final = 64  # below this a thread costs more than it saves
_ONE_FOLDER: Final = TreeFilter(recursive=False)


class Dependencies:
    """Verifies the files of an anchored tree, several at a time."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    def verify_tree(
        self, root: Path, deps: VerifyDepsSpec, owner: VerifiedItem, evidence: Evidence
    ) -> dict[str, VerifiedItem]:
        """Verify every file that the tool can import; return them by path below the anchor."""
        with _readable(root):
            return self._verify_tree(root, deps, owner, evidence)

    def _verify_tree(
        self, root: Path, deps: VerifyDepsSpec, owner: VerifiedItem, evidence: Evidence
    ) -> dict[str, VerifiedItem]:
        if not deps.enabled or deps.scope == "tool_file":
            return {}
        top, recursive = root, deps.recursive
        if deps.scope in ("tool_dir", "tool_siblings"):
            top = owner.source.path.parent
            recursive = recursive and deps.scope == "tool_dir"
        sources = TreeFilter(deps.extensions, deps.exclude_dirs, recursive)
        # The stat comes first: what changes while the files are read is noticed the next time.
        every = TreeFilter((*deps.extensions, SIDECAR), deps.exclude_dirs, recursive)
        evidence.tree(TreeStat(str(top), every, stat_tree(str(top), every)))
        batch = _Batch(self._verifier, root, owner)
        found: dict[str, VerifiedItem] = {}
        for items, seen in batch.verify(list(_importable(str(top), sources))):
            found |= items
            evidence.add(seen, but_files_below=str(top))
        for item in found.values():
            # The stat leaves out files that only a sidecar lets in: record their content.
            if item.source.path.suffix not in deps.extensions:
                evidence.file(str(item.source.path), sha256_hex(item.content))
        return found

    def verify_named(
        self, root: Path, names: Sequence[str], owner: VerifiedItem, evidence: Evidence
    ) -> dict[str, VerifiedItem]:
        """Verify files that the tool names, such as the binary that it runs.

        The evidence is the stat of their folders, not their content, which may be large.
        """
        batch = _Batch(self._verifier, root, owner, "names")
        found: dict[str, VerifiedItem] = {}
        for name in names:
            path, seen = _named(name, owner), Evidence()
            if not os.path.lexists(path):
                raise AnchorError(
                    f"{owner.source.path} names the file {path}, which is not there.",
                    next_step="Build it, put it there and sign it, or correct the name.",
                )
            batch.check_link(str(path))
            with _readable(root):
                stat = TreeStat(str(path.parent), _ONE_FOLDER, stat_tree(path.parent, _ONE_FOLDER))
                found[path.relative_to(root).as_posix()] = batch.verify_file(str(path), seen)
            evidence.tree(stat)
            evidence.add(seen, but_files_below=str(path.parent))
        return found

    def verify_beside(
        self, name: str, owner: VerifiedItem, evidence: Evidence
    ) -> VerifiedItem | None:
        """Verify a file in a runtime's own folder that its processes are started with.

        There is none beside a runtime that was copied alone. The evidence is the stat of the
        folder's files, since every call checks it.
        """
        path, root = _named(name, owner), owner.source.path.parent
        if not os.path.lexists(path):
            evidence.absent(str(path))
            return None
        batch = _Batch(self._verifier, root, owner, "names")
        batch.check_link(str(path))
        seen = Evidence()
        kin = TreeFilter((path.suffix, SIDECAR), recursive=False) if path.suffix else _ONE_FOLDER
        with _readable(root):
            stat = TreeStat(str(root), kin, stat_tree(root, kin))
            found = batch.verify_file(str(path), seen)
        evidence.tree(stat)
        evidence.add(seen, but_files_below=str(root))
        return found

    def package_folders(
        self, root: Path, deps: VerifyDepsSpec, owner: VerifiedItem, evidence: Evidence
    ) -> tuple[dict[str, Path], bool]:
        """Return the unverified package folders, and whether signed locks vouch for them all."""
        found: dict[str, Path] = {}
        for name in PACKAGE_FOLDERS:
            if name not in deps.exclude_dirs:
                continue
            if (root / name).is_dir():
                found[name] = root / name
            else:
                evidence.absent(str(root / name))
        batch = _Batch(self._verifier, root, owner)
        with _readable(root):
            locked = [_is_locked(path, batch, evidence) for path in found.values()]
        return found, all(locked)


@contextmanager
def _readable(root: Path) -> Iterator[None]:
    """Raise one clear error where a file can't be read, or vanishes meanwhile."""
    try:
        yield
    except OSError as problem:
        raise AnchorError(
            f"{root} can't be read as a whole: {problem.strerror or problem}"
            + (f" ({str(problem.filename)[:200]})." if problem.filename else "."),
            next_step="See that you may read it, and that nothing changes it meanwhile.",
        ) from problem


def _named(name: str, owner: VerifiedItem) -> Path:
    """Return the path of a file that a tool names."""
    folder = owner.source.path.parent
    path = folder / name
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        raise AnchorError(
            f"{owner.source.path} names the file {quoted(name)}, "
            "which doesn't lie in its own folder.",
            next_step=f"Put the file into {folder}, and name it by its name alone.",
        )
    return path


def _importable(top: str, sources: TreeFilter) -> Iterator[str]:
    """Yield files of the runtime's extensions, and others that a sidecar vouches for."""
    for name, _ in list_tree(top, sources):
        yield f"{top}/{name}"
    sidecars = TreeFilter((SIDECAR,), sources.exclude_dirs, sources.recursive)
    for name, _ in list_tree(top, sidecars):
        path = f"{top}/{name.removesuffix(SIDECAR)}"
        extension = Path(path).suffix
        if extension not in (sources.extensions or ()) and os.path.isfile(path):
            yield path


class _Batch:
    """Verifies files of one anchor, which the tool can import or otherwise needs."""

    def __init__(
        self, verifier: Verifier, root: Path, owner: VerifiedItem, verb: str = "can import"
    ) -> None:
        self._verb = verb
        self._verifier = verifier
        self._root = str(root)
        self._owner = owner
        self._kind_folder = str(owner.source.kind_folder)

    def verify(self, paths: Sequence[str]) -> list[tuple[dict[str, VerifiedItem], Evidence]]:
        """Verify files, on several threads where there are many: the arithmetic frees the GIL."""
        threads = min(_MAX_THREADS, os.cpu_count() or 1, len(paths) // _FILES_A_THREAD)
        if threads <= 1:
            return [self._verify_some(paths)]
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only for large trees

        shares = [paths[start::threads] for start in range(threads)]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(self._verify_some, shares))

    def _verify_some(self, paths: Sequence[str]) -> tuple[dict[str, VerifiedItem], Evidence]:
        seen, verifier, skip = Evidence(), self._verifier.for_batch(), len(self._root) + 1
        return {path[skip:]: self.verify_file(path, seen, verifier) for path in paths}, seen

    def verify_file(
        self, path: str, evidence: Evidence, verifier: Verifier | None = None
    ) -> VerifiedItem:
        """Verify one file."""
        verifier = verifier or self._verifier
        owner = self._owner.source
        if path == str(owner.path):
            return self._owner
        if os.path.islink(path):
            self.check_link(path)
        relative = path[len(self._kind_folder) + 1 :]
        ref = ItemRef("tool", relative.removesuffix(os.path.splitext(path)[1]))
        try:
            return verifier.verify(ItemSource(ref, Path(path), owner.space, relative), evidence)
        except IntegrityError as error:
            error.message = (
                f"'{owner.ref.id}' {self._verb} a file that doesn't verify: {error.message}"
            )
            raise

    def check_link(self, path: str) -> None:
        """Refuse a path that leads out of the anchor, by its last part or by one before."""
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._root)):
            raise AnchorError(
                f"{path} is a link that leaves the anchor {self._root}.",
                next_step="Put the file itself there and sign it.",
            )


def _is_locked(folder: Path, batch: _Batch, evidence: Evidence) -> bool:
    """Return whether a signed lock vouches for a package folder as it is now."""
    lock = lock_of(folder)
    if not lock.exists():
        evidence.absent(str(lock))
        return False
    seen = stat_tree(str(folder), EVERY_FILE)
    digest = locked_digest(batch.verify_file(str(lock), evidence))
    evidence.tree(TreeStat(str(folder), EVERY_FILE, seen))
    if digest == packages_digest(folder):
        return True
    raise AnchorError(
        f"{folder} is not as it was when {lock} was signed.",
        next_step=f"If the change is right, lock it again: rye sign --packages {folder}",
    )
