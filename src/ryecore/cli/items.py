"""The commands on items: fetch, search, sign and verify."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from ryecore.actions.fetch import FetchedItem
from ryecore.actions.sign import SignReport
from ryecore.actions.verify import verified_item
from ryecore.cli.opening import with_project
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, EXIT_REFUSED, show, show_json, show_result
from ryecore.display.text import StyledText, status_mark
from ryecore.items.packages import lock_packages
from ryecore.rye import Rye

__all__ = ["fetch", "search", "sign", "verify"]


@click.command(short_help="Show an item, or copy it to another space.")
@click.argument("ref")
@project_option
@click.option(
    "--source",
    type=click.Choice(["project", "user", "system"]),
    help="The only space to search; by default the first that has it.",
)
@click.option(
    "--copy-to",
    "destination",
    type=click.Choice(["project", "user"]),
    help="The space that gets a copy at the same place, signature and all.",
)
@click.option("--overwrite", is_flag=True, help="Let the copy replace another file.")
@json_option
def fetch(
    ref: str,
    project_path: str,
    source: Literal["project", "user", "system"] | None,
    destination: Literal["project", "user"] | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Show an item of any kind once it is verified, or copy it to another space."""
    found = with_project(
        project_path,
        lambda rye: rye.fetch(ref, source=source, destination=destination, overwrite=overwrite),
        is_short=destination is None,
    )
    if as_json:
        show_json(found.to_dict())
        return
    text = StyledText()
    if found.copied is None:
        for line in found.content.removesuffix("\n").split("\n"):
            text.line(line.removesuffix("\r"))
    else:
        text.line(status_mark("ok"), str(found.item.source.ref), (f"  {found.copied.path}", "dim"))
        if found.copied.problem is not None:
            text.line((f"! {found.copied.problem}", "warn"))
    show(text)
    _show_notes(found)


def _show_notes(found: FetchedItem) -> None:
    """Print notes on standard error, because standard output is the item's own text."""
    notes = StyledText()
    if found.is_record:
        notes.line(
            ("! the record of a thread, attested by you: nobody vouches for its text", "warn")
        )
    for path, space in found.shadowed_by:
        notes.line((f"! shadowed by {path} ({space.label})", "warn"))
    for path, space in found.shadows:
        notes.line((f"shadows {path} ({space.label})", "dim"))
    if notes.lines:
        show(notes, to_stderr=True)


@click.command(short_help="Find items by their names and contents.")
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@project_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="A kind, or a pattern such as tool.acme.*; repeatable.",
)
@click.option(
    "--source",
    type=click.Choice(["project", "user", "system"]),
    help="The only space to search; all by default.",
)
@click.option("--limit", type=int, default=10, metavar="N", help="How many at most; 10 by default.")
@click.option("--offset", type=int, default=0, metavar="N", help="How many to skip.")
@click.option("--records", is_flag=True, help="Search the records of threads, too.")
@json_option
def search(
    words: Sequence[str],
    project_path: str,
    scopes: tuple[str, ...],
    source: Literal["project", "user", "system"] | None,
    limit: int,
    offset: int,
    records: bool,
    as_json: bool,
) -> None:
    """Find items by their names, descriptions and contents.

    QUERY is words, all of which must match; AND, OR and NOT; "a phrase"; prefix*; title: word;
    parentheses; or * for everything.
    """
    query, scope = " ".join(words), scopes or "*"
    found = with_project(
        project_path,
        lambda rye: rye.search(
            query, scope=scope, source=source, limit=limit, offset=offset, records=records
        ),
    )
    show_result(found, as_json=as_json)


# Signatures


@click.command(short_help="Sign an item, or all that a glob matches.")
@click.argument("pattern", metavar="REF|GLOB|FILE")
@project_option
@click.option("--user", is_flag=True, help="Sign in user space, not in the project.")
@click.option("--packages", is_flag=True, help="Lock a package folder such as node_modules.")
@json_option
def sign(pattern: str, project_path: str, user: bool, packages: bool, as_json: bool) -> None:
    """Sign an item, or all that a glob such as 'tool:acme/*' matches, with your key.

    A glob is compared with the path below the kind's folder, with its extension and without.
    """
    opened = Rye.open(project_path)
    if packages:
        report = SignReport((lock_packages(Path(pattern), opened.keys.load()),))
    else:
        report = opened.sign(pattern, space="user" if user else "project")
    show_result(report, as_json=as_json)
    if report.failed:
        sys.exit(EXIT_FAILED)


@click.command(short_help="Verify an item, or all that a glob matches.")
@click.argument("ref", metavar="REF|GLOB|FILE")
@project_option
@click.option("--user", is_flag=True, help="With a glob: in user space, not in the project.")
@json_option
def verify(ref: str, project_path: str, user: bool, as_json: bool) -> None:
    """Verify an item, or all that a glob such as 'tool:acme/*' matches; run nothing.

    A glob is compared with the path below the kind's folder, with its extension and without.
    """
    opened = Rye.open(project_path)
    if any(mark in ref for mark in "*?["):
        report = opened.verify_all(ref, space="user" if user else "project")
        show_result(report, as_json=as_json)
        if report.failed:
            sys.exit(EXIT_REFUSED)
        return
    item = opened.verify(ref)
    if as_json:
        show_json(verified_item(item))
    else:
        show(item.render())
