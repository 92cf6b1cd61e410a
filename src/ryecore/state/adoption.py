"""The adoption of state that was restored, copied, or made by another user space, with a proof.

Source: decision 37; ADR 024.
"""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from attrs import evolve, field

from ryecore.errors import InputError, StateError, UnattestedState
from ryecore.frozen import frozen
from ryecore.items.files import check_links
from ryecore.lillux.keys import PublicKey
from ryecore.lillux.locks import LockHolder, describe_holders
from ryecore.state.attestation import (
    Claim,
    alone_in,
    attest,
    claim_of,
    find_attested_folder,
    find_owners,
    private_folders,
    set_aside,
)
from ryecore.state.model import THREADS_FOLDER
from ryecore.state.records import RunKey, RunPublicKey, adopt_run_key, load_run_key
from ryecore.state.refusals import advice
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sqlite_files import opened_copy
from ryecore.state.thread_file import THREAD_FILE, TRANSCRIPT, read_thread_file
from ryecore.state.transcript_check import verify_transcript

__all__ = ["DATABASE", "StateProof", "adopt_state", "prove_state"]

DATABASE: Final = "threads.db"
"""The name of the registry's file, in the private folder."""


@frozen
class StateProof:
    """The proof of a folder of state to adopt, and the processes that use it now.

    Attributes:
        proved: The number of threads whose records the key has signed and the registry confirms.
        unsigned: The ids of threads without signed records, such as those of tools.
        failed: The reasons why the others can't be proved, by id; under `""` that of the registry.
    """

    folder: Path
    claim: Claim
    owners: tuple[LockHolder, ...]
    threads: int
    proved: int
    unsigned: tuple[str, ...]
    failed: Mapping[str, str] = field(repr=False)
    is_own_key: bool
    public_key: PublicKey | None

    @property
    def is_whole(self) -> bool:
        """Whether all signatures are valid, and no process uses the folder."""
        return not self.failed and not self.owners and self.public_key is not None

    def to_dict(self) -> dict[str, object]:
        """Return the proof as a JSON-ready object."""
        return {
            "folder": str(self.folder),
            "reason": self.claim.reason,
            "run_key": self.claim.fingerprint or None,
            "is_own_key": self.is_own_key,
            "owners": [one.to_dict() for one in self.owners],
            "threads": self.threads,
            "proved": self.proved,
            "unsigned": list(self.unsigned),
            "failed": dict(self.failed),
        }


def prove_state(
    project_root: Path,
    user_root: Path,
    *,
    folder_name: str = THREADS_FOLDER,
    run_key: PublicKey | None = None,
) -> StateProof:
    """Check the records of a project's threads. Nothing is changed.

    The folder below `.ai/state` is `threads`, or one that was set aside. The key that proves the
    records is by default this user's, else that of the folder's own attestation.
    """
    folder = project_root / "state" / folder_name
    check_links(project_root, project_root, boundary=project_root.parent)
    if Path(folder_name).name != folder_name or not folder.is_dir() or folder.is_symlink():
        raise InputError(
            f"There is no folder {folder}.",
            next_step="Name a folder below .ai/state, such as threads.",
        )
    own = load_run_key(user_root).public
    try:
        claim = claim_of(folder, own)
        private = claim.private or _only(private_folders(folder))
    except OSError as problem:
        raise StateError(
            f"{folder} can't be read: {problem.strerror}.",
            next_step="Run the command as the user who owns it.",
        ) from problem
    key = run_key or (own if claim.fingerprint in ("", own.fingerprint) else claim.public_key)
    if key is None:
        key = own.adopted.get(claim.fingerprint)
    is_own = key is not None and key.raw == own.raw
    owners = find_owners(folder)
    if private is None or not (private / DATABASE).is_file():
        failed = {"": "it has no registry"}
        return StateProof(folder, claim, owners, 0, 0, (), failed, is_own, key)
    if key is None:
        return StateProof(folder, claim, owners, 0, 0, (), {}, False, None)
    ring = RunPublicKey(own.raw, {**own.adopted, key.fingerprint: key})
    return _prove_rows(folder, claim, owners, private / DATABASE, ring, key, is_own=is_own)


def adopt_state(project_root: Path, user_root: Path, proof: StateProof) -> Path:
    """Adopt proved state, which the user has confirmed, as this user's own, in this place.

    State in use and state with failures are refused. Returns the folder of the threads.
    """
    state, folder = project_root / "state", proof.folder
    threads = state / THREADS_FOLDER
    key = load_run_key(user_root)
    with alone_in(state):
        if proof.public_key is None or not proof.is_whole or find_owners(folder):
            raise refusal_of_proof(evolve(proof, owners=proof.owners or find_owners(folder)))
        if not proof.is_own_key:
            adopt_run_key(user_root, proof.public_key)
        try:
            if folder != threads and os.path.lexists(threads):
                _clear_empty(state, user_root)
            private = proof.claim.private or _only(private_folders(folder))
            if private is None:
                raise refusal_of_proof(proof)
            _forget_owners(private / DATABASE)
            _attest_anew(folder, private, key)
            if folder != threads:
                folder.rename(threads)
            _adopt_caches(state, {key.public.fingerprint, proof.public_key.fingerprint}, key)
        except (OSError, sqlite3.Error) as problem:
            raise StateError(
                f"{folder} can't be taken over: {problem}.",
                next_step=advice(problem),
            ) from problem
    return threads


def refusal_of_proof(proof: StateProof) -> UnattestedState:
    """Return the error with the reason why state can't be adopted."""
    folder = proof.folder
    next_step = "Begin anew without it: rye threads adopt --set-aside"
    if proof.owners:
        message = f"{folder} is in use by {describe_holders(proof.owners)}."
        next_step = "End that first, in the user space that runs it: rye threads cancel"
    elif proof.public_key is None:
        message = (
            f"The records in {folder} are signed by the run key {proof.claim.fingerprint}, which "
            "isn't known here."
        )
        next_step = (
            "Name its file: rye threads adopt --run-key OLD_USER_SPACE/.ai/state/keys/run_key.pem. "
            + next_step
        )
    else:
        named = ", ".join(
            f"{thread_id}: {why}" if thread_id else why
            for thread_id, why in list(proof.failed.items())[:3]
        )
        more = f" and {len(proof.failed) - 3} more" if len(proof.failed) > 3 else ""
        message = f"{folder} is not what was signed ({named}{more})."
        next_step = f"Restore it from another backup. {next_step}"
    return UnattestedState(
        message,
        next_step=next_step,
        path=str(folder),
        reason=proof.claim.reason or "unsigned",
        owners=proof.owners,
    )


def _prove_rows(
    folder: Path,
    claim: Claim,
    owners: tuple[LockHolder, ...],
    database: Path,
    ring: RunPublicKey,
    key: PublicKey,
    *,
    is_own: bool,
) -> StateProof:
    proved, unsigned, failed = 0, list[str](), dict[str, str]()
    rows: list[sqlite3.Row] = []
    try:
        with opened_copy(database) as opened:
            (verdict,) = opened.execute("PRAGMA quick_check(1)").fetchone()
            (version,) = opened.execute("PRAGMA user_version").fetchone()
            # Rows are proved below, but the effects of these objects on later rows can't be.
            foreign = opened.execute(
                "SELECT type, name FROM sqlite_schema WHERE type IN ('trigger', 'view')"
            ).fetchone()
            if foreign is not None:
                failed[""] = f"its registry holds the {foreign['type']} {foreign['name']}"
            elif verdict != "ok":
                failed[""] = f"its registry is damaged: {verdict}"
            elif version > len(MIGRATIONS):
                failed[""] = "its registry was written by a newer ryecore"
            else:
                rows = opened.execute(
                    "SELECT thread_id, item_id, parent_id, status, transcript_length,"
                    " transcript_digest FROM threads"
                ).fetchall()
    except (OSError, sqlite3.Error) as problem:
        failed[""] = f"its registry can't be read: {problem}"
    for row in rows:
        thread_id = row["thread_id"]
        why = _why_unproved(folder, row, ring)
        if why is None:
            proved += 1
        elif why:
            failed[thread_id] = why
        else:
            unsigned.append(thread_id)
    return StateProof(
        folder, claim, owners, len(rows), proved, tuple(unsigned), failed, is_own, key
    )


def _why_unproved(folder: Path, row: sqlite3.Row, ring: RunPublicKey) -> str | None:
    """Return why a thread isn't proved; empty if it has no records, None if it is proved."""
    thread_id = row["thread_id"]
    place = folder / thread_id
    if folder not in Path(os.path.normpath(place)).parents:
        return "its id isn't that of a thread"
    if not (place / THREAD_FILE).exists() and row["transcript_digest"] is None:
        return ""
    try:
        signed = read_thread_file(place / THREAD_FILE, ring, thread_id)
    except StateError as problem:
        return problem.message
    for name in ("item_id", "parent_id"):
        if signed.get(name) != row[name]:
            return f"its registry says another {name} than its signed file"
    digest = row["transcript_digest"]
    head = None if digest is None else (row["transcript_length"], digest)
    if head is None and not (place / TRANSCRIPT).exists():
        return None
    # A thread that died within a turn leaves records that no checkpoint covers.
    report = verify_transcript(place / TRANSCRIPT, thread_id, ring, head, ended=False)
    return None if report.ok else "; ".join(report.problems) or "its transcript was altered"


def _attest_anew(folder: Path, private: Path, key: RunKey) -> None:
    secret = os.urandom(16).hex()  # the maker of the copy knows the old name
    private.rename(folder / f".{secret}")
    folder.chmod(0o700)
    attest(folder, secret, key)


def _adopt_caches(state: Path, fingerprints: set[str], key: RunKey) -> None:
    """Adopt other folders that the same keys attested; each result in them is signed itself."""
    for folder in state.iterdir():
        if folder.name.startswith((THREADS_FOLDER, ".")) or folder.is_symlink():
            continue
        if folder.is_dir():
            claim = claim_of(folder, key.public)
            private = claim.private or _only(private_folders(folder))
            is_ours = claim.fingerprint in fingerprints
            if claim.reason is not None and is_ours and private is not None:
                _attest_anew(folder, private, key)


def _forget_owners(database: Path) -> None:
    """Clear the owners of copied threads: those processes may run the originals."""
    database.chmod(0o600)
    with closing(sqlite3.connect(database, isolation_level=None)) as opened:
        opened.execute("PRAGMA trusted_schema = OFF")
        opened.execute(
            "UPDATE threads SET boot_id = NULL, pid_namespace = NULL, pid = NULL,"
            " start_ticks = NULL, lease_until = 0, lease_machine_s = 0 WHERE completed_at IS NULL"
        )


def _clear_empty(state: Path, user_root: Path) -> None:
    """Set this user's own folder aside if it has no threads, to make room for others."""
    own = find_attested_folder(state, THREADS_FOLDER, user_root)
    if own is not None:
        with opened_copy(own.private / DATABASE) as opened:
            (count,) = opened.execute("SELECT count(*) FROM threads").fetchone()
        if count:
            raise StateError(
                f"{own.path} holds {count} threads already.",
                next_step="Set them aside first: rye threads adopt --set-aside",
            )
    set_aside(state / THREADS_FOLDER)


def _only(folders: tuple[Path, ...]) -> Path | None:
    return folders[0] if len(folders) == 1 else None
