"""The command `rye doctor`: the examination of a project's state, with next steps."""

import sys

import click

from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, show, show_json
from ryecore.display.status import status_mark
from ryecore.display.text import StyledText
from ryecore.rye import Rye

__all__ = ["doctor"]


@click.command(short_help="Examine a project's state, keys, locks and disk.")
@project_option
@json_option
def doctor(project_path: str, as_json: bool) -> None:
    """Examine a project's state, keys, locks and disk, and change nothing.

    Exits with 1 where there is a problem.
    """
    from ryecore.actions.doctor import examine  # noqa: PLC0415 - SQLite comes with it

    spaces = Rye.open(project_path).spaces
    checks = examine(spaces.project.root, spaces.user.root)
    has_problem = any(one.verdict == "problem" for one in checks)
    if as_json:
        status = "error" if has_problem else "success"
        show_json({"status": status, "checks": [one.to_dict() for one in checks]})
    else:
        text = StyledText()
        for one in checks:
            text.line(status_mark(one.verdict), (f"{one.name:<12}", "dim"), one.message)
            if one.verdict != "ok" and one.next_step:
                text.line(" " * 14, ("next: ", "dim"), one.next_step)
        show(text)
    if has_problem:
        sys.exit(EXIT_FAILED)
