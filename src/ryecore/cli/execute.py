"""`rye execute`: run an item through its verified chain."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from ryecore.chain.model import ExecutionResult
from ryecore.cli.opening import (
    deps_option,
    missing_models,
    models_of,
    run_shortly,
    run_until_stopped,
    with_project,
)
from ryecore.cli.options import (
    TakesParameters,
    json_option,
    label_option,
    limit_option,
    project_option,
    read_labels,
    read_object,
    read_overrides,
    read_pairs,
)
from ryecore.cli.output import EXIT_FAILED, show, show_json, show_text, tell
from ryecore.display.live import can_redraw
from ryecore.errors import RyeError
from ryecore.policy import CallContext
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.policy.reports import ReportSink, ToolQuestion, ToolReport

__all__ = ["execute"]


@click.command(cls=TakesParameters, short_help="Execute a tool, or print a directive's directions.")
@click.argument("ref")
@click.argument("parameters", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option(
    "--params", metavar="JSON|-", help="The parameters as one JSON object; - reads standard input."
)
@project_option
@click.option(
    "--timeout", "timeout_s", type=float, metavar="S", help="Seconds until it is stopped."
)
@click.option(
    "--model", metavar="MODEL", help="A directive's model: provider/model, a tier or a name."
)
@limit_option("A limit of a directive or graph, such as turns=8; repeatable.")
@click.option("--dry-run", is_flag=True, help="Verify, validate and plan; run nothing.")
@click.option(
    "--target",
    default="local",
    metavar="WHERE",
    help="local; or a node, a queue or a Ray cluster: remote, or remote:NAME.",
)
@click.option(
    "--pull", is_flag=True, help="On a node: bring home the project files that it changed."
)
@click.option("--push-plan", is_flag=True, help="Show what would travel; send and run nothing.")
@click.option(
    "--thread", default="inline", metavar="HOW", help="inline; for a directive also fork."
)
@click.option("--async", "async_", is_flag=True, help="Return at once; see: rye threads --help")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="A repeated start with the same key finds the first run.",
)
@label_option("What a run is for, such as tenant=acme; repeatable.")
@click.option("--trace", is_flag=True, help="Show every decision.")
@deps_option
@json_option
def execute(
    ref: str,
    parameters: Sequence[str],
    params: str | None,
    project_path: str,
    timeout_s: float | None,
    model: str | None,
    limits: Sequence[str],
    dry_run: bool,
    target: str,
    pull: bool,
    push_plan: bool,
    thread: str,
    async_: bool,
    idempotency_key: str | None,
    labels: Sequence[str],
    trace: bool,
    deps: str | None,
    as_json: bool,
) -> None:
    """Execute a tool through its verified chain, or print a directive's directions.

    With --thread fork a directive runs in a thread of its own, with a model. On a terminal its
    tree is shown while it runs; Ctrl-C asks it to stop. Calls of its tools that need
    an approval are asked about; without a terminal the command that approves is printed.

    KEY=VALUE is text where the item's schema says so, else JSON if it reads as JSON, else text.
    """
    if push_plan:
        from ryecore.cli.remote import show_plan  # noqa: PLC0415 - only for remote targets

        wanted = None if target == "local" else target
        planned = with_project(project_path, lambda rye: rye.remotes.plan(wanted))
        show_plan(planned, as_json=as_json)
        return
    run = partial(
        _execute, project_path, ref, parameters, read_object(params, "--params"), deps,
        is_shown=not as_json and can_redraw(sys.stderr),
        timeout_s=timeout_s, model=model, limits=read_overrides(limits),
        dry_run=dry_run, target=target, thread=thread, async_=async_, trace=trace,
        idempotency_key=idempotency_key, pull=pull, labels=read_labels(labels),
    )  # fmt: skip
    is_short = (target, thread, async_) == ("local", "inline", False)
    done = run_shortly(run) if is_short else run_until_stopped(run)
    document = done.to_dict()
    if as_json:
        show_json(document)
    elif "your_directions" in document and not trace:
        show_text(str(document["your_directions"]), done.render())
    else:
        show(done.render())
    if not done.success:
        sys.exit(EXIT_FAILED)


async def _execute(
    project_path: str,
    ref: str,
    pairs: Sequence[str],
    params: dict[str, Any],
    deps: str | None,
    *,
    is_shown: bool,
    **options: Any,
) -> ExecutionResult:
    forks = options["thread"] == "fork"
    models = models_of(deps, are_wanted=forks and options["target"] == "local")
    async with Rye.open(project_path, **models) as opened:
        schema = None
        if pairs:
            # An error of the schema is also one of the execution, which reports it with the trace.
            with suppress(RyeError):
                schema = await opened.schema(ref)
        given = params | read_pairs(pairs, schema)
        if options["pull"] and not options["async_"]:
            return await _execute_and_pull(opened, ref, given, options, is_shown=is_shown)
        if forks and not options["dry_run"]:
            has_models = "agent" in models
            return await _execute_fork(
                opened, ref, given, options, has_models=has_models, is_shown=is_shown
            )
        if options["target"] != "local" and is_shown and not options["dry_run"]:
            from ryecore.cli.remote import push_progress  # noqa: PLC0415 - only for nodes

            with push_progress(is_shown=True) as progress:
                await opened.remotes.push(options["target"], progress=progress)
        with ExitStack() as shown:
            ctx = CallContext(report_sink=_shown_in(shown, with_progress=is_shown), ask=_ask)
            return await opened.execute(ref, given, **options, ctx=ctx)


def _shown_in(shown: ExitStack, *, with_progress: bool) -> "ReportSink":
    """Return a sink that shows what a tool reports, until the stack ends."""

    @cache
    def sink() -> "ReportSink":
        from ryecore.cli.reports import reports_shown  # noqa: PLC0415 - few tools report

        return shown.enter_context(reports_shown(with_progress=with_progress))

    def show_report(report: "ToolReport") -> None:
        sink()(report)

    return show_report


async def _ask(question: "ToolQuestion", /) -> Mapping[str, object]:
    """Have the person at the terminal answer a tool."""
    from ryecore.cli.forms import fill_in  # noqa: PLC0415 - only for tools that ask

    return await fill_in(question)


async def _execute_and_pull(
    rye: Rye,
    ref: str,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    is_shown: bool,
) -> ExecutionResult:
    """Execute on a node, and apply the project files that changed there."""
    if options["thread"] == "fork":
        done = await _execute_fork(rye, ref, given, options, has_models=True, is_shown=is_shown)
    else:
        done = await rye.execute(ref, given, **options)
    if not done.success:
        return done
    thread_id = str(done.to_dict()["thread_id"])
    try:
        pulled = await rye.threads.pull(thread_id)
    except RyeError as problem:
        problem.facts = {**problem.facts, "thread_id": thread_id}
        problem.next_step += (
            f" {thread_id} itself has ended well; then: rye threads pull {thread_id}"
        )
        raise
    tell(pulled.render())
    return evolve(done, metadata={**done.metadata, "pull": pulled.to_dict()})


async def _execute_fork(
    rye: Rye,
    ref: str,
    inputs: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    has_models: bool,
    is_shown: bool,
) -> ExecutionResult:
    """Run a directive in a thread, and wait for it unless it is asynchronous."""
    if not has_models and options["target"] == "local":
        # Other errors of the call are reported first.
        await rye.execute(
            ref, inputs, **{**options, "dry_run": True, "async_": False, "idempotency_key": None}
        )
        raise missing_models()
    if options["async_"] or options["timeout_s"] is not None or ref.startswith("tool:"):
        return await rye.execute(ref, inputs, **options)
    from ryecore.cli.live import thread_to_its_end  # noqa: PLC0415 - only for threads

    return await thread_to_its_end(
        rye,
        lambda ctx: rye.start(
            ref,
            inputs,
            target=options["target"],
            pull=options["pull"],
            model=options["model"],
            limits=options["limits"],
            idempotency_key=options["idempotency_key"],
            labels=options["labels"],
            ctx=ctx,
        ),
        is_shown=is_shown,
    )
