"""A run that goes on, for a notebook: as far as its journal is read at once."""

import time
from pathlib import Path
from typing import Final

from ryecore.display import to_html
from ryecore.display.text import StyledText
from ryecore.errors import StateError
from ryecore.graph.journal.events import event_of
from ryecore.graph.model import Graph
from ryecore.graph.view.live import render_live
from ryecore.graph.view.picture import graph_picture
from ryecore.graph.view.seen import RunSight
from ryecore.state.transcript_check import read_records

__all__ = ["run_html"]

_MOST_S: Final = 0.2
_WIDTH: Final = 80
_ROWS: Final = 40


def run_html(graph: Graph, run_id: str, journal: Path) -> str:
    """Draw how a run stands. It neither waits nor raises.

    Args:
        graph: Its graph.
        run_id: The run.
        journal: Its journal's file.
    """
    sight, notes = RunSight(), StyledText()
    until = time.monotonic() + _MOST_S
    try:
        for record in read_records(journal):
            sight.take(event_of(record))
            if time.monotonic() > until:
                notes.line(("  its journal is longer than what is read here", "warn"))
                break
    except StateError as problem:
        notes.line((f"  {problem.message}", "warn"))
    seen = sight.seen()
    text = render_live(graph, seen, width=_WIDTH, rows=_ROWS, now=time.time())
    text.line("  ", (f"run {run_id}", "dim"))
    text.add(notes)
    return to_html(graph_picture(graph, seen)) + text.html()
