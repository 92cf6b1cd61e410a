"""Safe writing of files: atomically, and never through a link that leads out of the space.

A clone brings its own links: one in the place of `.ai/config/keys/trusted` would have a key file
written for the project land in the user's own space.

Source: decisions 9 and 78.
"""

import errno
import fcntl
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ryecore import _native
from ryecore.caches import BoundedDict
from ryecore.errors import LinkLeavesSpace

__all__ = [
    "KnownFolders",
    "check_links",
    "folder_without_links",
    "is_left_over",
    "keep_out_of_git",
    "leads_out",
    "make_folder_without_links",
    "remove_left_overs",
    "remove_replaced",
    "replace_and_keep",
    "writable_folder",
    "write_atomically",
    "write_into",
]

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_REPLACED: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_F_SETSIG: Final = 10  # which the module fcntl lacks
_PRIVATE: Final = 0o600
_IGNORE_ALL: Final = b"*\n"
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{12}")


def write_atomically(
    path: str | Path,
    content: bytes,
    *,
    mode: int | None = None,
    replace: bool = True,
    durable: bool = True,
) -> None:
    """Write or replace a file in one step that survives a crash. A link is itself replaced.

    Args:
        durable: Whether it survives a loss of power, and not only the end of the process.

    Raises:
        FileExistsError: It exists, and may not be replaced.
        OSError: It can't be written; no temporary file stays.
    """
    if mode is None:
        with suppress(OSError):
            mode = os.stat(path).st_mode & 0o7777
    temporary = _written_beside(path, content, mode, durable=durable)
    try:
        if replace and not durable and os.path.lexists(path):
            _exchange(temporary, path)
        elif replace or not _linked(temporary, path):
            os.replace(temporary, path)  # noqa: PTH105 - no Path is made for what is text
        else:
            os.unlink(temporary)  # noqa: PTH108
    except BaseException:
        remove_replaced(temporary)
        raise


def replace_and_keep(path: str, content: bytes) -> str | None:
    """Write a private file as `write_atomically` does, unsynced, and keep the one it replaces.

    Returns:
        The path of the replaced file, for `write_into`; None if there was none.
    """
    if not _is_plain_file(path):
        write_atomically(path, content, mode=_PRIVATE, durable=False)
        return None
    temporary = _written_beside(path, content, _PRIVATE, durable=False)
    sys.audit("os.rename", temporary, path, -1, -1)
    if _native.exchange_files(temporary, path):
        return temporary
    try:
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        remove_replaced(temporary)
        raise
    return None


def write_into(replaced: str, path: str, content: bytes) -> None:
    """Write a private file as `write_atomically` does, unsynced, into a file that was replaced.

    ext4 takes long to make a file, and longer the more were removed in the last minutes. Where the
    replaced file can't be used, because somebody reads it, say, it is removed and a new one made.
    """
    try:
        is_written = _rewritten(replaced, content)
        if is_written and os.path.lexists(path):
            _exchange(replaced, path)
        elif is_written:
            os.replace(replaced, path)  # noqa: PTH105
    except OSError:  # such as another file system
        is_written = False
    if not is_written:
        remove_replaced(replaced)
        write_atomically(path, content, mode=_PRIVATE, durable=False)


def remove_replaced(path: str) -> None:
    """Remove a file that a write has replaced, or didn't use, if it is still there."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def _is_plain_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _written_beside(path: str | Path, content: bytes, mode: int | None, *, durable: bool) -> str:
    """Write content to a new file beside a path, and return the new one's path."""
    folder, slash, name = os.fspath(path).rpartition("/")
    temporary = f"{folder}{slash}.{name}.{os.urandom(6).hex()}"
    descriptor = os.open(temporary, _NEW, 0o644 if mode is None else _PRIVATE)
    try:
        if mode is not None and mode != _PRIVATE:
            os.fchmod(descriptor, mode)
        _write_all(descriptor, content)
        if durable:
            os.fsync(descriptor)
    except BaseException:
        remove_replaced(temporary)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _write_all(descriptor: int, content: bytes) -> None:
    written, size = os.write(descriptor, content), len(content)
    while written < size:
        written += os.write(descriptor, content[written:])


def _rewritten(path: str, content: bytes) -> bool:
    """Replace a private file's content, unless it has another name, or is open elsewhere."""
    descriptor = os.open(path, _REPLACED)
    try:
        status = os.fstat(descriptor)
        is_private = status.st_mode == stat.S_IFREG | _PRIVATE and status.st_nlink == 1
        if not is_private or not _is_alone(descriptor):
            return False
        _write_all(descriptor, content)
        if status.st_size > len(content):  # only now: ext4 syncs a file that was emptied first
            os.ftruncate(descriptor, len(content))
        return True
    finally:
        os.close(descriptor)


def _is_alone(descriptor: int) -> bool:
    """Return whether a file is open nowhere else: only then does the kernel grant a lease."""
    try:
        # Whoever opens it during the lease sends this signal, which is ignored; by default, one
        # that ends the process.
        fcntl.fcntl(descriptor, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def _exchange(temporary: str, path: str | Path) -> None:
    """Replace a file by exchanging it with the new one, which is removed under its other name.

    ext4 writes a file to the disk at once when it is renamed over another one: that takes longer
    than all else, and lasts no longer than the process needs it.
    """
    sys.audit("os.rename", temporary, os.fspath(path), -1, -1)
    if not _native.exchange_files(temporary, path):
        os.replace(temporary, path)  # noqa: PTH105
        return
    try:
        os.unlink(temporary)  # noqa: PTH108
    except OSError:  # such as a folder, which isn't replaced
        _native.exchange_files(temporary, path)
        raise


def _linked(temporary: str, path: str | Path) -> bool:
    """Give a file its name, but fail where the name is taken, unlike a rename.

    False is returned on a file system without hard links: the name is claimed by an empty file
    then, which the caller replaces.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return False
    return True


def keep_out_of_git(folder: Path, *, durable: bool = True) -> None:
    """Make git ignore a folder and all in it, in place of any `.gitignore` that a clone brought."""
    path = folder / ".gitignore"
    if path.is_symlink() or not path.is_file() or path.read_bytes() != _IGNORE_ALL:
        write_atomically(path, _IGNORE_ALL, mode=0o644, durable=durable)


def remove_left_overs(path: Path, older_than_s: float = 60.0) -> None:
    """Remove temporary files of killed writes of a file. A younger one may still be in use."""
    beginning, oldest = f".{path.name}.", time.time() - older_than_s
    with suppress(OSError), os.scandir(path.parent) as entries:
        for one in entries:
            if one.name.startswith(beginning) and is_left_over(one.name):
                with suppress(OSError):
                    if one.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(one.path)  # noqa: PTH108


def is_left_over(name: str) -> bool:
    """Return whether a file's name is one that a killed `write_atomically` left behind."""
    return _TEMPORARY.fullmatch(name) is not None


_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def leads_out(path: Path, folder: Path) -> bool:
    """Return whether a path leads out of a folder once all links are followed."""
    real, inside = os.path.realpath(path), os.path.realpath(folder)
    return real != inside and not real.startswith(f"{inside.rstrip(os.sep)}{os.sep}")


def check_links(path: Path, kind_folder: Path, boundary: Path | None) -> Path:
    """Follow the links on the way to a path, and refuse those that lead out.

    The path, which need not exist, may not leave `kind_folder`, nor may links of `kind_folder`
    itself leave `boundary`; it is None where they are the user's own.
    """
    if boundary is not None:
        _check_inside(kind_folder, boundary)
    _check_inside(path, kind_folder)
    return Path(os.path.realpath(path))


@contextmanager
def writable_folder(folder: Path, kind_folder: Path, boundary: Path | None) -> Iterator[Path]:
    """Open a folder to write in, and make it where it is missing. See `check_links`.

    The path leads to this very folder until the end of the block, whatever becomes a link in the
    meantime.
    """
    top = boundary or kind_folder
    try:  # as nearly always, no folder on the way is a link
        descriptor = _descend(top, _names_below(folder, top))[0]
    except (OSError, ValueError):
        real = check_links(folder, kind_folder, boundary)
        top = Path(os.path.realpath(boundary or kind_folder))
        _make_folders(top)
        descriptor = _descend(top, real.relative_to(top).parts)[0]
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


class KnownFolders:
    """Folders that were opened safely, whose paths need no further check while they are the same.

    A folder is recognized by its device and inode, whatever its path leads through.
    """

    def __init__(self, max_entries: int) -> None:
        self._known: BoundedDict[str, tuple[int, int]] = BoundedDict(max_entries)

    def knows(self, path: str) -> bool:
        """Return whether a path still leads to the folder that was opened."""
        known = self._known.get(path)
        return known is not None and known == _folder_identity(path)

    def learn(self, path: str, opened: Path) -> None:
        """Remember the folder that was opened at a path, by the path of the open folder."""
        found = _folder_identity(opened)
        if found is not None:
            self._known[path] = found


def _folder_identity(path: str | Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def folder_without_links(top: Path, names: Sequence[str]) -> Iterator[Path]:
    """Open a folder below another one, following no link at all. None is made.

    The path leads to this very folder until the end of the block.
    """
    descriptor = _descend(top, names, None)[0]
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def make_folder_without_links(top: str | Path, names: Sequence[str], mode: int) -> str | None:
    """Make a folder below another one, and those on the way, following no link at all.

    Returns the name of a link in it, if it was there before and has one.
    """
    descriptor, is_new = _descend(top, names, mode)
    try:
        if is_new:
            return None
        with os.scandir(f"/proc/self/fd/{descriptor}") as entries:
            return next((one.name for one in entries if one.is_symlink()), None)
    finally:
        os.close(descriptor)


def _make_folders(top: Path) -> None:
    try:
        top.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise _in_the_way(top.name) from None


def _in_the_way(name: str) -> NotADirectoryError:
    reason = "a file or a link stands where a folder is needed"
    return NotADirectoryError(errno.ENOTDIR, reason, name)


def _names_below(folder: Path, top: Path) -> tuple[str, ...]:
    names = folder.relative_to(top).parts
    if os.pardir in names:
        raise ValueError(f"{folder} has a name that leads up.")
    return names


def _descend(top: str | Path, parts: Sequence[str], mode: int | None = 0o777) -> tuple[int, bool]:
    """Open a folder name by name: a link that appears on the way is not followed.

    Returns its descriptor, and whether it was made; without a mode, none is made.
    """
    descriptor, is_new = os.open(top, _FOLDER), False
    for name in parts:
        above = descriptor
        try:
            try:
                descriptor, is_new = os.open(name, _FOLDER, dir_fd=above), False
            except FileNotFoundError:
                if mode is None:
                    raise
                is_new = _is_made(name, mode, above)
                descriptor = os.open(name, _FOLDER, dir_fd=above)
        except NotADirectoryError:
            raise _in_the_way(name) from None
        finally:
            os.close(above)
    return descriptor, is_new


def _is_made(name: str, mode: int, above: int) -> bool:
    """Make a folder, and return whether no other process was faster."""
    try:
        os.mkdir(name, mode, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _check_inside(path: Path, folder: Path) -> None:
    if leads_out(path, folder):
        real = os.path.realpath(path)
        raise LinkLeavesSpace(
            f"{path} is reached through a link that leaves {folder}: it leads to {real}.",
            next_step=f"Put the file or folder itself below {folder}, in place of the link.",
            path=path,
            leads_to=Path(real),
        )
