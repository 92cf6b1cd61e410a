"""Trees of threads while they run: drawn in place at a terminal, or a line for each change."""

import time
from collections.abc import Mapping
from typing import Final

from ryecore.cli.output import show
from ryecore.display.live import LiveText, size_of
from ryecore.display.text import StyledText
from ryecore.threads.rendering import render_change, render_tree
from ryecore.threads.tree_node import TreeNode

__all__ = ["ChangeLines", "LiveTree"]

_OTHER_ROWS: Final = 9
"""The rows that a tree needs besides its threads: head, totals, notes, and the cursor's."""


class LiveTree(LiveText):
    """A tree of threads that is drawn over the one before."""

    def draw(self, tree: TreeNode) -> None:
        """Draw the current state of the threads."""
        columns, rows = size_of(self._out)
        most = max(rows - _OTHER_ROWS, 1)
        self.redraw(render_tree([tree], width=columns, now=time.time(), max_rows=most))


class ChangeLines:
    """A line for each change of a thread, for outputs other than terminals.

    It began, took a turn, waits for an approval, or ended.
    """

    def __init__(self) -> None:
        self._known: Mapping[str, tuple[object, ...]] = {}

    def draw(self, tree: TreeNode) -> None:
        """Print what has changed since the last time."""
        now = {one.thread_id: (one.status, one.turns, one.approvals) for one in tree.walk()}
        text = StyledText()
        for one in tree.walk():
            if self._known.get(one.thread_id) != now[one.thread_id]:
                text.line(*render_change(one, now=time.time()))
        self._known = now
        if text.lines:
            show(text)
