"""`rye threads verify`, `replay`, `adopt` and `prune`: prove, take over and remove records."""

import sys
from pathlib import Path

import click

from ryecore.cli.opening import with_threads
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, show, show_done, show_json
from ryecore.display.text import StyledText, counted
from ryecore.errors import InputError, SigningError
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.rye import Rye
from ryecore.state.adoption import StateProof, adopt_state, prove_state, refusal_of_proof
from ryecore.state.attestation import alone_in, set_aside
from ryecore.state.model import THREADS_FOLDER
from ryecore.state.pruning import AGE_UNITS

__all__ = ["adopt", "prune", "pull", "replay", "verify"]


@click.command(short_help="Prove a thread's transcript, turn by turn.")
@click.argument("thread_id", metavar="ID")
@project_option
@json_option
def verify(thread_id: str, project_path: str, as_json: bool) -> None:
    """Prove a thread's transcript: show which turn was altered, cut, or never attested.

    Exits with 1 where the transcript isn't what was signed.
    """
    report = with_threads(project_path, lambda threads: threads.verify(thread_id))
    if as_json:
        show_json({"status": "success" if report.ok else "error", **report.to_dict()})
    else:
        show(report.render(thread_id))
    if not report.ok:
        sys.exit(EXIT_FAILED)


@click.command(short_help="Bring home the project files that a run on a node changed.")
@click.argument("thread_id", metavar="ID")
@project_option
@json_option
def pull(thread_id: str, project_path: str, as_json: bool) -> None:
    """Apply the project files that a run on a node changed, whole or not at all.

    The run has to be begun with --pull. Exits with 1 where a file was changed here meanwhile: then
    nothing is applied, and the node's versions are kept beside the thread.
    """
    report = with_threads(project_path, lambda threads: threads.pull(thread_id))
    if as_json:
        show_json({"status": "success" if report.applied else "error", **report.to_dict()})
    else:
        show(report.render())
    if not report.applied:
        sys.exit(EXIT_FAILED)


@click.command(short_help="Recompute a thread's decisions; run nothing.")
@click.argument("thread_id", metavar="ID")
@project_option
@json_option
def replay(thread_id: str, project_path: str, as_json: bool) -> None:
    """Recompute a thread's decisions from its transcript, and run nothing.

    Limits, holds, permissions, hook conditions and outputs are judged again. Exits with 1 where one
    differs from its record.
    """
    report = with_threads(project_path, lambda threads: threads.replay(thread_id))
    if as_json:
        show_json({"status": "success" if report.ok else "error", **report.to_dict()})
    else:
        show(report.render())
    if not report.ok:
        sys.exit(EXIT_FAILED)


# Records of others


@click.command(short_help="Take over threads that were restored, copied or made elsewhere.")
@click.argument("folder_name", metavar="[FOLDER]", default=THREADS_FOLDER)
@click.option(
    "--run-key",
    "named_key",
    metavar="FILE|FINGERPRINT",
    help="The run key that signed them, where it isn't yours: its file, or the fingerprint that "
    "you confirm.",
)
@click.option(
    "--set-aside",
    "is_set_aside",
    is_flag=True,
    help="Rename their folder, and start without threads.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@project_option
@json_option
def adopt(
    folder_name: str,
    named_key: str | None,
    is_set_aside: bool,
    yes: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Take over threads that were restored, copied or made by another user space.

    Their records are proved first: each thread's signed file and transcript, and that the registry
    agrees with them. FOLDER is one below .ai/state: `threads`, or one that was set aside.
    """
    spaces = Rye.open(project_path).spaces
    project_root, user_root = spaces.project.root, spaces.user.root
    if is_set_aside:
        _set_aside(project_root, folder_name, yes=yes, as_json=as_json)
        return
    path = _key_file(named_key)
    proof = prove_state(
        project_root,
        user_root,
        folder_name=folder_name,
        run_key=None if path is None else _read_key(path),
    )
    if proof.claim.reason is None and folder_name == THREADS_FOLDER:
        show_done("these threads are yours already", {"adopted": False}, as_json=as_json)
        return
    if not proof.is_whole:
        raise refusal_of_proof(proof)
    _check_confirmed(proof, named_key if path is None else None, is_named=path is not None)
    if not as_json:
        show(_summary(proof))
    _ask(f"Take over {counted(proof.threads, 'thread')}?", yes=yes)
    adopted = adopt_state(project_root, user_root, proof)
    show_done(
        f"the threads in {adopted} are yours; those that were under way have ended",
        {"adopted": True, **proof.to_dict()},
        as_json=as_json,
    )


def _set_aside(project_root: Path, name: str, *, yes: bool, as_json: bool) -> None:
    state = project_root / "state"
    folder = state / name
    if Path(name).name != name or not folder.is_dir() or folder.is_symlink():
        raise InputError(f"There is no folder {folder}.", next_step="See what is in .ai/state.")
    _ask(f"Rename {folder}, and begin anew without it?", yes=yes)
    with alone_in(state):
        aside = set_aside(folder)
    show_done(
        f"set aside: {aside}; take it over later with: rye threads adopt {aside.name}",
        {"set_aside": str(aside)},
        as_json=as_json,
    )


def _check_confirmed(proof: StateProof, fingerprint: str | None, *, is_named: bool) -> None:
    """Have somebody else's key confirmed by its name, not by `--yes` alone."""
    if proof.is_own_key or is_named or proof.public_key is None:
        return
    key = proof.public_key.fingerprint
    if fingerprint is None and sys.stdin.isatty():
        return  # the question shows it
    if fingerprint != key:
        raise InputError(
            f"The records are signed by the run key {key}, which is not yours.",
            next_step=f"If it is that of another user space of yours, confirm it: --run-key {key}",
        )


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{question} Nobody can be asked here.", next_step="Pass --yes.")
    if not click.confirm(question, err=True):
        raise InputError("Nothing was changed.", next_step="")


def _summary(proof: StateProof) -> StyledText:
    text = StyledText()
    key = proof.public_key.fingerprint if proof.public_key else ""
    whose = "your own" if proof.is_own_key else "not yours"
    text.line("folder   ", (str(proof.folder), "id"))
    text.line("run key  ", (key, "id"), f"  {whose}")
    text.line("threads  ", f"{proof.threads}, of which {proof.proved} are proved")
    if proof.unsigned:
        text.line("         ", f"{len(proof.unsigned)} left no signed record, as tools' threads")
    return text


def _key_file(named: str | None) -> Path | None:
    """Return the file that `--run-key` names; None where it names a fingerprint, or nothing."""
    if named is None or (len(named) == 16 and all(one in "0123456789abcdef" for one in named)):
        return None
    return Path(named)


def _read_key(path: Path) -> PublicKey:
    try:
        pem = path.read_bytes()
    except OSError as problem:
        raise InputError(
            f"{path} can't be read: {problem.strerror}.",
            next_step="Pass the file of a run key, or its fingerprint of 16 hex digits.",
        ) from problem
    try:
        return PublicKey.from_pem(pem)
    except SigningError:
        return SigningKey.from_pem(pem).public


# Old records


@click.command(short_help="Remove threads that ended long ago.")
@click.option(
    "--older-than",
    metavar="AGE",
    help=f"How long ago they ended, such as 30d: a number and {AGE_UNITS}.",
)
@click.option("--keep", type=int, metavar="N", help="Keep the latest N, whatever their age.")
@click.option(
    "--include-resumable",
    is_flag=True,
    help="Also threads that can be resumed; otherwise these are kept twice as long.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@project_option
@json_option
def prune(
    older_than: str | None,
    keep: int | None,
    include_resumable: bool,
    dry_run: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Remove threads and graph runs that ended long ago: rows, transcripts, results and exports.

    Threads that belong together (children, continuations, forks) go together, once the last of them
    has ended for so long. Without --older-than, the signed agent/retention.yaml says how long.
    """
    is_watched = sys.stderr.isatty() and not as_json

    def on_progress(gone: int, total: int) -> None:
        click.echo(f"\r{gone} of {counted(total, 'thread')}", nl=False, err=True)

    report = with_threads(
        project_path,
        lambda threads: threads.prune(
            older_than=older_than,
            keep=keep,
            include_resumable=include_resumable or None,
            dry_run=dry_run,
            on_progress=on_progress if is_watched else None,
        ),
    )
    if is_watched and report.thread_ids and not dry_run:
        click.echo("\r\x1b[K", nl=False, err=True)
    if as_json:
        show_json(report.to_dict())
    else:
        show(report.render())
