"""Snapshots: the files that a run on a node gets, each with the SHA-256 of its content.

Source: docs/design/remote.md#models; decisions 66 and 82.
"""

import hashlib
import re
from functools import cached_property
from typing import Final, Literal

from attrs import field

from ryecore.convert.json_text import make_encoder
from ryecore.frozen import frozen

__all__ = [
    "MAX_FILES",
    "MAX_FOLDERS",
    "MAX_PATH_BYTES",
    "Snapshot",
    "SnapshotFile",
    "check_snapshot",
]

MAX_FILES: Final = 100_000
MAX_FOLDERS: Final = 100_000
MAX_PATH_BYTES: Final = 1024
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MAX_NAME_BYTES: Final = 255
_MAX_SIZE_BYTES: Final = 2**53
_canonical: Final = make_encoder(sort_keys=True)


@frozen
class SnapshotFile:
    """One file of a snapshot.

    Attributes:
        space: The space that it belongs to.
        path: Its path below the project's folder, or below the folder that holds user space's
            `.ai`; with `/`, normalised.
        sha256: The SHA-256 of its content, as hexadecimal digits.
        size_bytes: Its length.
        executable: Whether its owner may execute it.
    """

    space: Literal["project", "user"]
    path: str
    sha256: str
    size_bytes: int
    executable: bool = False


@frozen(slots=False)
class Snapshot:
    """The files of a run, in the order of space and path."""

    files: tuple[SnapshotFile, ...]
    version: int = field(default=1, kw_only=True)

    @cached_property
    def id(self) -> str:
        """The SHA-256 of the snapshot in canonical form."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the snapshot as JSON in canonical form."""
        files = [
            {
                "executable": one.executable,
                "path": one.path,
                "sha256": one.sha256,
                "size_bytes": one.size_bytes,
                "space": one.space,
            }
            for one in self.files
        ]
        return _canonical({"version": self.version, "files": files}).encode()


def check_snapshot(snapshot: Snapshot) -> str | None:
    """Return what is wrong with a snapshot, in one sentence; None where nothing is.

    A path that leaves its space, one that stands there twice, and a file that is another one's
    folder, are refused. Paths that differ only in upper and lower case are two paths.
    """
    if snapshot.version != 1:
        return f"It has the version {snapshot.version}, not 1."
    if len(snapshot.files) > MAX_FILES:
        return f"It has more than {MAX_FILES:,} files."
    previous: tuple[str, str] = ("", "")
    folders: set[tuple[str, str]] = set()
    paths: set[tuple[str, str]] = set()
    for one in snapshot.files:
        place = (one.space, one.path)
        why = _why_refused(one)
        if why is not None:
            return f"{one.path[:200]!r} {why}."
        if place <= previous:
            return f"{one.path!r} isn't in the order of space and path, or stands there twice."
        previous = place
        paths.add(place)
        folder = one.path.rpartition("/")[0]
        while folder and (one.space, folder) not in folders:
            folders.add((one.space, folder))
            folder = folder.rpartition("/")[0]
        if len(folders) > MAX_FOLDERS:
            return f"It has more than {MAX_FOLDERS:,} folders."
    clash = next(iter(paths & folders), None)
    return None if clash is None else f"{clash[1]!r} is a file and a folder."


def _why_refused(file: SnapshotFile) -> str | None:
    path = file.path
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "isn't Unicode"
    if not path or size > MAX_PATH_BYTES:
        return f"has no name, or one of more than {MAX_PATH_BYTES} bytes"
    if "\\" in path or not path.isprintable():
        return "has a backslash or an unprintable character in its name"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "isn't a plain relative path"
    if size > _MAX_NAME_BYTES and any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        return f"has a name of more than {_MAX_NAME_BYTES} bytes"
    if path == ".ai":
        return "is a file, where a folder has to be"
    if _SHA256.fullmatch(file.sha256) is None:
        return "has a hash that isn't a SHA-256"
    if not 0 <= file.size_bytes <= _MAX_SIZE_BYTES:
        return "has a size that isn't one"
    return None
