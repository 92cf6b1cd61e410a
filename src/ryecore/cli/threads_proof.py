"""`rye threads verify` and `replay`: whether a transcript is true, and whether it adds up."""

import sys
from typing import Final

import click

from ryecore.cli.opened import with_threads
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, errors_shown, show, show_json
from ryecore.state.transcript_check import TranscriptReport
from ryecore.styled import StyledText

__all__ = ["replay", "verify"]

_STYLES: Final = {"attested": "good", "altered": "bad", "cut": "bad", "unattested": "warn"}
_MARKS: Final = {"attested": "✓", "altered": "✗", "cut": "✗", "unattested": "!"}


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
            show(_proof(thread_id, report))
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


def _proof(thread_id: str, report: TranscriptReport) -> StyledText:
    text = StyledText()
    mark = ("✓ ", "good") if report.ok else ("✗ ", "bad")
    said = ("  nothing altered or cut", "good") if report.ok else ("  not what was signed", "bad")
    text.line(mark, (thread_id, "id"), said, (f"  {report.size_bytes:,} bytes", "dim"))
    for one in report.turns:
        style = _STYLES[one.state]
        text.line(
            (f"  {_MARKS[one.state]} ", style),
            f"turn {one.turn:<4}",
            (f" {one.state:<10}", style),
            (f"  lines {one.first_line} to {one.last_line}", "dim"),
            (f"  {one.reason}" if one.reason else "", style),
        )
    if report.unattested_records:
        text.line(
            ("  ! ", "warn"), f"{report.unattested_records} records that no checkpoint speaks for"
        )
    for problem in report.problems:
        text.line("  ", (problem, "bad"))
    return text
