"""`rye graph run`, `step` and `resume`: graphs that are walked in this process."""

import json
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import click
from attrs import evolve

from ryecore.chain.model import ExecutionResult
from ryecore.cli.arguments import read_object, read_overrides, read_pairs
from ryecore.cli.models import deps_option, models_of
from ryecore.cli.options import json_option, project_option
from ryecore.cli.output import EXIT_FAILED, errors_shown, show, show_json
from ryecore.cli.signals import stopped_by_signals
from ryecore.display.text import StyledText
from ryecore.errors import InputError
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.graph.result import GraphResult
    from ryecore.graph.run import GraphRun

__all__ = ["resume", "run", "step"]

Work = Callable[[Rye], Coroutine[Any, Any, tuple[ExecutionResult, str]]]
"""What is done in an open project: what came of it, and the command that goes on with it."""

_params_option = click.option(
    "--params", metavar="JSON|-", help="The inputs as one JSON object; - reads it."
)
_limit_option = click.option(
    "--limit", "limits", multiple=True, metavar="NAME=N", help="A limit: spend=0.5; repeatable."
)
_quiet_option = click.option(
    "--quiet", is_flag=True, help="Tell nothing while it runs; RYE_GRAPH_QUIET=1 does the same."
)


@click.command(short_help="Run a graph.")
@click.argument("ref")
@click.argument("inputs", nargs=-1, metavar="[KEY=VALUE ...]")
@_params_option
@_limit_option
@click.option("--async", "async_", is_flag=True, help="Return at once; see: rye graph list")
@click.option("--idempotency-key", metavar="KEY", help="A start that is repeated finds its run.")
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
    """Run a graph, in view while it runs: drawn on a terminal, else a line for each node.

    Ctrl-C asks it to stop; what it has done by then stands, and it can be resumed.

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

    with errors_shown(as_json=as_json):
        object_of, overrides = read_object(params, "--params"), read_overrides(limits)
        if async_ and overrides:
            raise InputError(
                "--limit and --async can't be used together yet.", next_step="Leave one out."
            )
        _work(run_it, project_path, deps, as_json=as_json)


@click.command(short_help="Run a single node of a graph.")
@click.argument("ref")
@click.argument("node")
@click.argument("inputs", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option("--state", metavar="JSON|-", help="Values of the state, above the graph's own.")
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
    """Run a single node of a graph with a state that you give; say what it would go on with."""

    async def run_it(rye: Rye) -> tuple[ExecutionResult, str]:
        graph = await rye.graphs.load(ref)
        given = object_of | read_pairs(inputs, graph.input_schema)
        started = await rye.graphs.start_step(
            graph.ref, node, inputs=given, state=values, limits=overrides
        )
        return await _awaited(started, quiet=quiet), ""

    with errors_shown(as_json=as_json):
        if state == "-" and params == "-":
            raise InputError("--state and --params can't both be read.", next_step="Write one out.")
        object_of, values = read_object(params, "--params"), read_object(state, "--state")
        overrides = read_overrides(limits)
        _work(run_it, project_path, deps, as_json=as_json)


@click.command(short_help="Go on with a run that has ended.")
@click.argument("run_id", metavar="RUN")
@click.option("--at", type=int, metavar="STEP", help="Behind which step; where it stopped else.")
@click.option("--again", is_flag=True, help="Go on though another run did so already.")
@click.option("--rerun", is_flag=True, help="Do again what had begun when its process died.")
@click.option("--result", metavar="JSON", help="What came of that, where you found out.")
@click.option(
    "--member",
    "members",
    multiple=True,
    metavar="INDEX=JSON",
    help="What came of a single member of a foreach; repeatable.",
)
@click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="A value of the state; repeatable."
)
@click.option("--changed", is_flag=True, help="Go on though the graph has changed since.")
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
    """Go on with a run that was killed, stopped or has failed, in a new one.

    What a node was doing when its process was killed is not known, and is not done again by
    itself: find out, and say --rerun or --result. Where several members of a
    foreach were being done, say --member of those that were, and --rerun for the others.
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

    with errors_shown(as_json=as_json):
        if rerun and result is not None:
            raise InputError(
                "--rerun does it again, and --result says what came of it.",
                next_step="Write one of the two.",
            )
        answer: dict[str, Any] = {} if result is None else {"result": _json("--result", result)}
        known = dict(map(_member, members))
        values, overrides = read_pairs(pairs, None), read_overrides(limits)
        _work(run_it, project_path, deps, as_json=as_json)


async def _awaited(started: "GraphRun", *, quiet: bool) -> "GraphResult":
    from ryecore.cli.graphs_live import graph_to_its_end  # noqa: PLC0415 - to run graphs alone

    return await graph_to_its_end(started, quiet=quiet)


async def _ended(rye: Rye, started: "GraphRun", *, quiet: bool) -> "tuple[GraphResult, str]":
    """Wait for a run's end; what came of it, and how it can be gone on with.

    The progress of a run that had ended before is not shown again.
    """
    quiet = quiet or (started.is_earlier and started.record.ended)
    done = await _awaited(started, quiet=quiet)
    if started.is_earlier:
        done = evolve(done, metadata={**done.metadata, "already_started": True})
    if done.success:
        return done, ""
    return done, (await rye.graphs.show(done.run_id)).next_step


def _work(work: Work, project_path: str, deps: str | None, *, as_json: bool) -> None:
    with stopped_by_signals():
        done, next_step = anyio.run(partial(_opened, work, project_path, deps))
    if as_json:
        show_json({**done.to_dict(), **({"next_step": next_step} if next_step else {})})
    else:
        text = StyledText()
        text.add(done.render())
        if "already_started" in done.metadata:
            text.line(
                ("  already started with this idempotency key: nothing was run again", "warn")
            )
        if next_step:
            text.line(("  next: ", "dim"), next_step)
        show(text)
    if not done.success:
        sys.exit(EXIT_FAILED)


async def _opened(work: Work, project_path: str, deps: str | None) -> tuple[ExecutionResult, str]:
    async with Rye.open(project_path, **models_of(deps, are_wanted=True)) as rye:
        return await work(rye)


def _member(pair: str) -> tuple[int, object]:
    """A member of a foreach, and what came of it."""
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
