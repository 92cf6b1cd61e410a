"""Paths that users write: to items, to project folders, and to programs.

The place of a file below an `.ai` folder is its identity.
"""

import os
from collections.abc import Iterator, Mapping
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
    "user_space_in",
]


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path without `..`, which would become part of the identity; keep links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 - pathlib keeps the dots


def _expanded(path: str | os.PathLike[str]) -> Path:
    """Expand `~`, unless HOME is empty, where Python takes `/`, or relative."""
    written = Path(path)
    if written.parts[:1] == ("~",) and not os.path.isabs(os.environ.get("HOME", "/")):
        raise RuntimeError("HOME is not an absolute path")
    return written.expanduser()


def file_called(text: str) -> Path | None:
    """Return the file that a text names; None where it names none."""
    try:
        path = absolute(_expanded(text))
    except RuntimeError:  # a home folder of an unknown user
        return None
    return path if os.path.isfile(path) else None


def place_of(path: Path) -> tuple[str, str]:
    """Return a file's kind, from the nearest `.ai` folder, and its path below the kind's folder."""
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
    """Return the item source of a file in one of these spaces."""
    kind, relative = place_of(path)
    for space in spaces:
        if path == space.folder(kind) / relative:
            return ItemSource(ItemRef.of_file(kind, relative), path, space, relative)
    raise ItemNotFound(
        f"{path} doesn't stand in a space of this project.",
        next_step=f"The spaces: {', '.join(str(space.root) for space in spaces)}.",
    )


def existing_folder(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a project's folder."""
    named = str(path)
    try:
        folder = absolute(_expanded(path))
        if named and folder.is_dir():
            return folder
        named = named and str(folder)
    except (OSError, ValueError, TypeError, RuntimeError):
        pass  # a name that no folder can have
    raise ConfigError(
        f"The project {named!r} is not a folder.", next_step="Pass the folder that holds .ai."
    )


def folder_to_be(path: str | os.PathLike[str], name: str) -> Path:
    """Return the absolute path of a folder that may be created later."""
    try:
        folder = absolute(_expanded(path))
        if str(path) and b"\0" not in os.fsencode(folder):
            return folder
    except (OSError, ValueError, TypeError, RuntimeError):
        pass  # a home folder of an unknown user, or a name that no folder can have
    home = "Set HOME to an absolute path, or name" if str(path).startswith("~") else "Name"
    raise ConfigError(
        f"The {name} {str(path)!r} can't be a folder.", next_step=f"{home} another folder for it."
    )


def user_space_in(environ: Mapping[str, str], named: str | os.PathLike[str] | None = None) -> Path:
    """Return the user space: named, or that of `USER_SPACE`, `HOME`, or else the account's home."""
    if named is not None:
        return folder_to_be(named, "user space")
    for name in ("USER_SPACE", "HOME"):
        path = environ.get(name)
        if path is None:
            continue
        if path.startswith("/") or (name == "USER_SPACE" and path.startswith("~")):
            return folder_to_be(path, "user space")
        raise ConfigError(
            f"{name} is {path!r}, which is not an absolute path: there is no user space.",
            next_step="Set HOME or USER_SPACE to an absolute path.",
        )
    return folder_to_be("~", "user space")


def lies_inside(path: str, folder: Path, real_folder: str | None = None) -> bool:
    """Return whether a path lies inside a folder, as it is written or once links are resolved.

    A link inside that leads outside counts as inside: the owner of the folder chose its target.
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
    """Find the programs of a name; skip relative entries of the search path."""
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
    """Return whether a file may be executed."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
