"""A graph's run while it goes on: drawn in place on a terminal, else told line by line."""

import os
import sys
import time
from contextlib import suppress
from typing import Final

import anyio

from ryecore.cli.live import LiveText, can_redraw, size_of, to_its_end
from ryecore.cli.output import tell
from ryecore.display.text import StyledText
from ryecore.errors import RyeError
from ryecore.graph.live import ProgressLines, render_live
from ryecore.graph.projection import RunSight
from ryecore.graph.result import GraphResult
from ryecore.graph.run import GraphRun
from ryecore.policy.budget import NOTHING, Amount

__all__ = ["graph_to_its_end"]

_QUIET: Final = "RYE_GRAPH_QUIET"
_OTHER_ROWS: Final = 4
_DRAW_EVERY_S: Final = 0.1
_COUNT_EVERY_S: Final = 1.0


async def graph_to_its_end(run: GraphRun, *, quiet: bool) -> GraphResult:
    """Wait for a run's end, in view of whoever sits at the terminal.

    Args:
        run: The run.
        quiet: Whether nothing is told; nor is it where RYE_GRAPH_QUIET is 1.

    Raises:
        RyeError: It ended, but that could not be written.
        KeyboardInterrupt: There was a second signal.
    """
    if quiet or sys.stderr is None or os.environ.get(_QUIET) == "1":
        return await to_its_end(run, None)

    async def view() -> None:
        with suppress(RyeError):
            if can_redraw(sys.stderr):
                await _draw(run)
            else:
                await _tell(run)

    return await to_its_end(run, view)


async def _tell(run: GraphRun) -> None:
    lines = ProgressLines(len(run.graph.nodes))
    async for event in run.events():
        line = lines.line(event)
        if line is not None:
            text = StyledText()
            text.line(line)
            tell(text)


async def _draw(run: GraphRun) -> None:
    sight = RunSight()
    with LiveText(sys.stderr) as live:
        cost, counted_at = NOTHING, 0.0

        def draw() -> None:
            nonlocal cost, counted_at
            if time.monotonic() - counted_at >= _COUNT_EVERY_S:
                cost, counted_at = _cost(run), time.monotonic()
            columns, rows = size_of(sys.stderr)
            live.redraw(
                render_live(
                    run.graph,
                    sight.seen(),
                    width=columns - 1,
                    rows=max(rows - _OTHER_ROWS, 1),
                    now=time.time(),
                    cost=cost,
                )
            )

        async def keep_drawing() -> None:
            while True:
                draw()
                await anyio.sleep(_DRAW_EVERY_S)

        async with anyio.create_task_group() as drawing:
            drawing.start_soon(keep_drawing)
            try:
                async for event in run.events():
                    sight.take(event)
            finally:
                drawing.cancel_scope.cancel()
        counted_at = 0.0
        draw()


def _cost(run: GraphRun) -> Amount:
    with suppress(RyeError):
        return run.cost
    return NOTHING
