"""The folder of a project's state: it is used only if this user's run key attests it.

A repository can carry a `.ai/state` that another user made. It is used only if this user's run key
has attested it, for the very folder that it is in. Because a later pull can replace any file whose
name is known, trusted files are in a private folder below it, with a secret name.

A command that only reads moves nothing. A run that starts sets a folder aside that was copied here
from elsewhere. A folder that was made in this place, is in use, belongs to another user of the
machine, or has records of this user stays, and an error explains how to adopt it.

Source: decision 37; ADR 024.
"""

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ryecore.display.sanitize import warn
from ryecore.errors import SigningError, StateError, UnattestedState
from ryecore.frozen import frozen
from ryecore.items.files import check_links, keep_out_of_git, write_atomically
from ryecore.items.signature import parse_payload
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.lillux.locks import LockHolder, describe_holders, find_lock_holders, is_locked
from ryecore.state.records import find_run_key, holds, load_run_key, sign_record
from ryecore.state.refusals import advice
from ryecore.state.thread_file import THREAD_FILE, read_thread_file
from ryecore.state.waiting import LockWait, try_flock

__all__ = [
    "GRAPHS_FOLDER",
    "OBJECTS_FOLDER",
    "AttestedFolder",
    "Claim",
    "alone_in",
    "attest",
    "attested_folder",
    "check_graph_folders",
    "check_plain",
    "claim_of",
    "find_attested_folder",
    "find_owners",
    "private_folders",
    "refusal_of",
    "set_aside",
]

OBJECTS_FOLDER: Final = "objects"
"""The folder below `.ai/state` with the objects that graphs' states refer to by digest."""
GRAPHS_FOLDER: Final = "graphs"
"""The folder below `.ai/state` with the cached results of nodes."""

_KIND: Final = "state"
_NAME: Final = "attested.json"
_MAX_BYTES: Final = 4096
_PRIVATE: Final = re.compile(r"\.[0-9a-f]{32}")
_MAX_PROBES: Final = 64
_DEADMAN_BYTE: Final = 128
"""The byte of SQLite's shared memory that every connection to a database locks."""

Reason: TypeAlias = Literal["copied", "foreign", "unsigned"]


@frozen
class AttestedFolder:
    """A folder of state that this user's run key attests; `private` in it has the trusted files."""

    path: Path
    private: Path


@frozen
class Claim:
    """The attestation of a folder of state, as far as it can be proved.

    Attributes:
        reason: Why it can't be used: it is this user's own but was `copied` or restored, another
            user space's (`foreign`), or `unsigned`. None if it is attested.
        fingerprint: The fingerprint of the run key that it claims as its signer; empty for none.
        public_key: That key, if the record has it and its signature is valid.
        is_made_here: Whether it names this very place as its origin.
        private: The folder in it for trusted files, if the record names one.
    """

    folder: Path
    reason: Reason | None
    fingerprint: str
    public_key: PublicKey | None
    is_made_here: bool
    private: Path | None


def find_attested_folder(state: Path, name: str, user_root: Path) -> AttestedFolder | None:
    """Find a folder of state that this user's run key attests. Nothing is made or moved.

    Returns None if it is missing, empty or removed meanwhile. One that isn't this user's, or was
    copied or restored, is refused, and so is a link.
    """
    folder = state / name
    check_links(state.parent, state.parent, boundary=state.parent.parent)
    try:
        if not os.path.lexists(folder):
            return None
        check_plain(state)
        check_plain(folder)
        key = find_run_key(user_root)
        claim = claim_of(folder, key.public if key else None)
        if claim.reason is None and claim.private is not None:
            return AttestedFolder(folder, claim.private)
        if not any(folder.iterdir()):
            return None
        raise refusal_of(claim)
    except FileNotFoundError:  # another process set it aside meanwhile
        return None
    except OSError as problem:
        raise _unusable(folder, problem) from problem


def attested_folder(state: Path, name: str, user_root: Path) -> AttestedFolder:
    """Return a folder of state that this user's run key attests, and make it if it is missing.

    A folder that was copied there from elsewhere is set aside, with a warning. One that was made
    here by another user space, is in use, or is this user's own and was copied or restored, is
    refused, and so is a link.
    """
    folder = state / name
    key = load_run_key(user_root)
    check_links(state.parent, state.parent, boundary=state.parent.parent)
    try:
        with suppress(UnattestedState):
            found = find_attested_folder(state, name, user_root)
            if found is not None:
                return found
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with alone_in(state):
            if os.path.lexists(folder):
                check_plain(folder)
                claim = claim_of(folder, key.public)
                if claim.reason is None and claim.private is not None:
                    return AttestedFolder(folder, claim.private)
                _clear_for_start(claim, key.public)
            return _make(folder, key)
    except OSError as problem:
        raise _unusable(folder, problem) from problem


def claim_of(folder: Path, key: PublicKey | None) -> Claim:
    """Return the attestation of a folder of state, by this user's run key if there is one."""
    record = _read_record(folder / _NAME)
    line = record.get("_signature")
    signature = parse_payload(line) if isinstance(line, str) else None
    fingerprint = signature.fingerprint if signature else ""
    is_made_here = record.get("inode") == folder.stat().st_ino
    private = None
    with suppress(KeyError, TypeError):
        named = folder / f".{record['id']}"
        if _PRIVATE.fullmatch(named.name) and named.is_dir() and not named.is_symlink():
            private = named
    # An adopted key proves records, but doesn't attest folders.
    own = None if key is None else PublicKey(key.raw)
    reason: Reason | None
    if own is not None and holds(_KIND, record, own):
        reason = None if is_made_here and private is not None else "copied"
        return Claim(folder, reason, fingerprint, own, is_made_here, private)
    carried = _carried_key(record, fingerprint)
    reason = "foreign" if carried is not None or fingerprint else "unsigned"
    return Claim(folder, reason, fingerprint, carried, is_made_here, private)


def refusal_of(claim: Claim) -> UnattestedState:
    """Return the error for state that can't be used, with the next step."""
    folder, owners = claim.folder, find_owners(claim.folder)
    match claim.reason:
        case "copied":
            message = f"{folder} is a copy or a restored backup of your state, so it isn't used yet"
        case "foreign":
            message = (
                f"{folder} was made by another user space (run key {claim.fingerprint}), so "
                "nothing of it was read or moved"
            )
        case _:
            message = f"{folder} is attested by nobody, so nothing of it was read or moved"
    if owners:
        message += f"; it is in use by {describe_holders(owners)}"
        next_step = (
            "Use the user space that made it (USER_SPACE, HOME), or end that process and take the "
            "state over: rye threads adopt"
        )
    else:
        next_step = (
            "Prove it and take it over: rye threads adopt. Or begin anew without it: "
            "rye threads adopt --set-aside"
        )
        if claim.reason == "foreign":
            next_step = f"Use the user space that made it (USER_SPACE, HOME). {next_step}"
    return UnattestedState(
        f"{message}.",
        next_step=next_step,
        path=str(folder),
        reason=claim.reason or "unsigned",
        owners=owners,
    )


def find_owners(folder: Path) -> tuple[LockHolder, ...]:
    """Return the processes that use a folder of state now; another container's has the number 0."""
    owners: dict[int, LockHolder] = {}
    for private in private_folders(folder):
        shared = [path for path in private.glob("*.db-shm") if _is_plain_file(path)]
        found = find_lock_holders(*shared, *private.glob("*.db.gate"), shared_too=True)
        owners.update({one.pid: one for one in found})
        for path in shared if not found else ():
            with suppress(OSError):
                if is_locked(path, _DEADMAN_BYTE, 1):
                    owners[0] = LockHolder(0, "", "in another container", None)
    return tuple(owners.values())


def private_folders(folder: Path) -> tuple[Path, ...]:
    """Return the folders in a folder of state that are named like one for trusted files."""
    try:
        found = sorted(one for one in folder.iterdir() if _PRIVATE.fullmatch(one.name))
    except PermissionError:
        return ()
    return tuple(one for one in found if one.is_dir() and not one.is_symlink())


def set_aside(folder: Path) -> Path:
    """Rename a folder of state that no process uses, so that another one can take its place."""
    owners = find_owners(folder)
    if owners:
        raise UnattestedState(
            f"{folder} is in use by {describe_holders(owners)}, so it stays where it is.",
            next_step="End that first: rye threads cancel, in the user space that runs it.",
            path=str(folder),
            owners=owners,
        )
    when = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    aside = folder.with_name(f"{folder.name}.unattested-{when}-{os.urandom(2).hex()}")
    folder.rename(aside)
    return aside


def attest(folder: Path, secret: str, key: SigningKey) -> None:
    """Sign that this user made a folder of state here, with its secret folder's name (no dot)."""
    record = {
        "version": 1,
        "id": secret,
        "inode": folder.stat().st_ino,
        "public_key": key.public.pem.decode(),
    }
    signed = sign_record(_KIND, record, key)
    # In our own folder, where no file of a clone can overrule it.
    keep_out_of_git(folder)
    write_atomically(folder / _NAME, json.dumps(signed).encode(), mode=0o600)


@contextmanager
def alone_in(state: Path) -> Iterator[None]:
    """Hold the lock of `.ai/state`: only one process makes, moves or adopts folders in it."""
    check_plain(state)
    descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        wait = None
        while not try_flock(descriptor):
            wait = wait or LockWait(state)
            wait.pause()
        yield
    finally:
        os.close(descriptor)


def _clear_for_start(claim: Claim, key: PublicKey) -> None:
    """Set the folder in the place of this user's own aside, if that is allowed."""
    folder = claim.folder
    try:
        is_empty = not any(folder.iterdir())
    except PermissionError:
        raise refusal_of(claim) from None
    if is_empty:
        folder.rmdir()
        return
    is_copy_from_elsewhere = (
        claim.reason != "copied"
        and not claim.is_made_here
        and folder.stat().st_uid == os.geteuid()
        and not _has_own_records(folder, key)
        and not find_owners(folder)
    )
    if not is_copy_from_elsewhere:
        raise refusal_of(claim)
    aside = set_aside(folder)
    warn(
        f"{folder} was not made by you on this machine, so nothing of it was read. It was moved "
        f"to {aside}."
    )


def _has_own_records(folder: Path, key: PublicKey) -> bool:
    """Return whether any of the first threads of a folder was signed by this user's run key."""
    for path in islice(folder.glob(f"**/{THREAD_FILE}"), _MAX_PROBES):
        with suppress(StateError):
            read_thread_file(path, key, str(path.parent.relative_to(folder)))
            return True
    return False


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(read_digest(path, max_bytes=_MAX_BYTES)[0])  # doesn't wait for a FIFO
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _carried_key(record: dict[str, Any], fingerprint: str) -> PublicKey | None:
    """Return the key in a record, if it has signed the record."""
    pem = record.get("public_key")
    if not isinstance(pem, str):
        return None
    with suppress(SigningError):
        key = PublicKey.from_pem(pem)
        if key.fingerprint == fingerprint and holds(_KIND, record, key):
            return key
    return None


def _make(folder: Path, key: SigningKey) -> AttestedFolder:
    """Make and attest a folder under another name, then rename it, so that it appears complete."""
    fresh = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    fresh.mkdir(mode=0o700)
    secret = os.urandom(16).hex()
    try:
        (fresh / f".{secret}").mkdir(mode=0o700)
        attest(fresh, secret, key)
        fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return AttestedFolder(folder, folder / f".{secret}")


def _is_plain_file(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def check_plain(folder: Path) -> None:
    """Refuse a folder of state that is a link or not a folder."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StateError(
            f"{folder} is {'a link' if stat.S_ISLNK(status.st_mode) else 'no folder'}.",
            next_step="Remove it: state is kept in a folder of the project itself.",
        )


def check_graph_folders(state: Path) -> None:
    """Refuse links of a clone in place of the folders below `.ai/state` that graphs write to."""
    objects = state / OBJECTS_FOLDER
    try:
        for folder in (objects, state / GRAPHS_FOLDER):
            if os.path.lexists(folder):
                check_plain(folder)
        if objects.exists():
            with os.scandir(objects) as entries:
                for one in entries:
                    if one.is_symlink() and one.name != ".gitignore":
                        check_plain(Path(one.path))
    except OSError as problem:
        raise _unusable(objects, problem) from problem


def _unusable(folder: Path, problem: OSError) -> StateError:
    return StateError(
        f"{folder} can't be used: {problem.strerror}.",
        next_step=advice(problem),
    )
