"""Paths that users write: to items, to project folders, and to programs.

The place of a file below an `.ai` folder is its identity.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from ryecore.errors import ConfigError, ItemNotFound
from ryecore.items.refs import KIND_FOLDERS, ItemRef
from ryecore.items.spaces import ItemSource, Spaces
from ryecore.lillux.witness import Evidence

__all__ = [
    "absolute",
    "existing_folder",
    "file_called",
    "find_on_path",
    "folder_to_be",
    "is_program",
    "lies_inside",
    "place_of",
    "source_at",
]


def absolute(path: str | os.PathLike[str]) -> Path:
    """An absolute path without `..`, which would else be part of what is signed; links stay."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - pathlib keeps the dots


def file_called(text: str) -> Path | None:
    """The file that a person means; None where the text names none."""
    try:
        path = absolute(Path(text).expanduser())
    except RuntimeError:  # the home folder of nobody
        return None
    return path if os.path.isfile(path) else None


def place_of(path: Path) -> tuple[str, str]:
    """The kind and the identity of a file, from its place below the nearest `.ai` folder.

    Args:
        path: An absolute path.

    Returns:
        The kind, and the slash path below the kind's folder.

    Raises:
        ItemNotFound: It doesn't stand below a kind's folder.
    """
    kinds = {folder: kind for kind, folder in KIND_FOLDERS.items()}
    parts = path.parts
    for index in range(len(parts) - 3, -1, -1):
        if parts[index] == ".ai" and parts[index + 1] in kinds:
            return kinds[parts[index + 1]], "/".join(parts[index + 2 :])
    raise ItemNotFound(
        f"{path} is not an item: it doesn't stand below a kind's folder.",
        next_step=f"Items stand in .ai/{', .ai/'.join(KIND_FOLDERS.values())}.",
    )


def source_at(path: Path, spaces: Spaces) -> ItemSource:
    """The item source of a file in one of these spaces.

    Raises:
        ItemNotFound: It stands in none of them.
    """
    kind, relative = place_of(path)
    for space in spaces:
        if path == space.folder(kind) / relative:
            return ItemSource(ItemRef.of_file(kind, relative), path, space, relative)
    raise ItemNotFound(
        f"{path} doesn't stand in a space of this project.",
        next_step=f"The spaces: {', '.join(str(space.root) for space in spaces)}.",
    )


def existing_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of a project, absolute.

    Raises:
        ConfigError: There is no such folder.
    """
    named = str(path)
    try:
        folder = absolute(Path(path).expanduser())
        if named and folder.is_dir():
            return folder
        named = named and str(folder)
    except (OSError, ValueError, TypeError, RuntimeError):
        pass  # a name that no folder can have
    raise ConfigError(
        f"The project {named!r} is not a folder.", next_step="Pass the folder that holds .ai."
    )


def folder_to_be(path: str | os.PathLike[str], name: str) -> Path:
    """A folder that may be made later; whether it can be is said when it is needed.

    Args:
        path: The folder.
        name: What it is for.

    Raises:
        ConfigError: No folder can have this name.
    """
    try:
        folder = absolute(Path(path).expanduser())
        if b"\0" not in os.fsencode(folder):
            return folder
    except (OSError, ValueError, TypeError, RuntimeError):
        pass  # the home folder of nobody, or a name that no folder can have
    raise ConfigError(
        f"The {name} {str(path)!r} can't be a folder.", next_step="Name another folder for it."
    )


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
