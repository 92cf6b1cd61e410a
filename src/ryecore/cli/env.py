"""The command `rye env`: the names of a project's `.env` that count."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

import click

from ryecore.cli.groups import HintedGroup
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import show, show_done, show_json
from ryecore.display.text import StyledText, status_mark
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.chain.environment import DotenvName

__all__ = ["env"]

_MEANINGS: Final = {
    "allowed": ("ok", "set for every tool"),
    "asked": ("note", "set for tools whose signed elements ask for it"),
    "never": ("problem", "never set: it steers programs"),
    "set": ("note", "the environment has it already, and takes precedence"),
    "no_value": ("warning", "has no value, so it is not set: write NAME=value"),
    "missing": ("warning", "allowed, but not in this project's .env"),
}


@click.group(cls=HintedGroup, short_help="Show and choose which names of .env are set for tools.")
def env() -> None:
    """Show and choose which names of this project's .env are set for tools.

    A name is set where a signed element asks for it, or where you allowed it.
    """


@env.command(name="list")
@project_option
@json_option
def list_names(project_path: str, as_json: bool) -> None:
    """List the names of this project's .env, never the values."""
    opened = Rye.open(project_path).env
    names = opened.names()
    if as_json:
        found = [
            {"name": one.name, "state": one.state, "needs_naming": one.needs_naming}
            for one in names
        ]
        show_json({"status": "success", "names": found})
        return
    text = StyledText()
    for one in names:
        status, meaning = _MEANINGS[one.state]
        if one.state == "allowed" and one.needs_naming:
            meaning = "allowed, but a credential: set for tools that ask for it"
        text.line(status_mark(status), (one.name, "strong"), (f"  {meaning}", "dim"))
    if opened.leads_out:
        text.line("this project's .env is a link that leaves the project, and is not read")
    elif not names:
        text.line("this project has no .env, or an empty one")
    show(text)


@env.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@project_option
@json_option
def allow(names: tuple[str, ...], project_path: str, as_json: bool) -> None:
    """Set names of this project's .env for every tool."""
    opened = Rye.open(project_path)
    path = opened.env.allow(*names)
    show_done(
        f"now allowed for every tool from {opened.project}/.env: {', '.join(names)}",
        {"path": str(path)},
        as_json=as_json,
    )
    if not as_json:
        _show_notes(opened.env.names(), names)


def _show_notes(listed: "Sequence[DotenvName]", allowed: Sequence[str]) -> None:
    """Print on standard error why an allowed name doesn't count."""
    by_name = {one.name: one for one in listed}
    notes = StyledText()
    absent = [name for name in allowed if by_name[name].state == "missing"]
    if absent:
        there = [one.name for one in listed if one.state != "missing"]
        near = [found[0] for one in absent if (found := get_close_matches(one, there, n=1))]
        meant = "".join(f"; did you mean {one}?" for one in near)
        notes.line(f"  {', '.join(absent)}: not in this project's .env yet{meant}")
    withheld = [name for name in allowed if by_name[name].needs_naming]
    if withheld:
        notes.line(
            f"  {', '.join(withheld)}: looks like a credential, so only tools get it whose "
            f'signed env_config.env names it, as {withheld[0]}: "${{{withheld[0]}}}"'
        )
    if notes.lines:
        show(notes, to_stderr=True)


@env.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@project_option
@json_option
def forget(names: tuple[str, ...], project_path: str, as_json: bool) -> None:
    """Set names again only for tools that ask for them."""
    opened = Rye.open(project_path)
    path = opened.env.forget(*names)
    show_done(
        f"only for tools that ask, from {opened.project}/.env: {', '.join(names)}",
        {"path": str(path)},
        as_json=as_json,
    )
