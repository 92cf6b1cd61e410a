"""The tree of a thread and all that it has started: what is drawn of it."""

import time
from collections.abc import Iterator

from attrs import field, frozen

from ryecore.policy.limits import Limits
from ryecore.state.model import MICROCENTS_PER_USD, Status, has_ended

__all__ = ["TreeNode"]


@frozen
class TreeNode:
    """A thread, and the threads that it has started.

    Attributes:
        thread_id: Its id.
        item_id: What runs in it, as a canonical ref.
        status: Where it stands.
        turns: Turns that its model took.
        tokens: Tokens that it read and wrote itself.
        spend_microcents: What it spent itself, in units of 1e-8 USD.
        limits: What it may use; tokens and spend together with all below it.
        started_at: When it was made, in seconds since 1970 (UTC).
        ended_at: When it ended; None while it runs.
        children: The threads that it has started, oldest first; of the root of a tree, also those
            that continue it.
        model: The model that it uses.
        note: What else is to be said of it, such as why it failed.
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

    @property
    def ended(self) -> bool:
        """Whether it has ended; those below it may still run."""
        return has_ended(self.status)

    def to_dict(self) -> dict[str, object]:
        """The thread and all below it as a JSON-ready object."""
        return {
            "thread_id": self.thread_id,
            "item_id": self.item_id,
            "status": self.status,
            "model": self.model,
            "turns": self.turns,
            "tokens": self.tokens,
            "spend": self.spend_microcents / MICROCENTS_PER_USD,
            "limits": self.limits.to_dict(),
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "note": self.note,
            "children": [one.to_dict() for one in self.children],
        }

    def walk(self) -> Iterator["TreeNode"]:
        """The thread and all below it, each before those that it has started."""
        waiting: list[TreeNode] = [self]
        while waiting:
            one = waiting.pop()
            yield one
            waiting.extend(reversed(one.children))

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - for notebooks alone
        from ryecore.threads.view.picture import tree_picture  # noqa: PLC0415

        return to_html(tree_picture([self], now=time.time()))
