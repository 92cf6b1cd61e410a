"""The examination of a project's state, disk and keys, which changes nothing.

Each check is a function that yields its findings, each with the next step.
"""

import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ryecore.display.text import counted
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.items.files import is_left_over
from ryecore.lillux.locks import describe_holders, release_advice
from ryecore.state.health import (
    MAX_PROBLEMS,
    SQLITE_VERSION,
    StateExamination,
    shared_file_system,
)
from ryecore.state.model import ThreadRecord
from ryecore.state.object_places import IN_PROJECT, ObjectPlace
from ryecore.state.owners import is_abandoned
from ryecore.state.records import find_run_key
from ryecore.state.refusals import RESTORE_STEP, advice

__all__ = ["Check", "Verdict", "examine"]

Verdict: TypeAlias = Literal["ok", "warning", "problem"]

_NamedCheck: TypeAlias = "tuple[str, Callable[[Path, Path], Iterator[Check]]]"

_LEAST_ROOM_BYTES: Final = 64 * 2**20
_LEAST_DESCRIPTORS: Final = 256
_MAX_FILES: Final = 100_000


@frozen
class Check:
    """The result of a check: a `problem` fails or will fail something; a `warning` may."""

    name: str
    verdict: Verdict
    message: str
    next_step: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the check as a JSON-ready object."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "message": self.message,
            "next_step": self.next_step,
        }


def examine(
    project_root: Path,
    user_root: Path,
    state: str | None = None,
    objects: ObjectPlace = IN_PROJECT,
) -> tuple[Check, ...]:
    """Examine a project's state, its disk and its keys, in a fixed order.

    A check that can't be made is a problem.

    Args:
        project_root: The project's `.ai` folder.
        user_root: The user's.
        state: The address of the server that holds the rows, if one does.
        objects: Where large results are.
    """
    rows: tuple[_NamedCheck, ...] = (("store", _store), ("locks", _locks), ("orphans", _orphans))
    if state is not None:
        rows = (("store", partial(_server, state)), ("orphans", _left_orphans))
    if objects.address not in (None, state):
        rows = (*rows, ("objects", partial(_objects, objects)))
    checks: tuple[_NamedCheck, ...] = (
        ("attestation", _attestation),
        *rows,
        ("disk", _disk),
        ("permissions", _permissions),
        ("keys", _keys),
        ("system", _system),
    )
    found: list[Check] = []
    for name, check in checks:
        try:
            found.extend(check(project_root, user_root))
        except RyeError as error:
            found.append(Check(name, "problem", error.message, error.next_step))
        except OSError as problem:
            found.append(
                Check(name, "problem", f"It can't be examined: {problem}.", advice(problem))
            )
    return tuple(found)


def _attestation(project_root: Path, user_root: Path) -> Iterator[Check]:
    state = StateExamination(project_root, user_root)
    folder = state.find_folder()
    message = "There is no state yet." if folder is None else f"{folder} is yours."
    yield Check("attestation", "ok", message)
    aside = state.folders_set_aside()
    if aside:
        names = ", ".join(aside[:MAX_PROBLEMS])
        yield Check(
            "attestation",
            "warning",
            f"{counted(len(aside), 'folder')} of state set aside: {names}.",
            "Take one over (rye threads adopt NAME), or remove it.",
        )


def _store(project_root: Path, user_root: Path) -> Iterator[Check]:
    found = StateExamination(project_root, user_root).examine_registry()
    if found is None:
        return
    if found.problems:
        message = f"{found.path} is damaged: {'; '.join(found.problems)}."
        yield Check("store", "problem", message, RESTORE_STEP)
        return
    if found.unregistered:
        count = counted(len(found.unregistered), "thread")
        named = ", ".join(found.unregistered[:MAX_PROBLEMS])
        message = f"{found.path} has no registry row of {count} whose records are here: {named}."
        yield Check("store", "problem", message, RESTORE_STEP)
    if found.strays:
        message = f"{found.path} holds {found.strays} rows of threads that are gone."
        yield Check("store", "problem", message, RESTORE_STEP)
    if found.newer_version is not None:
        message = f"{found.path} was written by a newer ryecore (version {found.newer_version})."
        yield Check("store", "problem", message, "Upgrade ryecore.")
        return
    if not found.unregistered and not found.strays:
        yield Check("store", "ok", f"The registry is undamaged. Threads in it: {found.threads}.")


def _locks(project_root: Path, user_root: Path) -> Iterator[Check]:
    state = StateExamination(project_root, user_root)
    holders = state.find_lock_holders()
    stopped = tuple(one for one in holders if one.is_stopped)
    if stopped:
        message = f"The state is locked by {describe_holders(stopped)}; no other process can write."
        yield Check("locks", "problem", message, release_advice(stopped))
    elif holders:
        message = f"The state is being written by {describe_holders(holders)}."
        yield Check("locks", "ok", message)
    else:
        yield Check("locks", "ok", "No process holds a lock.")
    writers = [one for one in state.find_writers() if one.is_stopped]
    if writers:
        message = f"Threads are run by {describe_holders(writers)}."
        yield Check("locks", "warning", message, release_advice(writers))


def _orphans(project_root: Path, user_root: Path) -> Iterator[Check]:
    active = StateExamination(project_root, user_root).active_threads()
    yield from _dead(active)
    yield from _left_orphans(project_root, user_root)


def _server(state: str, project_root: Path, user_root: Path) -> Iterator[Check]:
    del project_root, user_root
    try:
        from ryecore.state.postgres.health import ServerHealth  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError:
        message = "State on PostgreSQL needs the package psycopg, which is not installed."
        yield Check("store", "problem", message, "pip install 'ryecore[postgres]'")
        return
    found = ServerHealth.examine(state)
    where = f"{found.shown}, PostgreSQL {found.server}"
    if found.is_current:
        yield Check("store", "ok", f"The registry is on {where}. Threads in it: {found.threads}.")
        yield from _dead(found.active)
    else:
        yield Check("store", "ok", f"The first run makes or upgrades the registry on {where}.")


def _objects(place: ObjectPlace, project_root: Path, user_root: Path) -> Iterator[Check]:
    del project_root, user_root
    yield Check("objects", "ok", f"Large results are in {place.examine()}.")


def _dead(active: Sequence[ThreadRecord] | None) -> Iterator[Check]:
    dead = [one.thread_id for one in active or () if is_abandoned(one)]
    if dead:
        named = ", ".join(dead[:MAX_PROBLEMS])
        yield Check(
            "orphans",
            "warning",
            f"{counted(len(dead), 'thread')} without a living process: {named}.",
            "Mark them as ended: rye threads list. Then resume them: rye threads resume ID",
        )
    elif active is not None:
        message = f"Running threads: {len(active)}. Each has a living process."
        yield Check("orphans", "ok", message)


def _left_orphans(project_root: Path, user_root: Path) -> Iterator[Check]:
    del user_root
    left = _left_over(project_root)
    if left:
        named = ", ".join(left[:MAX_PROBLEMS])
        yield Check(
            "orphans",
            "warning",
            f"{counted(len(left), 'temporary file')} left by writes that were killed: {named}.",
            "Remove them while nothing runs.",
        )


def _disk(project_root: Path, user_root: Path) -> Iterator[Check]:
    folders = {"project": project_root, "user space": user_root}
    for name, root in tuple(folders.items()):
        state = root / "state"
        if state.exists() and state.stat().st_dev != root.stat().st_dev:
            folders[f"{name}'s state"] = state  # it may be full while the other has room
    for name, folder in folders.items():
        place = next((one for one in (folder, *folder.parents) if one.exists()), Path("/"))
        free = shutil.disk_usage(place).free
        numbers = os.statvfs(place)
        kind = shared_file_system(place)
        if kind:
            yield Check(
                "disk",
                "problem",
                f"The {name} is on {kind}, which machines may share. State is refused there.",
                "Put it on a local disk.",
            )
        if free < _LEAST_ROOM_BYTES or (numbers.f_files and not numbers.f_favail):
            message = f"The disk of the {name} has {free // 2**20} MiB and {numbers.f_favail} files"
            yield Check("disk", "problem", f"{message} left.", "Make room.")
        elif numbers.f_flag & os.ST_RDONLY:
            message = f"The disk of the {name} is read-only: threads can be listed, but not run."
            yield Check("disk", "warning", message, "Mount it for writing.")
        else:
            yield Check("disk", "ok", f"The disk of the {name} has {free // 2**20:,} MiB left.")


def _permissions(project_root: Path, user_root: Path) -> Iterator[Check]:
    wrong: list[str] = []
    for one in StateExamination(project_root, user_root).private_paths():
        with suppress(FileNotFoundError):
            status = one.lstat()
            if stat.S_IMODE(status.st_mode) & 0o077:
                wrong.append(f"others can reach {one}")
            if status.st_uid != os.geteuid():
                wrong.append(f"{one} belongs to user {status.st_uid}")
    if wrong:
        yield Check(
            "permissions",
            "problem",
            f"{'; '.join(wrong)}.",
            "Close it: chmod 700 for a folder, 600 for a file; and run as the user who owns it.",
        )
    else:
        yield Check("permissions", "ok", "Keys and state are readable only by you.")


def _keys(project_root: Path, user_root: Path) -> Iterator[Check]:
    del project_root
    key = find_run_key(user_root)
    if key is None:
        yield Check("keys", "ok", "There is no run key yet; the first run makes it.")
        return
    adopted = key.public.adopted
    message = f"The run key {key.public.fingerprint} signs your records."
    if adopted:
        message += f" Those of {', '.join(adopted)} count as yours, too."
    yield Check("keys", "ok", message, "Include it in your backup: ~/.ai/state/keys")


def _system(project_root: Path, user_root: Path) -> Iterator[Check]:
    del project_root, user_root
    import resource  # noqa: PLC0415 - only for this check

    yield Check(
        "system",
        "ok",
        f"Python {platform.python_version()} ({sys.executable}), SQLite {SQLITE_VERSION}, "
        f"{platform.system()} {platform.release()}.",
    )
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= descriptors < _LEAST_DESCRIPTORS:
        message = f"A process may open {descriptors} files; each running thread needs some."
        yield Check("system", "warning", message, "Raise the limit: ulimit -n 1024")
    zombies = _zombies_of_init()
    if zombies:
        yield Check(
            "system",
            "warning",
            f"Process 1 has left ended processes unreaped: {zombies}.",
            "Run an init as process 1: docker run --init, or tini.",
        )


def _zombies_of_init() -> int:
    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                count += fields[0] == b"Z" and fields[1] == b"1"
    return count


def _left_over(root: Path) -> list[str]:
    """Return the temporary files among at most `_MAX_FILES` files below a folder."""
    left: list[str] = []
    count = 0
    for folder, _, names in os.walk(root):
        left += [f"{folder}/{one}" for one in names[: _MAX_FILES - count] if is_left_over(one)]
        count += len(names)
        if count > _MAX_FILES:
            break
    return left
