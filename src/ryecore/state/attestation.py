"""The folder of a project's state: this user's own, or moved aside unread.

A repository can carry a `.ai/state` of somebody else's making. What stands there is used only when
this user's run key has attested it, for the very folder that it stands in. And because a later
pull can replace any file whose name it knows, what is trusted stands in a folder below it whose
name nobody else can know.

Source: decision 37.
"""

import json
import os
import shutil
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from attrs import frozen

from ryecore.errors import StateError
from ryecore.items.confined import check_links
from ryecore.items.files import write_atomically
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import SigningKey
from ryecore.state.locking import LockWait, try_flock
from ryecore.state.records import holds, load_run_key, sign_record

__all__ = ["AttestedFolder", "attested_folder"]

_KIND: Final = "state"
_NAME: Final = "attested.json"
_MAX_BYTES: Final = 4096


@frozen
class AttestedFolder:
    """A folder of state that is this user's own.

    Attributes:
        path: The folder, for what people may look at.
        private: The folder in it for what is trusted.
    """

    path: Path
    private: Path


def attested_folder(state: Path, name: str, user_root: Path) -> AttestedFolder:
    """A folder of state that this user's run key attests, made where it is missing.

    Args:
        state: The project's `.ai/state`.
        name: The folder below it, such as `threads`.
        user_root: The user's `.ai` folder, which holds the run key.

    Returns:
        The folder. What stood there without attestation was moved aside, with a warning.

    Raises:
        StateError: The folder is a link, or can't be made.
        LinkLeavesSpace: The project's `.ai` is a link that leaves the project.
    """
    folder = state / name
    key = load_run_key(user_root)
    check_links(state.parent, state.parent, boundary=state.parent.parent)
    try:
        if os.path.lexists(folder):
            _check_plain(state)
            _check_plain(folder)
            found = _attested(folder, key)
            if found is not None:
                return found
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _alone_in(state):
            if os.path.lexists(folder):
                _check_plain(folder)
                found = _attested(folder, key)
                if found is not None:
                    return found
                _move_aside(folder)
            return _make(folder, key)
    except OSError as problem:
        raise StateError(
            f"{folder} can't be used: {problem.strerror}.",
            next_step="See that the project can be written, and its disk has room.",
        ) from problem


def _attested(folder: Path, key: SigningKey) -> AttestedFolder | None:
    """The folder, if the key has attested this very one, and not one that it is a copy of."""
    path = folder / _NAME
    try:
        record = json.loads(read_digest(path, max_bytes=_MAX_BYTES)[0])  # no FIFO is waited for
    except (OSError, ValueError, RecursionError):
        return None
    if (
        not isinstance(record, dict)
        or record.get("inode") != folder.stat().st_ino
        or not holds(_KIND, record, key.public)
    ):
        return None
    private = folder / f".{record['id']}"
    return AttestedFolder(folder, private) if private.is_dir() else None


def _make(folder: Path, key: SigningKey) -> AttestedFolder:
    """The folder appears whole: made elsewhere and attested, then renamed."""
    fresh = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    fresh.mkdir(mode=0o700)
    secret = os.urandom(16).hex()
    try:
        # In a folder of our own, where no file that a clone brought can say otherwise.
        (fresh / ".gitignore").write_text("*\n")
        (fresh / f".{secret}").mkdir(mode=0o700)
        record = {"version": 1, "id": secret, "inode": fresh.stat().st_ino}
        signed = sign_record(_KIND, record, key)
        write_atomically(fresh / _NAME, json.dumps(signed).encode(), mode=0o600)
        fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return AttestedFolder(folder, folder / f".{secret}")


def _move_aside(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
        return
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = folder.with_name(f"{folder.name}.unattested-{when}-{os.urandom(2).hex()}")
    folder.rename(aside)
    warnings.warn(
        f"{folder} was not made by you on this machine, so nothing of it was read. It was moved "
        f"to {aside}.",
        stacklevel=2,
    )


def _check_plain(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StateError(
            f"{folder} is {'a link' if stat.S_ISLNK(status.st_mode) else 'no folder'}.",
            next_step="Remove it: state is kept in a folder of the project itself.",
        )


@contextmanager
def _alone_in(state: Path) -> Iterator[None]:
    """Eight processes may open a project at once; one of them at a time looks and makes."""
    _check_plain(state)
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        wait = None
        while not try_flock(descriptor):
            wait = wait or LockWait(state)
            wait.pause()
        yield
    finally:
        os.close(descriptor)
