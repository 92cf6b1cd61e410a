"""Projects that travel to workers by the objects that machines share: a snapshot, and its files.

Source: docs/design/queues.md; ADR 043.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from attrs import evolve

from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.errors import StoreError
from ryecore.remote.plan import PushPlan, open_selected
from ryecore.remote.protocol.snapshots import Snapshot, check_snapshot
from ryecore.remote.selection import SelectedFile
from ryecore.state.object_store import (
    CHUNK_BYTES,
    ObjectStore,
    StoredObject,
    prune_objects,
)

__all__ = ["make_project", "prune_snapshots", "put_list", "put_project"]

_LISTS: Final = "lists"
"""The space, below that of the files, of the lists of snapshots."""

_OWN: Final = (".ai/state", ".ai/cache", ".ai/config/keys/signing")
"""What no snapshot may bring: ryecore's own, and private keys."""


def put_list(objects: ObjectStore, snapshot: Snapshot) -> None:
    """Store the list of a snapshot, before its files.

    As it is of today then, pruning keeps all files that it names from here on.

    Raises:
        StoreError: It can't be stored.
    """
    objects.below(_LISTS).put(snapshot.to_bytes(), sha256=snapshot.id)


def put_project(plan: PushPlan, objects: ObjectStore) -> str:
    """Store the project's files that travel, and their list; return the list's name.

    What is there already isn't read again. User space doesn't travel: a worker has its own.

    Raises:
        StoreError: An object can't be stored, or a file has changed meanwhile.
        InputError: A file can't be read.
    """
    files = tuple(one for one in plan.snapshot.files if one.space == "project")
    snapshot = evolve(plan.snapshot, files=files)
    put_list(objects, snapshot)
    for digest in objects.missing({one.sha256 for one in files}):
        objects.put(_chunks(plan.sources[digest]), sha256=digest)
    return snapshot.id


def prune_snapshots(
    objects: ObjectStore,
    *,
    used_before_s: float,
    kept: Collection[str],
    is_projects: bool = True,
) -> tuple[StoredObject, ...]:
    """Delete snapshots that no run was sent with for long, and files that no other one names.

    Args:
        objects: The objects by which projects travel.
        used_before_s: Those that were used last before this time go: seconds since the epoch. Leave
            a day for runs that are sent meanwhile.
        kept: Snapshots that stay in any case, such as those of runs that wait.
        is_projects: Whether they are only those of a project, or have user space, too.

    Returns:
        The deleted lists and files.
    """
    lists = objects.below(_LISTS)
    found = [*lists.list()]
    old = [one for one in found if one.stored_at_s < used_before_s and one.sha256 not in kept]
    lists.delete([one.sha256 for one in old])  # first: what has no list can't be used by halves
    named: set[str] = set()
    for one in found:
        if one not in old:
            snapshot = _read(lists.get(one.sha256), one.sha256, is_projects=is_projects)
            named.update((one.sha256, *(file.sha256 for file in snapshot.files)))
    return (*old, *prune_objects(objects, stored_before_s=used_before_s, kept=named))


def _chunks(source: SelectedFile) -> Iterator[bytes]:
    with open(open_selected(source), "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def make_project(objects: ObjectStore, snapshot_id: str, folder: Path) -> None:
    """Make the folder of a snapshot's project below `folder`, whole or not at all.

    Raises:
        StoreError: An object is missing or was altered, or the snapshot isn't one.
        OSError: The files can't be written.
    """
    made = folder / snapshot_id
    snapshot = _read(objects.below(_LISTS).get(snapshot_id), snapshot_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    half = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        for one in snapshot.files:
            path = half / one.path
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                for chunk in objects.read(one.sha256):
                    file.write(chunk)
            path.chmod(0o755 if one.executable else 0o644)
        try:
            half.rename(made)
        except OSError:
            if made.is_symlink() or not made.is_dir():  # else another process was faster
                raise
    finally:
        if os.path.lexists(half):
            shutil.rmtree(half)


def _read(content: bytes, snapshot_id: str, *, is_projects: bool = True) -> Snapshot:
    try:
        snapshot = RECORDS.read(json.loads(content), Snapshot)
        why = check_snapshot(snapshot)
    except (ValueError, ConversionError):
        why, snapshot = "It isn't a list of files.", Snapshot(())
    strays = [one.path for one in snapshot.files if one.space != "project" or _is_own(one.path)]
    if why is None and is_projects and strays:
        why = f"It has {strays[0]!r}, which never travels."
    if why is not None:
        raise StoreError(
            f"The snapshot {snapshot_id} can't be used: {why}",
            next_step="Start the run again, with a ryecore of the same version.",
        )
    return snapshot


def _is_own(path: str) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in _OWN)
