"""A thread in a tree, with the threads that it has started."""

import time
from collections.abc import Iterator
from typing import Final

from attrs import field

from ryecore.convert.money import write_usd
from ryecore.display.text import approval_words
from ryecore.frozen import frozen
from ryecore.policy.limits import Limits
from ryecore.state.approvals import ThreadApproval
from ryecore.state.model import Status, has_ended

__all__ = ["TreeNode"]

_COLUMNS: Final = 80


@frozen
class TreeNode:
    """A thread, and the threads that it has started.

    Attributes:
        thread_id: Its id.
        item_id: Its item, as a canonical ref.
        status: Its status.
        turns: The turns of its model.
        tokens: Its own input and output tokens.
        spend_microcents: Its own spending, in units of 1e-8 USD.
        limits: Its limits; tokens and spend include all below it.
        started_at: When it was registered, in seconds since 1970 (UTC).
        ended_at: When it ended; None while it runs.
        children: The threads that it has started, oldest first; of the root of a tree, also those
            that continue it: where it was handed off, or resumed.
        model: The model that it uses.
        note: A note, such as why it failed.
        approvals: The calls of its tools that wait for a person's approval.
    """

    thread_id: str
    item_id: str
    status: Status
    turns: int = 0
    tokens: int = 0
    spend_microcents: int = 0
    limits: Limits = field(factory=Limits)
    started_at: float = 0.0
    ended_at: float | None = None
    children: tuple["TreeNode", ...] = ()
    model: str | None = None
    note: str = ""
    approvals: tuple[ThreadApproval, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether it has ended; threads below it may still run."""
        return has_ended(self.status)

    @property
    def waits_for(self) -> tuple[str, str] | None:
        """What it waits for a person to approve, and the command; None where it doesn't wait."""
        if not self.approvals:
            return None
        return approval_words(self.thread_id, [one.tool_name for one in self.approvals])

    def to_dict(self) -> dict[str, object]:
        """Return the thread and all below it as a JSON-ready object."""
        return {
            "thread_id": self.thread_id,
            "item_id": self.item_id,
            "status": self.status,
            "model": self.model,
            "turns": self.turns,
            "tokens": self.tokens,
            "spend": write_usd(self.spend_microcents),
            "limits": self.limits.to_dict(),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "note": self.note,
            **({"approvals": [one.to_dict() for one in self.approvals]} if self.approvals else {}),
            "children": [one.to_dict() for one in self.children],
        }

    def walk(self) -> Iterator["TreeNode"]:
        """Yield the thread and all below it, each before its children."""
        waiting: list[TreeNode] = [self]
        while waiting:
            one = waiting.pop()
            yield one
            waiting.extend(reversed(one.children))

    def __str__(self) -> str:
        from ryecore.threads.rendering import render_tree  # noqa: PLC0415 - only to be shown

        return render_tree([self], width=_COLUMNS, now=time.time()).plain()

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - only for notebooks
        from ryecore.threads.picture import tree_picture  # noqa: PLC0415

        return to_html(tree_picture([self], now=time.time()))
