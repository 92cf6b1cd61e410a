"""Sealed snapshots: read-only folders on disk that hold nothing but verified bytes.

Programs run from a snapshot, so a file that changes after it was verified has no effect. A snapshot
is named by its digest. Its first use in a process checks it against the digest; later uses compare
inode, size, mtime and ctime.

Source: decision 16.
"""

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from ryecore.errors import AnchorError
from ryecore.frozen import frozen
from ryecore.lillux.digests import TreeFilter, digest_tree, sha256_hex, stat_tree
from ryecore.lillux.witness import TreeStat

__all__ = ["Snapshot", "SnapshotStore"]

NOWHERE: Final = ".nothing"
_SNAPSHOT: Final = re.compile(r"[0-9a-f]{64}")
_HALF_DONE: Final = re.compile(r"\.(?:new|old)-[0-9]+-[0-9a-f]+")
_DAY_S: Final = 24 * 3600
_UNUSED_S: Final = 30 * _DAY_S
_HALF_DONE_S: Final = 3600
_EVERYTHING: Final = TreeFilter(extensions=None, exclude_dirs=(), recursive=True)


@frozen
class Snapshot:
    """A checked snapshot: SHA-256 (hex) of its files by slash path, and stats that show changes."""

    root: Path
    digest: str
    stat: TreeStat
    digests: Mapping[str, str]


class SnapshotStore:
    """The store of snapshots, in one folder, created with mode 0700 when it is first needed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._checked: dict[str, Snapshot] = {}

    def seal(self, files: Mapping[str, bytes], links: Mapping[str, Path] | None = None) -> Snapshot:
        """Return the snapshot of these files, written where it doesn't exist.

        Links lead to package folders outside, which aren't verified.
        """
        links = links or {}
        digest = _digest(files, links)
        known = self._checked.get(digest)
        if known is not None and _is_untouched(known):
            return known
        root = self._root / digest
        try:
            self._prepare()
            if _is_intact(root, files, links):
                _mark_used(root)
            else:
                self._write(root, files, links)
                self._prune()
            stat = TreeStat(str(root), _EVERYTHING, stat_tree(str(root), _EVERYTHING))
        except OSError as problem:
            raise AnchorError(
                f"The verified files can't be sealed in {self._root}: "
                f"{problem.strerror or problem}.",
                next_step="See that the folder can be written and has room, or open the Rye with "
                "another cache_dir.",
            ) from problem
        sealed = self._checked[digest] = Snapshot(root, digest, stat, _digests(files))
        return sealed

    def _prune(self) -> None:
        """Remove snapshots unused for 30 days, and unfinished ones of killed processes."""
        now = time.time()
        for path in self._root.iterdir():
            if _SNAPSHOT.fullmatch(path.name):
                kept_s = _UNUSED_S
            elif _HALF_DONE.fullmatch(path.name):
                kept_s = _HALF_DONE_S
            else:
                continue  # a file of the host
            with suppress(OSError):  # another process may be removing it
                if now - path.lstat().st_mtime > kept_s:
                    aside = self._root / f".old-{os.getpid()}-{os.urandom(6).hex()}"
                    path.rename(aside)
                    _remove(aside)

    @property
    def nowhere(self) -> Path:
        """A path that never exists, such as for bytecode that must not be found."""
        return self._root / NOWHERE

    def _prepare(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = self._root.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise AnchorError(
                f"Others can write to {self._root}, where verified files are sealed.",
                next_step=f"Close it (chmod 700 {shlex.quote(str(self._root))}), or open the Rye "
                "with another cache_dir.",
            )

    def _write(self, root: Path, files: Mapping[str, bytes], links: Mapping[str, Path]) -> None:
        temporary = self._root / f".new-{os.getpid()}-{os.urandom(6).hex()}"
        try:
            temporary.mkdir(mode=0o700)
            for name, content in files.items():
                path = temporary / name
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                is_program = content.startswith((b"#!", b"\x7fELF"))
                with open(os.open(path, flags, 0o500 if is_program else 0o400), "wb") as file:
                    file.write(content)
            for name, target in links.items():
                (temporary / name).symlink_to(target, target_is_directory=True)
            for folder, _, _ in os.walk(temporary, topdown=False):
                os.chmod(folder, 0o500)
            self._put_in_place(temporary, root, lambda: _is_intact(root, files, links))
        except BaseException:
            _remove(temporary)
            raise

    def _put_in_place(self, temporary: Path, root: Path, is_intact: Callable[[], bool]) -> None:
        """Rename the new tree into place, in place of a damaged one."""
        for _ in range(8):
            try:
                temporary.rename(root)
            except OSError:
                if not os.path.lexists(root):
                    raise
            else:
                return
            if is_intact():  # another process was faster, and may use it already
                _remove(temporary)
                return
            aside = self._root / f".old-{os.getpid()}-{os.urandom(6).hex()}"
            try:
                root.rename(aside)
            except FileNotFoundError:
                continue
            _remove(aside)
        raise AnchorError(
            f"{root} keeps being replaced by another process.",
            next_step="Find the process that writes there; only ryecore should.",
        )


def _digests(files: Mapping[str, bytes]) -> dict[str, str]:
    return {name: sha256_hex(content) for name, content in files.items()}


def _digest(files: Mapping[str, bytes], links: Mapping[str, Path]) -> str:
    lines = [(os.fsencode(name), digest) for name, digest in _digests(files).items()]
    lines += [(os.fsencode(name), f"link:{target}") for name, target in links.items()]
    return sha256_hex(*(digest.encode() + b"  " + name + b"\n" for name, digest in sorted(lines)))


def _is_intact(root: Path, files: Mapping[str, bytes], links: Mapping[str, Path]) -> bool:
    """Return whether a tree holds exactly these files and links, and no other folder."""
    if not root.is_dir() or root.is_symlink():
        return False
    folders = {str(parent) for name in (*files, *links) for parent in PurePosixPath(name).parents}
    try:
        found = {
            os.path.relpath(os.path.join(parent, name), root)
            for parent, folders_here, names in os.walk(root)
            for name in (*folders_here, *names)
        }
        return (
            found == {*files, *links, *folders} - {"."}
            and not any((root / name).is_symlink() for name in files)
            and dict(digest_tree(str(root), _EVERYTHING).files) == _digests(files)
            and all((root / name).readlink() == target for name, target in links.items())
        )
    except OSError:  # not a folder, or another process is replacing it
        return False


def _is_untouched(sealed: Snapshot) -> bool:
    try:
        return stat_tree(sealed.stat.root, _EVERYTHING) == sealed.stat.fingerprint
    except OSError:
        return False


def _mark_used(root: Path) -> None:
    """Update a snapshot's time, at most once a day, to show that it is in use."""
    if time.time() - root.stat().st_mtime > _DAY_S:
        os.utime(root)


def _remove(tree: Path) -> None:
    if tree.is_symlink() or tree.is_file():
        tree.unlink()
        return
    for folder, _, _ in os.walk(tree):
        os.chmod(folder, 0o700)
    from shutil import rmtree  # noqa: PLC0415 - with it come three compressors

    rmtree(tree, ignore_errors=True)
