"""The handle of a directive's thread."""

import time
from typing import Final

from ryecore.display.text import StyledText
from ryecore.policy.budget import Amount
from ryecore.runs.handle import RunHandle, progress_in
from ryecore.state.model import ThreadRecord
from ryecore.threads.rendering import render_tree
from ryecore.threads.result import ThreadResult, kept_result
from ryecore.threads.tree import load_tree
from ryecore.threads.tree_node import TreeNode

__all__ = ["Thread"]

_COLUMNS: Final = 80
_MOST_WAIT_S: Final = 0.2


class Thread(RunHandle[ThreadResult]):
    """The handle of a directive's thread: its events, its result, its cost, a way to stop it.

    `Rye.start` makes it. The thread needs no listener. It runs until it ends, is cancelled, or the
    Rye that started it is closed.

    Attributes:
        item_id: The directive, as a canonical ref.
    """

    @property
    def thread_id(self) -> str:
        """Its id, for `rye.threads` and `rye threads`."""
        return self._run_id

    @property
    def _resume_command(self) -> str:
        return f"rye threads resume {self._run_id}"

    async def _read_result(self, record: ThreadRecord, total: Amount) -> ThreadResult:
        return kept_result(record, await self._host.registry.get_result(record.thread_id), total)

    async def render(self, *, width: int = _COLUMNS) -> StyledText:
        """Render the thread and all below it, with their use and limits.

        Args:
            width: The width in columns.
        """
        tree = await load_tree(self._host.store, self.thread_id, progress_of=self._progress_of)
        return render_tree([tree], width=width, now=time.time())

    def __str__(self) -> str:
        found = self._glance()
        if isinstance(found, StyledText):
            return found.plain()
        return render_tree([found], width=_COLUMNS, now=time.time()).plain()

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - only for notebooks
        from ryecore.threads.picture import tree_picture  # noqa: PLC0415

        found = self._glance()
        if isinstance(found, StyledText):
            return found.html()
        return to_html(tree_picture([found], now=time.time()))

    def _progress_of(self, run_id: str) -> str:
        return progress_in(self._host, run_id)

    def _glance(self) -> TreeNode | StyledText:
        """Return the tree, for a rendering that may not wait; or a line that tells why not.

        A notebook renders it between two cells: nothing is settled.
        """
        store = self._host.store
        try:
            with store.quiet(_MOST_WAIT_S) as is_quiet:
                if is_quiet:
                    load = load_tree(
                        store, self.thread_id, settles=False, progress_of=self._progress_of
                    )
                    return store.run_now(load)
            why = "its registry is busy"
        except Exception as problem:  # of any kind: rendering must not break a run
            why = f"its registry can't be read: {problem}"
        text = StyledText()
        text.line((self.item_id, "strong"), "  ", (self.thread_id, "id"), (f"  {why}", "warn"))
        return text
