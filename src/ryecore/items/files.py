"""Writing a file so that it is there whole or not at all."""

import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["is_left_over", "keep_out_of_git", "remove_left_overs", "write_atomically"]

_IGNORE_ALL: Final = b"*\n"
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{12}")


def write_atomically(
    path: Path,
    content: bytes,
    *,
    mode: int | None = None,
    replace: bool = True,
    durable: bool = True,
) -> None:
    """Replace a file, or make it, in one step that survives a crash. A link is replaced itself.

    Args:
        path: The file; its folder exists.
        content: What it holds afterwards.
        mode: Its permissions; by default those that it had, else 0644 within the umask.
        replace: Whether a file that stands there already may go.
        durable: Whether it survives the loss of power too, and not the process's death alone.

    Raises:
        FileExistsError: One stands there, and may not go.
        OSError: It can't be written; nothing of the attempt stays behind.
    """
    if mode is None and path.exists():
        mode = path.stat().st_mode & 0o7777
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            if durable:
                os.fsync(descriptor)
        if replace or not _linked(temporary, path):
            os.replace(temporary, path)  # noqa: PTH105 - no Path is made for what is text
        else:
            os.unlink(temporary)  # noqa: PTH108
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def _linked(temporary: str, path: Path) -> bool:
    """Give a file its name, failing where the name is taken as a rename would not.

    Returns:
        False on a file system without hard links: the name is claimed by an empty file then, which
        the caller replaces.

    Raises:
        FileExistsError: The name is taken.
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
    """Make git ignore a folder and all in it, in place of any `.gitignore` that a clone brought.

    Args:
        folder: The folder, which exists.
        durable: Whether this survives the loss of power too.

    Raises:
        OSError: Its `.gitignore` can't be written.
    """
    path = folder / ".gitignore"
    if path.is_symlink() or not path.is_file() or path.read_bytes() != _IGNORE_ALL:
        write_atomically(path, _IGNORE_ALL, mode=0o644, durable=durable)


def remove_left_overs(path: Path, older_than_s: float = 60.0) -> None:
    """Remove the temporary files that killed writes of a file left behind.

    Args:
        path: The file.
        older_than_s: The age in seconds from which they are removed: a younger one may be in use.
    """
    beginning, oldest = f".{path.name}.", time.time() - older_than_s
    with suppress(OSError), os.scandir(path.parent) as entries:
        for one in entries:
            if one.name.startswith(beginning) and is_left_over(one.name):
                with suppress(OSError):
                    if one.stat(follow_symlinks=False).st_mtime < oldest:
                        os.unlink(one.path)  # noqa: PTH108


def is_left_over(name: str) -> bool:
    """Whether a file's name is one that a killed `write_atomically` left behind."""
    return _TEMPORARY.fullmatch(name) is not None
