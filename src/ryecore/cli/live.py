"""The live views of runs at a terminal: drawn in place, or a line for each change."""

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio

from ryecore.cli.live_tree import LiveTree
from ryecore.cli.output import tell
from ryecore.cli.questions import ApprovalQuestions
from ryecore.cli.reports import progress_after
from ryecore.display.live import LiveText, can_redraw, size_of
from ryecore.display.text import StyledText, cut
from ryecore.errors import RyeError
from ryecore.policy import CallContext
from ryecore.policy.budget import NOTHING, Amount
from ryecore.rye import Rye

if TYPE_CHECKING:
    from ryecore.graph.result import GraphResult
    from ryecore.graph.run import GraphRun
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.thread import Thread

__all__ = [
    "graph_to_its_end",
    "thread_to_its_end",
    "to_its_end",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LAST_LOOK_S: Final = 2.0
"""How long the end of a thread may take to be drawn."""
_QUIET: Final = "RYE_GRAPH_QUIET"
_ROWS_BESIDE_NODES: Final = 5
_DRAW_EVERY_S: Final = 0.1
_COUNT_EVERY_S: Final = 1.0


async def thread_to_its_end(
    rye: Rye, start: "Callable[[CallContext], Awaitable[Thread]]", *, is_shown: bool
) -> "ThreadResult":
    """Start a thread and wait for its end, with a live view at a terminal if `is_shown`.

    Calls that wait for an approval are asked about at a terminal; elsewhere the command is printed.
    The first signal asks it and all below it to stop, and its result is still returned; a second
    one raises KeyboardInterrupt at once.
    """
    thread = await start(CallContext())

    async def view() -> None:
        with ExitStack() as stack:
            live = stack.enter_context(LiveTree(sys.stderr)) if is_shown else None
            questions = ApprovalQuestions(rye, live)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(questions.answer)
                with suppress(RyeError):
                    await rye.threads.watch(thread.thread_id, questions.draw)
                questions.end()

    return await to_its_end(thread, view if sys.stderr is not None else None)


class Handle(Protocol[T_co]):
    """The handle of a run."""

    async def result(self) -> T_co:
        """Wait for its end."""
        ...

    async def cancel(self) -> None:
        """Ask it, and all below it, to stop."""
        ...


async def to_its_end(handle: Handle[T], view: Callable[[], Awaitable[None]] | None) -> T:
    """Wait for the end of a run, with a view of it where one is passed.

    The first signal asks it and all below it to stop, and its result is still returned; a second
    one raises KeyboardInterrupt at once.
    """
    result: list[T] = []
    failed: RyeError | None = None
    told = 0
    seen = anyio.Event()
    wanted = [one for one in _STOPPING if signal.getsignal(one) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*wanted) as signals:
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                nonlocal told
                async for _ in signals:
                    told += 1
                    if told > 1:
                        tasks.cancel_scope.cancel()
                        return
                    await handle.cancel()

            async def look() -> None:
                if view is not None:
                    await view()
                seen.set()

            tasks.start_soon(listen)
            tasks.start_soon(look)
            try:
                result.append(await handle.result())
            except RyeError as error:  # which the group would wrap
                failed = error
            if view is not None:
                with anyio.move_on_after(_LAST_LOOK_S):
                    await seen.wait()
            tasks.cancel_scope.cancel()
    if not result:
        raise failed or KeyboardInterrupt
    return result[0]


# A graph's run


async def graph_to_its_end(run: "GraphRun", *, quiet: bool) -> "GraphResult":
    """Wait for a run's end, with a live view unless `quiet` is set or RYE_GRAPH_QUIET is 1."""
    if quiet or sys.stderr is None or os.environ.get(_QUIET) == "1":
        return await to_its_end(run, None)

    async def view() -> None:
        with suppress(RyeError):
            if can_redraw(sys.stderr):
                await _draw(run)
            else:
                await _tell(run)

    return await to_its_end(run, view)


async def _tell(run: "GraphRun") -> None:
    from ryecore.graph.live import ProgressLines  # noqa: PLC0415 - only to run graphs

    lines = ProgressLines(len(run.graph.nodes))
    async for event in run.events():
        line = lines.line(event)
        if line is not None:
            text = StyledText()
            text.line(line)
            tell(text)


async def _draw(run: "GraphRun") -> None:
    from ryecore.graph.live import render_live  # noqa: PLC0415 - only to run graphs
    from ryecore.graph.projection import RunProjection  # noqa: PLC0415

    projection = RunProjection()
    with LiveText(sys.stderr) as live:
        cost, counted_at, told = NOTHING, 0.0, ""

        async def draw() -> None:
            nonlocal cost, counted_at
            if time.monotonic() - counted_at >= _COUNT_EVERY_S:
                cost, counted_at = await _cost(run), time.monotonic()
            columns, rows = size_of(sys.stderr)
            text = render_live(
                run.graph,
                projection.snapshot(),
                width=columns - 1,
                rows=max(rows - _ROWS_BESIDE_NODES, 1),
                now=time.time(),
                cost=cost,
            )
            if told:
                text.line((cut(f"  {told}", columns - 1), "dim"))
            live.redraw(text)

        async def keep_drawing() -> None:
            while True:
                await draw()
                await anyio.sleep(_DRAW_EVERY_S)

        async with anyio.create_task_group() as drawing:
            drawing.start_soon(keep_drawing)
            try:
                async for event in run.events():
                    projection.take(event)
                    told = progress_after(event, told)
            finally:
                drawing.cancel_scope.cancel()
        counted_at, told = 0.0, ""
        await draw()


async def _cost(run: "GraphRun") -> Amount:
    with suppress(RyeError):
        return await run.cost()
    return NOTHING
