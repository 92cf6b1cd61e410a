"""The commands of `rye graph`: check, run, resume and show graphs."""

import json
import shutil
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from ryecore.chain.model import ExecutionResult
from ryecore.cli.groups import HintedGroup
from ryecore.cli.opening import deps_option, models_of, with_project
from ryecore.cli.options import (
    json_option,
    limit_option,
    page_options,
    project_option,
    read_object,
    read_overrides,
    read_pairs,
)
from ryecore.cli.output import EXIT_FAILED, show, show_done, show_json
from ryecore.cli.pictures import Drawing, drawing_options
from ryecore.display.text import StyledText, counted, status_mark
from ryecore.errors import InputError, InvalidItemId, ItemNotFound, ThreadNotFound
from ryecore.rye import Rye
from ryecore.threads.rendering import render_page

if TYPE_CHECKING:
    from ryecore.graph.model import Graph
    from ryecore.graph.result import GraphResult
    from ryecore.graph.run import GraphRun
    from ryecore.graph.run_view import RunView

__all__ = ["graph"]


@click.group(cls=HintedGroup, short_help="Check, run, resume and show graphs.")
def graph() -> None:
    """Check, run, resume and show state graphs: workflows of signed tools, written in YAML.

    A run's id may be shortened to any beginning that only one run has, or to such an end of four or
    more characters.
    """


@graph.command(short_help="Check a graph without running it.")
@click.argument("ref")
@project_option
@json_option
def validate(ref: str, project_path: str, as_json: bool) -> None:
    """Check a graph, and what it calls; list every problem with its file and line.

    Exits with 1 where something keeps it from running. Everything else is a warning.
    """
    report = with_project(project_path, lambda rye: rye.graphs.validate(ref))
    if as_json:
        status = "success" if report.is_valid else "error"
        show_json({"status": status, "item_id": ref, **report.to_dict()})
    else:
        text = report.render()
        errors, warnings = len(report.errors), len(report.warnings)
        text.line(
            status_mark("ok") if report.is_valid else status_mark("problem"),
            (ref, "strong"),
            f"  {counted(errors, 'error')}",
            (f", {counted(warnings, 'warning')}" if warnings else "", "warn"),
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

    Of a run, also what happened at each node, its state, and how to continue it.
    """
    from ryecore.graph.rendering import document_of, render_graph  # noqa: PLC0415
    from ryecore.graph.run_view import RunView  # noqa: PLC0415 - other commands need none

    found = with_project(project_path, lambda rye: _found(rye, name))
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
    """Return a graph by its ref, else a run by its id."""
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
    """Return the names similar to an unknown one, as the beginning of a next step."""
    return f"{missing.next_step} " if missing.next_step.startswith("Did you mean") else ""


@graph.command("list", short_help="List the runs of graphs.")
@click.option("--running", is_flag=True, help="Only runs that have not ended.")
@page_options
@project_option
@json_option
def list_runs(running: bool, limit: int, offset: int, project_path: str, as_json: bool) -> None:
    """List the runs of graphs, newest first."""
    found = with_project(
        project_path, lambda rye: rye.graphs.list(running=running, limit=limit, offset=offset)
    )
    if as_json:
        rows = [dict(one.to_dict()) for one in found]
        show_json({"status": "success", "runs": rows, "total": found.total})
        return
    none = "no graph runs" if running else "no graph has run here yet"
    again = "rye graph list --running" if running else "rye graph list"
    show(render_page(found, none, limit, offset, again))


@graph.command(short_help="Delete the cached results of nodes.")
@project_option
@json_option
def forget(project_path: str, as_json: bool) -> None:
    """Delete the cached results of nodes with cache_result, of all graphs of the project.

    The next runs call their tools again.
    """
    count = with_project(project_path, lambda rye: rye.graphs.forget_results())
    show_done(f"forgot {counted(count, 'result')}", {"forgotten": count}, as_json=as_json)


# Commands that run a graph


Work = Callable[[Rye], Coroutine[Any, Any, tuple[ExecutionResult, str]]]
"""What is done in an open project: what came of it, and the command that continues it."""

_params_option = click.option(
    "--params", metavar="JSON|-", help="The inputs as one JSON object; - reads standard input."
)
_limit_option = limit_option("A limit, such as spend=0.5; repeatable.")
_quiet_option = click.option(
    "--quiet", is_flag=True, help="Print nothing while it runs; RYE_GRAPH_QUIET=1 does the same."
)


@graph.command(short_help="Run a graph.")
@click.argument("ref")
@click.argument("inputs", nargs=-1, metavar="[KEY=VALUE ...]")
@_params_option
@_limit_option
@click.option("--async", "async_", is_flag=True, help="Return at once; see: rye graph list")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="A repeated start with the same key finds the first run.",
)
@_quiet_option
@deps_option
@project_option
@json_option
def run(
    ref: str,
    inputs: Sequence[str],
    params: str | None,
    limits: Sequence[str],
    async_: bool,
    idempotency_key: str | None,
    quiet: bool,
    deps: str | None,
    project_path: str,
    as_json: bool,
) -> None:
    """Run a graph and show its progress: drawn on a terminal, else as a line for each node.

    Ctrl-C asks it to stop; finished nodes stay done, and it can be resumed.

    KEY=VALUE is text where the graph's schema says so, else JSON if it reads as JSON, else text.
    """

    async def run_it(rye: Rye) -> tuple[ExecutionResult, str]:
        graph = await rye.graphs.load(ref)
        given = object_of | read_pairs(inputs, graph.input_schema)
        if async_:
            done = await rye.execute(graph.ref, given, async_=True, idempotency_key=idempotency_key)
            return done, ""
        started = await rye.graphs.start(
            graph.ref, given, limits=overrides, idempotency_key=idempotency_key
        )
        return await _ended(rye, started, quiet=quiet)

    object_of, overrides = read_object(params, "--params"), read_overrides(limits)
    if async_ and overrides:
        raise InputError(
            "--limit and --async can't be used together yet.", next_step="Leave one out."
        )
    _work(run_it, project_path, deps, as_json=as_json)


@graph.command(short_help="Run a single node of a graph.")
@click.argument("ref")
@click.argument("node")
@click.argument("inputs", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option(
    "--state", metavar="JSON|-", help="Values of the state, which override the graph's own."
)
@_params_option
@_limit_option
@_quiet_option
@deps_option
@project_option
@json_option
def step(
    ref: str,
    node: str,
    inputs: Sequence[str],
    state: str | None,
    params: str | None,
    limits: Sequence[str],
    quiet: bool,
    deps: str | None,
    project_path: str,
    as_json: bool,
) -> None:
    """Run a single node of a graph with the state that you pass, and show the next node."""

    async def run_it(rye: Rye) -> tuple[ExecutionResult, str]:
        graph = await rye.graphs.load(ref)
        given = object_of | read_pairs(inputs, graph.input_schema)
        started = await rye.graphs.start_step(
            graph.ref, node, inputs=given, state=values, limits=overrides
        )
        return await _awaited(started, quiet=quiet), ""

    if state == "-" and params == "-":
        raise InputError("--state and --params can't both be read.", next_step="Write one out.")
    object_of, values = read_object(params, "--params"), read_object(state, "--state")
    overrides = read_overrides(limits)
    _work(run_it, project_path, deps, as_json=as_json)


@graph.command(short_help="Continue a run that has ended.")
@click.argument("run_id", metavar="RUN")
@click.option(
    "--at",
    type=int,
    metavar="STEP",
    help="The step after which to continue; by default where it stopped.",
)
@click.option("--again", is_flag=True, help="Continue it although another run did so already.")
@click.option("--rerun", is_flag=True, help="Repeat the node that had begun when its process died.")
@click.option("--result", metavar="JSON", help="The result of that node, if you found it out.")
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="INDEX=JSON",
    help="The result of a single member of a foreach; repeatable.",
)
@click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="A value of the state; repeatable."
)
@click.option("--changed", is_flag=True, help="Continue it although the graph has changed since.")
@_limit_option
@_quiet_option
@deps_option
@project_option
@json_option
def resume(
    run_id: str,
    at: int | None,
    again: bool,
    rerun: bool,
    result: str | None,
    members: Sequence[str],
    pairs: Sequence[str],
    changed: bool,
    limits: Sequence[str],
    quiet: bool,
    deps: str | None,
    project_path: str,
    as_json: bool,
) -> None:
    """Continue a run that was killed, stopped or has failed, in a new one.

    Whether a node took effect when its process was killed is unknown, so it isn't repeated by
    itself: find out, and pass --rerun or --result. For a foreach, pass --member for each member
    that was done, and --rerun for the others.
    """

    async def run_it(rye: Rye) -> tuple[ExecutionResult, str]:
        started = await rye.graphs.start_resume(
            run_id,
            at=at,
            again=again,
            rerun=rerun,
            members=known,
            state=values,
            changed=changed,
            limits=overrides,
            **answer,
        )
        return await _ended(rye, started, quiet=quiet)

    if rerun and result is not None:
        raise InputError(
            "--rerun repeats the node, and --result supplies its result.",
            next_step="Pass one of the two.",
        )
    answer: dict[str, Any] = {} if result is None else {"result": _json("--result", result)}
    known = dict(map(_member, members))
    values, overrides = read_pairs(pairs, None), read_overrides(limits)
    _work(run_it, project_path, deps, as_json=as_json)


async def _awaited(started: "GraphRun", *, quiet: bool) -> "GraphResult":
    from ryecore.cli.live import graph_to_its_end  # noqa: PLC0415 - only to run graphs

    return await graph_to_its_end(started, quiet=quiet)


async def _ended(rye: Rye, started: "GraphRun", *, quiet: bool) -> "tuple[GraphResult, str]":
    """Wait for a run's end; return its result, and the command that resumes it.

    The progress of a run that had ended before is not shown again.
    """
    quiet = quiet or (started.is_earlier and (await started.record()).ended)
    done = await _awaited(started, quiet=quiet)
    if started.is_earlier:
        done = evolve(done, metadata={**done.metadata, "already_started": True})
    if done.success:
        return done, ""
    return done, (await rye.graphs.show(done.run_id)).next_step


def _work(work: Work, project_path: str, deps: str | None, *, as_json: bool) -> None:
    done, next_step = with_project(project_path, work, models_of(deps, are_wanted=True))
    if as_json:
        show_json({**done.to_dict(), **({"next_step": next_step} if next_step else {})})
    else:
        text = StyledText()
        text.add(done.render())
        if "already_started" in done.metadata:
            text.line(("  already started with this idempotency key: nothing was repeated", "warn"))
        text.next_step(next_step)
        show(text)
    if not done.success:
        sys.exit(EXIT_FAILED)


def _member(pair: str) -> tuple[int, object]:
    """Return a member of a foreach and its result."""
    index, equals, text = pair.partition("=")
    if not equals or not (index.isascii() and index.isdigit()):
        raise InputError(
            f"--member {pair!r} isn't INDEX=JSON.", next_step="Write such as --member 3='\"done\"'."
        )
    return int(index), _json("--member", text)


def _json(option: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InputError(
            f"{option} isn't JSON: {problem}.", next_step="Write a text in quotes: '\"done\"'."
        ) from None
