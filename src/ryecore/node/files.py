"""Files of a node: written so that they survive a loss of power, listed, measured and removed."""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = [
    "cost_of",
    "is_older",
    "list_files",
    "remove_tree",
    "size_of_tree",
    "sync_file",
    "sync_file_system",
    "write_at",
    "write_new",
    "write_synced",
]

_BLOCK_BYTES: Final = 4096
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_libc: Final = ctypes.CDLL(None, use_errno=True)


def write_new(path: Path, content: memoryview | bytes, *, is_synced: bool = True) -> None:
    """Write a new file; none stays where that fails. Without a sync its content may get lost."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o400)
    try:
        try:
            write_at(descriptor, content, 0)
            if is_synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def write_synced(path: Path, content: memoryview | bytes) -> None:
    """Write a file by way of a temporary one beside it."""
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    write_new(temporary, content)
    temporary.rename(path)


def write_at(descriptor: int, content: memoryview | bytes, offset: int) -> None:
    """Write all of some bytes at a place of an open file."""
    rest = memoryview(content)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written


def sync_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Wait until all that was written to the file system of a folder is on the disk.

    For many new files that takes one commit of the file system's journal, not one each.

    Raises:
        OSError: Something can't be written.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


def list_files(folder: Path) -> Sequence[Path]:
    """Return the files below a folder."""
    return [Path(entry.path) for entry in _walk(folder)]


def is_older(path: Path, time_s: float) -> bool:
    """Return whether a file was last touched before a time, in seconds since the epoch."""
    try:
        return path.stat().st_mtime < time_s
    except FileNotFoundError:
        return False


def cost_of(size_bytes: int) -> int:
    """Return the bytes that a file of a size takes of a quota: whole blocks, and at least one.

    So that many small files can't fill a disk that their bytes alone wouldn't.
    """
    return max(-(-size_bytes // _BLOCK_BYTES), 1) * _BLOCK_BYTES


def size_of_tree(folder: Path) -> int:
    """Return what the files below a folder take of a quota."""
    size = 0
    for entry in _walk(folder):
        with suppress(OSError):
            size += cost_of(entry.stat(follow_symlinks=False).st_size)
    return size


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is below it, also where its permissions were taken away.

    What a tool has made may be nested deeper than a path can name, and than Python calls itself:
    each folder below is moved up to the first one before it is emptied.

    Raises:
        OSError: Something can't be removed; the rest is gone.
    """
    failures: list[OSError] = []
    folder.chmod(0o700)
    top = os.open(folder, _FOLDER)
    try:
        waiting = _empty(top, top, failures)
        while waiting:
            name = waiting.pop()
            try:
                below = os.open(name, _FOLDER, dir_fd=top)
                try:
                    waiting += _empty(below, top, failures)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
            except OSError as problem:
                failures.append(problem)
    finally:
        os.close(top)
    if failures:
        raise failures[0]
    folder.rmdir()


def _empty(folder: int, top: int, failures: list[OSError]) -> list[str]:
    """Remove the files of an open folder, and move its folders to `top`; their names there."""
    moved: list[str] = []
    with os.scandir(folder) as listed:
        entries = list(listed)
    for entry in entries:
        try:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
                continue
            os.chmod(entry.name, 0o700, dir_fd=folder)
            name = entry.name if folder == top else f".removed-{os.urandom(8).hex()}"
            if folder != top:
                os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=top)
            moved.append(name)
        except OSError as problem:
            failures.append(problem)
    return moved


def _walk(folder: Path) -> "Iterator[os.DirEntry[str]]":
    """Yield what is below a folder and isn't one; what can't be listed is left out."""
    waiting = [os.fspath(folder)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry
