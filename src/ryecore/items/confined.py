"""Writing below a kind's folder, and never through a link that leads out of the space.

A clone brings its own links: one in the place of `.ai/config/keys/trusted` would have a key file
written for the project land in the user's own space.

Source: decisions 9 and 78.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ryecore.errors import LinkLeavesSpace

__all__ = ["check_links", "folder_without_links", "leads_out", "writable_folder"]

_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def leads_out(path: Path, folder: Path) -> bool:
    """Return whether a path leads out of a folder once all links are followed."""
    real, inside = os.path.realpath(path), os.path.realpath(folder)
    return real != inside and not real.startswith(f"{inside.rstrip(os.sep)}{os.sep}")


def check_links(path: Path, kind_folder: Path, boundary: Path | None) -> Path:
    """Follow the links on the way to a path, and refuse those that lead out.

    Args:
        path: A file or folder at or below `kind_folder`, which its links may not leave; it need not
            exist.
        kind_folder: The folder of a kind of item, such as `.ai/tools`.
        boundary: The folder that links of `kind_folder` itself may not leave; None where they are
            the user's own.

    Returns:
        The path without links.

    Raises:
        LinkLeavesSpace: A link leads out.
    """
    if boundary is not None:
        _check_inside(kind_folder, boundary)
    _check_inside(path, kind_folder)
    return Path(os.path.realpath(path))


@contextmanager
def writable_folder(folder: Path, kind_folder: Path, boundary: Path | None) -> Iterator[Path]:
    """Open a folder to write in, and make it where it is missing.

    Args:
        folder: A folder at or below `kind_folder`, which its links may not leave.
        kind_folder: The folder of a kind of item, such as `.ai/tools`.
        boundary: The folder that links of `kind_folder` itself may not leave; None where they are
            the user's own.

    Yields:
        A path of the open folder. It leads to this very folder until the end of the block,
        whatever becomes a link in the meantime.

    Raises:
        LinkLeavesSpace: A link among the folders leads out of the space.
        OSError: The folder can't be made or opened.
    """
    real = check_links(folder, kind_folder, boundary)
    top = Path(os.path.realpath(boundary or kind_folder))
    _make_folders(top)
    descriptor = _descend(top, real.relative_to(top).parts)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@contextmanager
def folder_without_links(top: Path, names: Sequence[str], *, mode: int | None) -> Iterator[Path]:
    """Open a folder below another one, following no link at all.

    Args:
        top: The folder to begin in.
        names: The names of the folders below it.
        mode: The permissions of the folders that are made; None to make none.

    Yields:
        A path of the open folder. It leads to this very folder until the end of the block.

    Raises:
        NotADirectoryError: A file or a link stands where a folder is needed.
        OSError: The folder can't be made or opened.
    """
    descriptor = _descend(top, names, mode)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
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


def _descend(top: Path, parts: Sequence[str], mode: int | None = 0o777) -> int:
    """Open a folder name by name: a link that appears on the way is not followed."""
    descriptor = os.open(top, _FOLDER)
    for name in parts:
        above = descriptor
        try:
            if mode is not None:
                with suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=above)
            descriptor = os.open(name, _FOLDER, dir_fd=above)
        except NotADirectoryError:
            raise _in_the_way(name) from None
        finally:
            os.close(above)
    return descriptor


def _check_inside(path: Path, folder: Path) -> None:
    if leads_out(path, folder):
        real = os.path.realpath(path)
        raise LinkLeavesSpace(
            f"{path} is reached through a link that leaves {folder}: it leads to {real}.",
            next_step=f"Put the file or folder itself below {folder}, in place of the link.",
            path=path,
            leads_to=Path(real),
        )
