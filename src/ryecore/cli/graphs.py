"""The commands of `rye graph`: check, run, resume and show graphs."""

import shutil
import sys
from typing import TYPE_CHECKING

import anyio
import click

from ryecore.cli.graphs_running import resume, run, step
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, errors_shown, show, show_json
from ryecore.cli.pictures import Drawing, drawing_options
from ryecore.cli.signals import stopped_by_signals
from ryecore.display.text import StyledText
from ryecore.errors import InputError, InvalidItemId, ItemNotFound, ThreadNotFound
from ryecore.rye import Rye
from ryecore.state.model import ThreadRecords
from ryecore.threads.rendering import add_more, thread_line

if TYPE_CHECKING:
    from ryecore.graph.model import Graph
    from ryecore.graph.reading import GraphReport
    from ryecore.graph.run_view import RunView

__all__ = ["graph"]


@click.group(short_help="Check, run, resume and show graphs.")
def graph() -> None:
    """Check, run, resume and show state graphs: workflows of signed tools, written in YAML.

    A run's id may be cut short wherever what is left names one run alone.
    """


graph.add_command(run)
graph.add_command(step)
graph.add_command(resume)


@graph.command(short_help="Check a graph, and run nothing of it.")
@click.argument("ref")
@project_option
@json_option
def validate(ref: str, project_path: str, as_json: bool) -> None:
    """Check a graph, and what it calls; list every problem with its file and line.

    Exits with 1 where something keeps it from running. What only looks wrong is a warning.
    """
    with errors_shown(as_json=as_json):

        async def check() -> "GraphReport":
            async with Rye.open(project_path) as rye:
                return await rye.graphs.validate(ref)

        with stopped_by_signals():
            report = anyio.run(check)
        if as_json:
            status = "success" if report.is_valid else "error"
            show_json({"status": status, "item_id": ref, **report.to_dict()})
        else:
            text = report.render()
            errors, warnings = len(report.errors), len(report.warnings)
            text.line(
                ("✓ ", "good") if report.is_valid else ("✗ ", "bad"),
                (ref, "strong"),
                f"  {errors} error{'' if errors == 1 else 's'}",
                (f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else "", "warn"),
            )
            show(text)
        if not report.is_valid:
            sys.exit(EXIT_FAILED)


@graph.command("show", short_help="Show a graph, or a run of one.")
@click.argument("name", metavar="REF|RUN")
@drawing_options
@project_option
@json_option
def show_graph(name: str, project_path: str, drawing: Drawing, as_json: bool) -> None:
    """Show a graph: its nodes in order, what they do and where they lead.

    Of a run, also what happened at each node, where it stands, and how to go on with it.
    """
    from ryecore.graph.rendering import document_of, render_graph  # noqa: PLC0415
    from ryecore.graph.run_view import RunView  # noqa: PLC0415 - other commands need none

    with errors_shown(as_json=as_json):

        async def look() -> "Graph | RunView":
            async with Rye.open(project_path) as rye:
                return await _found(rye, name)

        with stopped_by_signals():
            found = anyio.run(look)
        width = shutil.get_terminal_size().columns
        if isinstance(found, RunView):
            if drawing.is_wanted:
                drawing.show_graph(_graph_of(found), found)
            elif as_json:
                show_json(found.to_dict())
            else:
                show(found.render(width=width))
        elif drawing.is_wanted:
            drawing.show_graph(found)
        elif as_json:
            show_json(document_of(found))
        else:
            show(render_graph(found, width=width))


def _graph_of(run: "RunView") -> "Graph":
    if run.graph is None:
        raise InputError(
            f"{run.item_id}, which {run.run_id} ran, can't be loaded any more.",
            next_step=f"See why: rye graph show {run.item_id}",
        )
    return run.graph


async def _found(rye: Rye, name: str) -> "Graph | RunView":
    """A graph by its ref, else a run by its id.

    Raises:
        InputError: There is neither.
    """
    try:
        return await rye.graphs.load(name)
    except (ItemNotFound, InvalidItemId) as problem:
        if name.startswith("tool:"):
            raise
        missing = problem
    try:
        return await rye.graphs.show(name)
    except ThreadNotFound as none:
        if "several" in none.message:
            raise
        raise InputError(
            f"There is neither a graph nor a run {name!r} in this project.",
            next_step=f"{_meant(missing)}See the graphs: rye search '*' --scope tool. See the "
            "runs: rye graph list",
        ) from None


def _meant(missing: ItemNotFound | InvalidItemId) -> str:
    """Return the names that come near to one that no graph has, as the beginning of a next step."""
    return f"{missing.next_step} " if missing.next_step.startswith("Did you mean") else ""


@graph.command("list", short_help="List the runs of graphs.")
@click.option("--running", is_flag=True, help="Those that have not ended alone.")
@click.option("--limit", default=50, show_default=True, help="How many.")
@click.option("--offset", default=0, show_default=True, help="How many to pass over.")
@project_option
@json_option
def list_runs(running: bool, limit: int, offset: int, project_path: str, as_json: bool) -> None:
    """List the runs of graphs, newest first."""
    with errors_shown(as_json=as_json):

        async def look() -> ThreadRecords:
            async with Rye.open(project_path) as rye:
                return await rye.graphs.list(running=running, limit=limit, offset=offset)

        with stopped_by_signals():
            found = anyio.run(look)
        if as_json:
            rows = [dict(one.to_dict()) for one in found]
            show_json({"status": "success", "runs": rows, "total": found.total})
            return
        text = StyledText()
        width = max((len(one.thread_id) for one in found), default=0)
        for one in found:
            text.line(*thread_line(one, width))
        if not found:
            text.line("no graph runs" if running else "no graph has run here yet")
        again = "rye graph list --running" if running else "rye graph list"
        add_more(text, found, limit, offset, again)
        show(text)


@graph.command(short_help="Forget the results that nodes remember.")
@project_option
@json_option
def forget(project_path: str, as_json: bool) -> None:
    """Forget the results of nodes with cache_result, of all graphs of the project.

    The next runs call their tools again.
    """
    with errors_shown(as_json=as_json):

        async def clear() -> int:
            async with Rye.open(project_path) as rye:
                return await rye.graphs.forget_results()

        with stopped_by_signals():
            count = anyio.run(clear)
        if as_json:
            show_json({"status": "success", "forgotten": count})
            return
        text = StyledText()
        text.line(f"forgot {count} result{'' if count == 1 else 's'}")
        show(text)
