"""`rye threads verify` and `replay`: whether a transcript is true, and whether it adds up."""

import sys

import click

from ryecore.cli.opened import with_threads
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, errors_shown, show, show_json

__all__ = ["replay", "verify"]


@click.command(short_help="Prove a thread's transcript, turn by turn.")
@click.argument("thread_id", metavar="ID")
@project_option
@json_option
def verify(thread_id: str, project_path: str, as_json: bool) -> None:
    """Prove a thread's transcript: say which turn was altered, cut, or never attested.

    Exits with 1 where the transcript isn't what was signed.
    """
    with errors_shown(as_json=as_json):
        report = with_threads(project_path, lambda threads: threads.verify(thread_id))
        if as_json:
            show_json({"status": "success" if report.ok else "error", **report.to_dict()})
        else:
            show(report.render(thread_id))
    if not report.ok:
        sys.exit(EXIT_FAILED)


@click.command(short_help="Decide again what a thread decided; run nothing.")
@click.argument("thread_id", metavar="ID")
@project_option
@json_option
def replay(thread_id: str, project_path: str, as_json: bool) -> None:
    """Decide again what was decided in a thread, from its transcript, and run nothing.

    Limits, holds, permissions, hook conditions and outputs are judged again. Exits with 1 where
    one comes out otherwise than it was recorded.
    """
    with errors_shown(as_json=as_json):
        report = with_threads(project_path, lambda threads: threads.replay(thread_id))
        if as_json:
            show_json({"status": "success" if report.ok else "error", **report.to_dict()})
        else:
            show(report.render())
    if not report.ok:
        sys.exit(EXIT_FAILED)
