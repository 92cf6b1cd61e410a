"""The commands of `rye threads`: list, show, wait for, stop and draw threads."""

import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import anyio
import click

from ryecore.actions.threads import ThreadReport, Threads
from ryecore.cli.groups import HintedGroup
from ryecore.cli.live_tree import ChangeLines, LiveTree
from ryecore.cli.opening import with_threads
from ryecore.cli.options import json_option, page_options, project_option
from ryecore.cli.output import (
    EXIT_FAILED,
    errors_shown,
    show,
    show_json,
    show_piece,
    show_result,
    tell,
)
from ryecore.cli.pictures import Drawing, drawing_options
from ryecore.cli.threads_approvals import approvals, approve, deny
from ryecore.cli.threads_records import adopt, prune, pull, replay, verify
from ryecore.cli.threads_resume import fork, handoff, recover, resume
from ryecore.cli.threads_transcript import transcript
from ryecore.display.live import can_redraw
from ryecore.display.text import StyledText, thread_line
from ryecore.errors import RyeError
from ryecore.threads.rendering import render_page, render_tree
from ryecore.threads.tree_node import TreeNode

__all__ = ["threads"]

_MAX_ROWS: Final = 200
_MAX_TREES: Final = 20
_FOLLOW_S: Final = 60.0


@click.group(cls=HintedGroup, short_help="List, stop and continue threads and detached tools.")
def threads() -> None:
    """See, stop, verify and continue the threads of directives and of detached tools.

    An id may be shortened to any beginning that only one thread has, or to such an end of four or
    more characters.
    """


@threads.command("list")
@click.option("--all", "ended_too", is_flag=True, help="List ended threads too, newest first.")
@page_options
@click.option(
    "--after", metavar="ID", help="Begin behind this thread, the last of the page before."
)
@project_option
@json_option
def list_threads(
    ended_too: bool, limit: int, offset: int, after: str | None, project_path: str, as_json: bool
) -> None:
    """List the threads that have not ended."""
    found = with_threads(
        project_path,
        lambda threads: threads.list(all=ended_too, limit=limit, offset=offset, after=after),
    )
    if as_json:
        rows = [dict(one.to_dict()) for one in found]
        page = {"total": found.total, "next_after": found.next_after}
        show_json({"status": "success", "threads": rows, **page})
        return
    none = "no threads" if ended_too else "no running threads; list ended ones with --all"
    again = "rye threads list --all" if ended_too else "rye threads list"
    if after is None:
        show(render_page(found, none, limit, offset, again))
        return
    text = render_page(found, none, limit, found.total, again)
    if found.next_after is not None:
        size = "" if limit == 50 else f" --limit {limit}"
        text.line((f"more follow; see them: {again}{size} --after {found.next_after}", "dim"))
    show(text)


@threads.command("show", short_help="Show a thread and its result.")
@click.argument("thread_id", metavar="ID")
@drawing_options
@project_option
@json_option
def show_thread(thread_id: str, project_path: str, drawing: Drawing, as_json: bool) -> None:
    """Show a thread and its result; as a picture, with all threads that it has started."""
    if drawing.is_wanted:
        found = with_threads(project_path, lambda threads: threads.tree(thread_id))
        drawing.show_threads([found])
        return
    report = with_threads(project_path, lambda threads: threads.show(thread_id))
    show_result(report, as_json=as_json)


@threads.command("wait", short_help="Wait until threads have ended.")
@click.argument("thread_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Seconds to wait at most.")
@project_option
@json_option
def wait_threads(
    thread_ids: Sequence[str], timeout_s: float | None, project_path: str, as_json: bool
) -> None:
    """Wait until threads have ended; exits with 0 when all of them went well.

    Of a thread that another one continues, the last one is waited for and shown.
    """

    async def wait(threads: Threads) -> list[ThreadReport]:
        reports: dict[str, ThreadReport] = {}
        refusals: list[RyeError] = []

        async def wait_for(thread_id: str) -> None:
            try:
                reports[thread_id] = await threads.wait(thread_id, timeout_s=timeout_s, last=True)
            except RyeError as error:  # which a task group would wrap
                refusals.append(error)
                waiting.cancel_scope.cancel()

        async with anyio.create_task_group() as counting:
            if sys.stderr.isatty() and not as_json:
                counting.start_soon(_count_seconds, len(thread_ids), reports)
            async with anyio.create_task_group() as waiting:
                for thread_id in thread_ids:
                    waiting.start_soon(wait_for, thread_id)
            counting.cancel_scope.cancel()
        if refusals:
            raise refusals[0]
        return [reports[thread_id] for thread_id in thread_ids]

    reports = with_threads(project_path, wait)
    if as_json:
        show_json({"status": "success", "threads": [one.to_dict() for one in reports]})
    else:
        for report in reports:
            show(report.render())
    if any(report.status != "completed" for report in reports):
        sys.exit(EXIT_FAILED)


@threads.command("cancel")
@click.argument("thread_ids", metavar="ID...", nargs=-1, required=True)
@project_option
@json_option
def cancel_threads(thread_ids: Sequence[str], project_path: str, as_json: bool) -> None:
    """Ask threads, and all below them, to stop."""
    _stop(thread_ids, project_path, lambda threads, one: threads.cancel(one), as_json=as_json)


@threads.command("kill", short_help="Kill threads and their processes.")
@click.argument("thread_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--grace",
    "grace_s",
    default=3.0,
    show_default=True,
    help="Seconds that they may take to end by themselves.",
)
@project_option
@json_option
def kill_threads(
    thread_ids: Sequence[str], grace_s: float, project_path: str, as_json: bool
) -> None:
    """Kill threads, their processes, and what their tools have started."""
    _stop(
        thread_ids,
        project_path,
        lambda threads, one: threads.kill(one, grace_s=grace_s),
        as_json=as_json,
    )


@threads.command("log")
@click.argument("thread_id", metavar="ID")
@click.option("-f", "--follow", is_flag=True, help="Continue until the thread has ended.")
@project_option
def show_log(thread_id: str, follow: bool, project_path: str) -> None:
    """Print what a thread's tool has printed so far."""

    async def print_log(threads: Threads) -> None:
        offset, has_printed = 0, False
        while True:
            report = await threads.show(thread_id)  # before the last look at the log
            is_last = report.ended or not follow
            wait_s = 0.0 if is_last else _FOLLOW_S
            text, offset = await threads.log(thread_id, offset=offset, wait_s=wait_s)
            show_piece(text)
            has_printed = has_printed or bool(text)
            if is_last and not text:
                if not has_printed:
                    _point_to_records(report)
                return

    with errors_shown(as_json=False):
        with_threads(project_path, print_log)


def _point_to_records(report: ThreadReport) -> None:
    """Print where the records of a thread or run without a log are."""
    is_directive = report.record.item_id.startswith("directive:")
    if not is_directive and report.record.transcript_head is None:
        return
    command = "rye threads transcript" if is_directive else "rye graph show"
    text = StyledText()
    text.line(("no log; its records: ", "dim"), f"{command} {report.thread_id}")
    tell(text)


def _stop(
    thread_ids: Sequence[str],
    project_path: str,
    stop: Callable[[Threads, str], Awaitable[ThreadReport]],
    *,
    as_json: bool,
) -> None:
    async def stop_all(threads: Threads) -> list[ThreadReport]:
        found = [await threads.show(thread_id) for thread_id in thread_ids]  # all, or none
        return [await stop(threads, report.thread_id) for report in found]

    reports = with_threads(project_path, stop_all)
    if as_json:
        show_json({"status": "success", "threads": [one.to_dict() for one in reports]})
        return
    text = StyledText()
    for report in reports:
        spans = thread_line(report.record)
        text.line(*spans, *([] if report.ended else [("  asked to stop", "dim")]))
    show(text)


async def _count_seconds(total: int, ended: Mapping[str, object]) -> None:
    """Show on a terminal how long the wait lasts."""
    started = anyio.current_time()
    try:
        while True:
            seconds = int(anyio.current_time() - started)
            sys.stderr.write(f"\r{len(ended)} of {total} ended, waited {seconds} s ")
            sys.stderr.flush()
            await anyio.sleep(1)
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


# Trees


@threads.command(short_help="Draw threads with all that they have started.")
@click.argument("thread_id", metavar="[ID]", required=False)
@drawing_options
@project_option
@json_option
def tree(thread_id: str | None, project_path: str, drawing: Drawing, as_json: bool) -> None:
    """Draw a thread, or all that run, with what each has used of its limits."""

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
        text.line("no running threads; list ended ones with: rye threads list --all")
        show(text)


@threads.command(short_help="Draw a thread's tree while it runs.")
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


for _command in (
    *(tree, watch, transcript, verify, pull, replay),
    *(resume, recover, fork, handoff, adopt, prune),
    *(approvals, approve, deny),
):
    threads.add_command(_command)
