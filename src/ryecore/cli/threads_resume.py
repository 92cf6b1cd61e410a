"""`rye threads resume`, `fork`, `handoff` and `recover`: continue what has ended, runs or died."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import click

from ryecore.actions.recovering import Recovered
from ryecore.actions.threads import Threads
from ryecore.cli.live import thread_to_its_end, to_its_end
from ryecore.cli.opening import (
    deps_option,
    models_of,
    opened_with_models,
    run_until_stopped,
    with_project,
    with_threads,
)
from ryecore.cli.options import json_option, limit_option, project_option, read_overrides
from ryecore.cli.output import EXIT_FAILED, show, show_json, show_result
from ryecore.display.live import can_redraw
from ryecore.display.text import StyledText, status_mark
from ryecore.errors import RyeError
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.thread import Thread

__all__ = ["fork", "handoff", "recover", "resume"]

_limit_option = limit_option("A limit, such as turns=8; repeatable.")


@click.command(short_help="Continue a thread that has ended.")
@click.argument("thread_id", metavar="ID")
@click.argument("message", required=False, default="")
@click.option("--again", is_flag=True, help="Resume it although another thread did so already.")
@_limit_option
@deps_option
@project_option
@json_option
def resume(
    thread_id: str,
    message: str,
    again: bool,
    limits: Sequence[str],
    deps: str | None,
    project_path: str,
    as_json: bool,
) -> None:
    """Continue a thread that has ended or was killed, in a new one.

    MESSAGE is the next message to the model; by default, that it was interrupted. A tool that ran
    when its process was killed is not repeated by itself. A thread is resumed once; after that,
    resume its continuation.
    """
    overrides = read_overrides(limits)
    _run(
        thread_id,
        lambda threads, ctx: threads.start_resume(
            thread_id, message, again=again, limits=overrides, ctx=ctx
        ),
        project_path,
        deps,
        as_json=as_json,
    )


@click.command(short_help="Continue from an earlier turn of a thread.")
@click.argument("thread_id", metavar="ID")
@click.argument("message", required=False, default="")
@click.option("--at", type=int, required=True, metavar="TURN", help="The last turn that is kept.")
@_limit_option
@deps_option
@project_option
@json_option
def fork(
    thread_id: str,
    message: str,
    at: int,
    limits: Sequence[str],
    deps: str | None,
    project_path: str,
    as_json: bool,
) -> None:
    """Run a new thread that begins after a turn of another one.

    It has an account of its own, none of the other's children, and at most what the other might
    do. MESSAGE is its next message to the model.
    """
    overrides = read_overrides(limits)
    _run(
        thread_id,
        lambda threads, ctx: threads.start_fork(
            thread_id, at=at, message=message, limits=overrides, ctx=ctx
        ),
        project_path,
        deps,
        as_json=as_json,
    )


@click.command(short_help="Hand a running thread's work to a new thread.")
@click.argument("thread_id", metavar="ID")
@project_option
@json_option
def handoff(thread_id: str, project_path: str, as_json: bool) -> None:
    """Ask a running thread to hand its work to a new thread at its next turn.

    The new thread gets the end of the conversation, and what is left of the budget.
    """
    report = with_threads(project_path, lambda threads: threads.hand_off(thread_id))
    if as_json:
        show_json(report.to_dict())
        return
    text = StyledText()
    text.line(status_mark("running"), (report.thread_id, "id"), ("  asked to hand off", "dim"))
    text.line(("  next    ", "dim"), f"rye threads watch {report.thread_id}")
    show(text)


def _run(
    thread_id: str,
    start: "Callable[[Threads, CallContext], Awaitable[Thread]]",
    project_path: str,
    deps: str | None,
    *,
    as_json: bool,
) -> None:
    async def run() -> "ThreadResult":
        # A thread without a conversation is refused as such, with or without models.
        opened = opened_with_models(project_path, deps) if is_directive else Rye.open(project_path)
        async with opened as rye:
            return await thread_to_its_end(
                rye,
                lambda ctx: start(rye.threads, ctx),
                is_shown=not as_json and can_redraw(sys.stderr),
            )

    shown = with_threads(project_path, lambda threads: threads.show(thread_id))
    is_directive = shown.record.item_id.startswith("directive:")
    done = run_until_stopped(run)
    show_result(done, as_json=as_json)
    if not done.success:
        sys.exit(EXIT_FAILED)


# All that died


@click.command(short_help="Resume all threads and graphs whose process died.")
@click.option("--dry-run", is_flag=True, help="Only show what would be resumed.")
@limit_option("A limit of each, such as turns=8; repeatable.")
@deps_option
@project_option
@json_option
def recover(
    dry_run: bool, limits: Sequence[str], deps: str | None, project_path: str, as_json: bool
) -> None:
    """Resume all threads of directives and runs of graphs whose process died; wait for their ends.

    Those that were stopped, were resumed already or have a parent are left out.
    What can't be resumed, such as a graph whose tool may have had its effect, is listed with what
    to do. Of several processes that recover at once, one resumes each.
    """
    overrides = read_overrides(limits)

    async def run(rye: Rye) -> list[_Shown]:
        found = await rye.recover(dry_run=dry_run, limits=overrides)
        return await to_its_end(_All(found), None)

    done = with_project(project_path, run, models_of(deps, are_wanted=True))
    is_well = all(one.is_well for one in done)
    if as_json:
        show_json({
            "status": "success" if is_well else "error",
            "dry_run": dry_run,
            "recovered": [one.document for one in done],
        })  # fmt: skip
    else:
        text = StyledText()
        for one in done:
            text.add(one.text)
        if not done:
            text.line(("Nothing to resume: no thread or run has lost its process.", "dim"))
        show(text)
    if not is_well:
        sys.exit(EXIT_FAILED)


@frozen
class _Shown:
    """The outcome of a recovered thread, as a document and as text."""

    document: dict[str, object]
    text: StyledText
    is_well: bool


class _All:
    """All resumed threads and runs, awaited and stopped as one."""

    def __init__(self, found: Sequence[Recovered]) -> None:
        self._found = found

    async def result(self) -> list[_Shown]:
        return [await _ended(one) for one in self._found]

    async def cancel(self) -> None:
        for one in self._found:
            if one.run is not None:
                await one.run.cancel()


async def _ended(one: Recovered) -> _Shown:
    """Wait for the end of a resumed thread or run."""
    document, text = one.to_dict(), one.render()
    if one.run is None:
        return _Shown(document, text, one.error is None)
    try:
        result = await one.run.result()
    except RyeError as error:
        text.line("  ", (str(error), "bad"))
        return _Shown({**document, "result": error.to_dict()}, text, False)
    text.add(result.render())
    return _Shown({**document, "result": result.to_dict()}, text, result.success)
