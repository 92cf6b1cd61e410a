"""The commands that read items: fetch and search."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import anyio
import click

from ryecore.actions.fetch import FetchedItem
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import errors_shown, show, show_json
from ryecore.cli.signals import stopped_by_signals
from ryecore.display.text import StyledText
from ryecore.rye import Rye
from ryecore.search.model import SearchResults

__all__ = ["fetch", "search"]


@click.command(short_help="Show an item, or copy it to another space.")
@click.argument("ref")
@project_option
@click.option(
    "--source",
    type=click.Choice(["project", "user", "system"]),
    help="The one space to look in; by default the first that has it.",
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
    with errors_shown(as_json=as_json):
        run = partial(
            _fetch, project_path, ref, source=source, destination=destination, overwrite=overwrite
        )
        with stopped_by_signals():
            found = anyio.run(run)
        if as_json:
            show_json(found.to_dict())
            return
        text = StyledText()
        if found.copied is None:
            for line in found.content.removesuffix("\n").split("\n"):
                text.line(line.removesuffix("\r"))
        else:
            text.line(("✓ ", "good"), str(found.item.source.ref), (f"  {found.copied.path}", "dim"))
            if found.copied.problem is not None:
                text.line((f"! {found.copied.problem}", "warn"))
        show(text)
        _show_notes(found)


async def _fetch(project_path: str, ref: str, **options: Any) -> FetchedItem:
    async with Rye.open(project_path) as opened:
        return await opened.fetch(ref, **options)


def _show_notes(found: FetchedItem) -> None:
    """On standard error: what is printed is the item's own text."""
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


@click.command(short_help="Find items by their names and what they hold.")
@click.argument("words", metavar="QUERY", nargs=-1, required=True)
@project_option
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="A kind, or such as tool.acme.*; may be given several times.",
)
@click.option(
    "--source",
    type=click.Choice(["project", "user", "system"]),
    help="The one space to look in; all by default.",
)
@click.option("--limit", type=int, default=10, metavar="N", help="How many at most; 10 by default.")
@click.option("--offset", type=int, default=0, metavar="N", help="How many to pass over.")
@click.option("--records", is_flag=True, help="Look through the records of threads, too.")
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
    """Find items by their names, what they say of themselves and what they hold.

    QUERY is words, which all must be there; AND, OR and NOT; "a phrase"; prefix*; title: word;
    parentheses; or * for everything.
    """
    with errors_shown(as_json=as_json):
        run = partial(
            _search, project_path, " ".join(words), scope=scopes or "*", source=source, limit=limit,
            offset=offset, records=records,
        )  # fmt: skip
        with stopped_by_signals():
            found = anyio.run(run)
        if as_json:
            show_json(found.to_dict())
        else:
            show(found.render())


async def _search(project_path: str, query: str, **options: Any) -> SearchResults:
    async with Rye.open(project_path) as opened:
        return await opened.search(query, **options)
