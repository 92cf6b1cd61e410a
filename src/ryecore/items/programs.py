"""Programs: where a name leads to, and whether that lies inside a folder."""

import os
from collections.abc import Iterator
from pathlib import Path

from ryecore.items.evidence import Evidence

__all__ = ["find_on_path", "is_program", "lies_inside"]


def lies_inside(path: str, folder: Path, real_folder: str | None = None) -> bool:
    """Whether a path lies inside a folder, as it is written or once links are resolved.

    A link inside that leads outside lies inside too: whoever owns the folder chose its target.
    """
    if _is_below(os.path.normpath(path), os.path.normpath(folder)):
        return True
    real_folder, (parent, name) = real_folder or os.path.realpath(folder), os.path.split(path)
    return _is_below(os.path.realpath(path), real_folder) or _is_below(
        os.path.join(os.path.realpath(parent), name), real_folder
    )


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def find_on_path(name: str, path: str, evidence: Evidence | None = None) -> Iterator[str]:
    """Find the programs of a name; relative entries of the search path count for nothing."""
    if os.sep in name:
        if os.path.isabs(name) and is_program(name):
            yield name
        return
    for folder in path.split(os.pathsep):
        if not os.path.isabs(folder):
            continue
        candidate = os.path.join(folder, name)
        if is_program(candidate):
            yield candidate
        elif evidence is not None:
            evidence.absent(candidate)


def is_program(path: str) -> bool:
    """Whether a file may be executed."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
