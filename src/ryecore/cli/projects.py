"""The commands `rye init`, `rye new` and `rye doctor`: make, fill and examine a project.

New items are made from signed templates.
"""

import os
import sys
from pathlib import Path
from typing import Final, cast

import click

from ryecore.actions.settings import check_objects, check_state
from ryecore.cli.opening import with_project
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, show, show_done, show_json
from ryecore.display.text import StyledText, status_mark
from ryecore.errors import ConfigError, SigningError
from ryecore.items.files import writable_folder
from ryecore.items.refs import KIND_FOLDERS, check_item_id
from ryecore.items.spaces import Space
from ryecore.rye import Rye

__all__ = ["doctor", "init", "new"]

_CREATE: Final = "tool:rye/core/create"


@click.command(short_help="Make a folder a project.")
@click.argument("folder", default=".", type=click.Path(file_okay=False))
@json_option
def init(folder: str, as_json: bool) -> None:
    """Make a folder a project: give it .ai with a folder for each kind of item.

    Existing files stay as they are.
    """
    project = Path(os.path.abspath(folder))  # noqa: PTH100 - as a person sees it, links and all
    space = Space("project", project / ".ai")
    try:
        for kind in KIND_FOLDERS:
            with writable_folder(space.folder(kind), space.folder(kind), project):
                pass
    except OSError as problem:
        raise ConfigError(
            f"{space.root} can't be made: {problem.strerror or problem}.",
            next_step="Choose a folder that you may write to.",
        ) from problem
    steps = [
        *_key_steps(project),
        "rye new tool hello",
        "rye sign tool:hello",
        "rye execute tool:hello",
    ]
    show_done(
        f"{project} is a project",
        {"project": str(project), "next_steps": steps},
        steps=steps,
        as_json=as_json,
    )


@click.command(short_help="Make a tool, directive, graph or piece of knowledge.")
@click.argument("kind", type=click.Choice(["tool", "directive", "graph", "knowledge"]))
@click.argument("name", metavar="[CATEGORY/]NAME")
@click.option("--description", default="", help="What it is for, in a sentence.")
@click.option(
    "--language",
    type=click.Choice(["python", "bash", "javascript"]),
    default="python",
    show_default=True,
    help="What a tool is written in.",
)
@click.option("--sign", "is_signed", is_flag=True, help="Sign it at once with your key.")
@project_option
@json_option
def new(
    kind: str,
    name: str,
    description: str,
    language: str,
    is_signed: bool,
    project_path: str,
    as_json: bool,
) -> None:
    """Make a new item from a template, for you to fill in and sign. Nothing is replaced."""
    category, _, last = check_item_id(name).rpartition("/")
    parameters: dict[str, object] = {
        "kind": kind,
        "name": last,
        "category": category,
        "description": description,
        "language": language,
    }
    if is_signed:
        Rye.open(project_path).keys.load()  # without one, nothing is made
    done = with_project(project_path, lambda rye: rye.execute(_CREATE, parameters))
    if not done.success:
        reason = done.data.get("error") if isinstance(done.data, dict) else done.error
        raise ConfigError(str(reason), next_step="")
    made = cast("dict[str, object]", done.data)
    ref, steps = str(made["item_id"]), cast("list[str]", made["next_steps"])
    if is_signed:
        Rye.open(project_path).sign(ref)
        steps = steps[2:]
    else:
        steps = [steps[0], *_key_steps(Path(project_path)), *steps[1:]]
    show_done(
        f"{ref}  {'made and signed' if is_signed else 'made, unsigned'}: {made['path']}",
        {"item_id": ref, "path": made["path"], "signed": is_signed, "next_steps": steps},
        steps=steps,
        as_json=as_json,
    )


def _key_steps(project: Path) -> list[str]:
    try:
        Rye.open(project).keys.load()
    except SigningError:
        return ["rye keys generate"]
    return []


# An examination


@click.command(short_help="Examine a project's state, keys, locks and disk.")
@project_option
@json_option
def doctor(project_path: str, as_json: bool) -> None:
    """Examine a project's state, keys, locks and disk, and change nothing.

    Exits with 1 where there is a problem.
    """
    from ryecore.actions.doctor import examine  # noqa: PLC0415 - SQLite comes with it
    from ryecore.state.object_places import ObjectPlace  # noqa: PLC0415

    spaces = Rye.open(project_path).spaces
    state = check_state(None, os.environ)
    objects = ObjectPlace(check_objects(None, state, os.environ), os.environ)
    checks = examine(spaces.project.root, spaces.user.root, state, objects)
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
