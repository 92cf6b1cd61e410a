"""The options and arguments that commands share, and their readers."""

import functools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ryecore.cli.output import errors_shown
from ryecore.errors import ConfigError, InputError, ItemNotFound
from ryecore.items.paths import user_space_in
from ryecore.strict_json import read_json

__all__ = [
    "TakesParameters",
    "find_project",
    "json_option",
    "label_option",
    "limit_option",
    "page_options",
    "project_option",
    "read_labels",
    "read_object",
    "read_overrides",
    "read_pairs",
]

Command = TypeVar("Command", bound=Callable[..., Any])


def find_project() -> str:
    """Return the current folder, or the nearest above it that holds `.ai`.

    The user's own space, which is in the home folder by default, is not a project.
    """
    try:
        here = Path.cwd()
    except OSError:  # it was removed
        return "."
    try:
        user_space: Path | None = user_space_in(os.environ)
    except ConfigError:  # the command reports it
        user_space = None
    for folder in (here, *here.parents):
        if folder != user_space and os.path.isdir(folder / ".ai"):  # noqa: PTH112
            return str(folder)
    return str(here)


project_option = click.option(
    "--project",
    "project_path",
    default=find_project,
    metavar="PATH",
    help="The project's folder; by default this one, or the nearest above that holds .ai.",
)


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command `--json`, as its argument `as_json`, and show its errors in that form."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @functools.wraps(command)
    def with_errors(*, as_json: bool, **others: object) -> None:
        with errors_shown(as_json=as_json), _projects_named(others.get("project_path")):
            command(as_json=as_json, **others)

    return with_errors


@contextmanager
def _projects_named(project_path: object) -> Iterator[None]:
    """Name the missing project as the likely reason for a missing item."""
    try:
        yield
    except ItemNotFound as error:
        if isinstance(project_path, str) and not os.path.isdir(Path(project_path, ".ai")):  # noqa: PTH112
            error.next_step = (
                f"{project_path} is not a project: name one with --project, or make it one with "
                f"rye init. {error.next_step}"
            )
        raise


def page_options(command: Command) -> Command:
    """Give a command `--limit` and `--offset`, for a page of a list."""
    limit = click.option("--limit", default=50, show_default=True, help="How many to list.")
    offset = click.option("--offset", default=0, show_default=True, help="How many to skip.")
    return limit(offset(command))


def limit_option(help_text: str) -> Callable[[Command], Command]:
    """Return the option `--limit`, whose values `read_overrides` reads."""
    return click.option("--limit", "limits", multiple=True, metavar="NAME=N", help=help_text)


def label_option(help_text: str) -> Callable[[Command], Command]:
    """Return the option `--label`, whose values `read_labels` reads."""
    return click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help=help_text)


# Arguments


class TakesParameters(click.Command):
    """A command with KEY=VALUE arguments: who writes `--name Alice` is told `name=Alice`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, and name the parameter where an option is unknown."""
        written = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as unknown:
            meant = _meant(unknown.option_name, written)
            hint = f"A parameter is written {meant}, without dashes."
            if unknown.possibilities:
                hint += f" Of the options, you may mean {', '.join(unknown.possibilities)}."
            raise click.UsageError(
                f"There is no option {unknown.option_name}. {hint}", ctx
            ) from None


def _meant(option: str, arguments: Sequence[str]) -> str:
    """Return the parameter meant by a wrong option: `--name Alice`, `--name=Alice`."""
    key = option.lstrip("-").replace("-", "_")
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name != option:
            continue
        if not equals:
            following = arguments[at + 1] if at + 1 < len(arguments) else ""
            value = "true" if not following or following.startswith("-") else following
        return shlex.join([f"{key}={value}"])
    return f"{key}=VALUE"


def read_object(text: str | None, option: str) -> dict[str, Any]:
    """Read an option that is one JSON object; `-` reads it from the standard input."""
    if text is None:
        return {}
    try:
        given = json.loads(sys.stdin.read() if text == "-" else text)
    except (ValueError, RecursionError) as problem:
        raise InputError(
            f"{option} isn't JSON: {problem}.", next_step='Write an object: {"path": "x"}.'
        ) from None
    if not isinstance(given, dict):
        raise InputError(f"{option} isn't a JSON object.", next_step='Write {"path": "x"}.')
    return given


def read_pairs(pairs: Sequence[str], schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read KEY=VALUE arguments.

    A value is text where the schema says string; else JSON where it reads as JSON; else text.
    """
    properties = (schema or {}).get("properties", {})
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(
                f"{pair!r} isn't a parameter.", next_step="Write KEY=VALUE, such as path=sales.csv."
            )
        part = properties.get(key)
        wants_text = isinstance(part, Mapping) and part.get("type") == "string"
        given[key] = value if wants_text else _json_or_text(value)
    return given


def read_overrides(pairs: Sequence[str]) -> dict[str, Any] | None:
    """Read limits written as NAME=NUMBER, each at most once; None where there are none."""
    limits: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in limits:
            raise InputError(
                f"--limit {pair!r} isn't NAME=NUMBER, or names a limit twice.",
                next_step="Write such as --limit turns=8.",
            )
        limits[name] = value
    return limits or None


def read_labels(pairs: Sequence[str]) -> dict[str, str]:
    """Read labels written as NAME=VALUE, each at most once."""
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in labels:
            raise InputError(
                f"--label {pair!r} isn't NAME=VALUE, or names a label twice.",
                next_step="Write such as --label tenant=acme.",
            )
        labels[name] = value
    return labels


def _json_or_text(value: str) -> Any:
    try:
        return read_json(value)
    except ValueError:
        return value
