"""The choice of a tree's rows, where not all threads fit."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ryecore.frozen import frozen
from ryecore.state.model import Status

if TYPE_CHECKING:
    from ryecore.threads.tree_node import TreeNode

__all__ = ["STATUS_ORDER", "TreeRow", "rows_of"]

STATUS_ORDER: Final[tuple[Status, ...]] = (
    "created", "running", "completed", "continued", "error", "killed", "cancelled",
)  # fmt: skip
"""The order of statuses in counts."""

_INTEREST: Final[dict[Status, int]] = {
    "running": 0, "created": 1, "error": 2, "killed": 2, "cancelled": 3, "continued": 4,
    "completed": 5,
}  # fmt: skip


@frozen
class TreeRow:
    """One row of a drawn tree, after its guide lines: a thread, or those that are left out here.

    Tokens and spending count a thread together with all below it.
    """

    guides: str
    node: "TreeNode | None"
    tokens: int = 0
    spend_microcents: int = 0
    left_out: tuple[Status, ...] = ()

    def count_left_out(self) -> str:
        """Return how many threads of each status are left out here."""
        counts = Counter(self.left_out)
        return ", ".join(f"{counts[one]} {one}" for one in STATUS_ORDER if counts[one])


class _Flat:
    """A forest as lists, each thread before those that it has started."""

    def __init__(self, roots: Sequence["TreeNode"]) -> None:
        self.nodes: list[TreeNode] = []
        self.parents: list[int | None] = []
        self.children: list[list[int]] = []
        waiting: list[tuple[TreeNode, int | None]] = [(one, None) for one in reversed(roots)]
        while waiting:
            node, parent = waiting.pop()
            at = len(self.nodes)
            self.nodes.append(node)
            self.parents.append(parent)
            self.children.append([])
            if parent is not None:
                self.children[parent].append(at)
            waiting.extend((child, at) for child in reversed(node.children))
        self.tokens = [one.tokens for one in self.nodes]
        self.spend = [one.spend_microcents for one in self.nodes]
        for at in range(len(self.nodes) - 1, -1, -1):
            parent = self.parents[at]
            if parent is not None:
                self.tokens[parent] += self.tokens[at]
                self.spend[parent] += self.spend[at]

    def chosen(self, most: int) -> set[int]:
        """Choose the threads to draw: the most interesting ones, and their ancestors."""
        if len(self.nodes) <= most:
            return set(range(len(self.nodes)))
        chosen: set[int] = set()
        hidden = [len(one) for one in self.children]
        lines = 1 if self.parents.count(None) > 1 else 0  # for threads left out at the top
        for at in sorted(range(len(self.nodes)), key=self._interest):
            path: list[int] = []
            one: int | None = at
            while one is not None and one not in chosen:
                path.append(one)
                one = self.parents[one]
            # Each is a line, as is its count of left-out children; its parent leaves out one less.
            more = len(path) + sum(1 for each in path[1:] if hidden[each] > 1)
            more += 1 if path and hidden[path[0]] else 0
            more -= 1 if path and one is not None and hidden[one] == 1 else 0
            if lines + more > most and chosen:
                continue
            lines += more
            for each in path:
                chosen.add(each)
                parent = self.parents[each]
                if parent is not None:
                    hidden[parent] -= 1
        return chosen

    def _interest(self, at: int) -> tuple[int, float]:
        node = self.nodes[at]
        since = node.started_at if node.ended_at is None else node.ended_at
        return (-1 if node.approvals else _INTEREST[node.status], -since)

    def below(self, at: int) -> Iterator[Status]:
        """Yield the statuses of a thread and all below it."""
        waiting = [at]
        while waiting:
            one = waiting.pop()
            yield self.nodes[one].status
            waiting.extend(self.children[one])


def rows_of(roots: Sequence["TreeNode"], max_rows: int) -> list[TreeRow]:
    """Return the rows of a forest, from the top; at least one thread, with its ancestors.

    Of a larger forest, threads that wait for an approval come first, then running ones, then failed
    ones, then the last that ended; each with its ancestors.
    """
    flat = _Flat(roots)
    chosen = flat.chosen(max(max_rows, 1))
    rows: list[TreeRow] = []
    tops = [at for at, parent in enumerate(flat.parents) if parent is None]
    waiting: list[tuple[int | list[int], str, str]] = []

    def plan(siblings: list[int], guides: str, *, is_top: bool) -> None:
        shown: list[int | list[int]] = [one for one in siblings if one in chosen]
        left_out = [one for one in siblings if one not in chosen]
        if left_out:
            shown.append(left_out)
        planned: list[tuple[int | list[int], str, str]] = []
        for place, one in enumerate(shown):
            is_last = place == len(shown) - 1
            own, under = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            planned.append((one, "", "") if is_top else (one, guides + own, guides + under))
        waiting.extend(reversed(planned))

    plan(tops, "", is_top=True)
    while waiting:
        one, guides, under = waiting.pop()
        if isinstance(one, list):
            statuses: tuple[Status, ...] = tuple(
                status for each in one for status in flat.below(each)
            )
            rows.append(TreeRow(guides, None, left_out=statuses))
        else:
            rows.append(TreeRow(guides, flat.nodes[one], flat.tokens[one], flat.spend[one]))
            plan(flat.children[one], under, is_top=False)
    return rows
