"""`rye threads tree`, `watch` and `transcript`: what is, and was, going on in threads."""

import json
import shutil
import sys
import time
from typing import Final

import click

from ryecore.actions.threads import Threads
from ryecore.cli.live import ChangeLines, LiveTree, can_redraw
from ryecore.cli.opened import with_threads
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import errors_shown, show, show_json, show_piece
from ryecore.cli.pictures import Drawing, drawing_options
from ryecore.cli.transcript_lines import record_lines
from ryecore.display.text import StyledText
from ryecore.errors import InputError
from ryecore.threads.events import RECORD_TYPES
from ryecore.threads.rendering import render_tree
from ryecore.threads.tree import TreeNode

__all__ = ["transcript", "tree", "watch"]

_MAX_ROWS: Final = 200
_MAX_TREES: Final = 20
_FOR_PROGRAMS: Final = frozenset({"token_delta", "model_call", "checkpoint"})
"""What people are shown only when they ask for it by name."""


@click.command(short_help="Draw threads with all that they have started.")
@click.argument("thread_id", metavar="[ID]", required=False)
@drawing_options
@project_option
@json_option
def tree(thread_id: str | None, project_path: str, drawing: Drawing, as_json: bool) -> None:
    """Draw a thread, or all that run, with what they have used of their limits."""
    with errors_shown(as_json=as_json):

        async def load(threads: Threads) -> list[TreeNode]:
            if thread_id is not None:
                return [await threads.tree(thread_id)]
            running = await threads.list(limit=1000)
            ids = {one.thread_id for one in running}
            tops = [one for one in running if one.parent_id not in ids]
            return [await threads.tree(one.thread_id) for one in tops[:_MAX_TREES]]

        found = with_threads(project_path, load)
        if as_json:
            show_json({"status": "success", "threads": [one.to_dict() for one in found]})
        elif drawing.is_wanted:
            drawing.show_threads(found)
        elif found:
            width = shutil.get_terminal_size().columns
            show(render_tree(found, width=width, now=time.time(), max_rows=_MAX_ROWS))
        else:
            text = StyledText()
            text.line("nothing runs; the ended ones: rye threads list --all")
            show(text)


@click.command(short_help="Draw a thread's tree while it runs.")
@click.argument("thread_id", metavar="ID")
@project_option
def watch(thread_id: str, project_path: str) -> None:
    """Draw a thread and all that it has started, until all of them have ended.

    On a terminal the tree is drawn in place; elsewhere there is a line for each change.
    """
    with errors_shown(as_json=False):

        async def draw(threads: Threads) -> None:
            if can_redraw(sys.stdout):
                with LiveTree(sys.stdout) as live:
                    await threads.watch(thread_id, live.draw)
            else:
                await threads.watch(thread_id, ChangeLines().draw)

        with_threads(project_path, draw)


@click.command(short_help="Print what was said and done in a thread.")
@click.argument("thread_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Go on until the thread has ended.")
@click.option(
    "--types", metavar="TYPE,...", help="These records alone, such as cognition_out,hook."
)
@project_option
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON.")
def transcript(
    thread_id: str, follow: bool, types: str | None, project_path: str, as_json: bool
) -> None:
    """Print what was said and done in a directive's thread; whether it is true, verify says."""
    with errors_shown(as_json=as_json):
        wanted = _types(types, as_json=as_json)

        async def print_it(threads: Threads) -> None:
            thread = await threads.thread(thread_id)
            async for event in thread.events(follow=follow):
                if event.type not in wanted:
                    continue
                if as_json:
                    show_piece(json.dumps(event.to_dict(), ensure_ascii=True) + "\n")
                    continue
                lines = record_lines(event)
                if lines.lines:
                    show(lines)

        with_threads(project_path, print_it)


def _types(given: str | None, *, as_json: bool) -> frozenset[str]:
    """The wanted types of records; where none is named, those that say something to the reader.

    Raises:
        InputError: There is none of a name.
    """
    if given is None:
        return frozenset(RECORD_TYPES) - (frozenset() if as_json else _FOR_PROGRAMS)
    names = [one.strip() for one in given.split(",") if one.strip()]
    unknown = [one for one in names if one not in RECORD_TYPES]
    if unknown or not names:
        raise InputError(
            f"There are no records of the type {', '.join(unknown) or given!r}.",
            next_step=f"The types are {', '.join(RECORD_TYPES)}.",
        )
    return frozenset(names)
