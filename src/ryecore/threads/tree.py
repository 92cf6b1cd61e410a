"""The tree of a thread and all that it has started: read from the store, and as rows to draw."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from attrs import evolve, field, frozen

from ryecore.convert.money import write_usd
from ryecore.policy.limits import Limits, read_limits
from ryecore.state.model import Status, ThreadRecord, has_ended

if TYPE_CHECKING:
    from ryecore.state.registry import ThreadRegistry
    from ryecore.state.store import ThreadStore

__all__ = ["STATUS_ORDER", "TreeNode", "TreeRow", "load_tree", "rows_of", "watch_tree"]


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
            that continue it.
        model: The model that it uses.
        note: A note, such as why it failed.
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
        """Whether it has ended; threads below it may still run."""
        return has_ended(self.status)

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
            "children": [one.to_dict() for one in self.children],
        }

    def walk(self) -> Iterator["TreeNode"]:
        """Yield the thread and all below it, each before its children."""
        waiting: list[TreeNode] = [self]
        while waiting:
            one = waiting.pop()
            yield one
            waiting.extend(reversed(one.children))

    def _repr_html_(self) -> str:
        from ryecore.display import to_html  # noqa: PLC0415 - for notebooks alone
        from ryecore.threads.picture import tree_picture  # noqa: PLC0415

        return to_html(tree_picture([self], now=time.time()))


# The rows of a drawn tree


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
    node: TreeNode | None
    tokens: int = 0
    spend_microcents: int = 0
    left_out: tuple[Status, ...] = ()

    def count_left_out(self) -> str:
        """Return how many threads of each status are left out here."""
        counts = Counter(self.left_out)
        return ", ".join(f"{counts[one]} {one}" for one in STATUS_ORDER if counts[one])


class _Flat:
    """A forest as lists, each thread before those that it has started."""

    def __init__(self, roots: Sequence[TreeNode]) -> None:
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
        return (_INTEREST[node.status], -since)

    def below(self, at: int) -> Iterator[Status]:
        """Yield the statuses of a thread and all below it."""
        waiting = [at]
        while waiting:
            one = waiting.pop()
            yield self.nodes[one].status
            waiting.extend(self.children[one])


def rows_of(roots: Sequence[TreeNode], max_rows: int) -> list[TreeRow]:
    """Return the rows of a forest, from the top; at least one thread, with its ancestors.

    Of a larger forest, running threads come first, then failed ones, then the last that ended; each
    with its ancestors.
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


# The tree as the store has it


_MAX_REASONS: Final = 20
"""The most failed threads with a reason, each of which is a read of the store."""
_MAX_NOTE: Final = 300
_LEAST_S: Final = 0.05
"""The least time between two reads, in seconds, however much happens."""


async def load_tree(store: "ThreadStore", root_id: str, *, settles: bool = True) -> TreeNode:
    """Read the tree of a thread and all that it has started.

    Threads that continue it are placed below it, after its children. With `settles`, threads whose
    process died are ended first; otherwise nothing is written.
    """
    if settles:
        await store.look(root_id)
    chain = [one.thread_id for one in await store.registry.get_chain(root_id)]
    continuing = chain[chain.index(root_id) :]

    async def find(registry: "ThreadRegistry") -> tuple[ThreadRecord, ...]:
        trees = [await registry.list_tree(top) for top in continuing]
        return tuple(row for tree in trees for row in tree)

    rows = await (store.look_at_all(find) if settles else find(store.registry))
    by_id = {row.thread_id: row for row in rows}
    below: dict[str, list[str]] = {}
    for row in by_id.values():
        if row.thread_id in continuing:
            continue
        if row.parent_id is not None:
            below.setdefault(row.parent_id, []).append(row.thread_id)
    below.setdefault(root_id, []).extend(continuing[1:])
    order = [root_id]
    for thread_id in order:  # grows in the loop: each thread precedes its children
        order.extend(below.get(thread_id, ()))
    reasons = await _reasons(store, [by_id[one] for one in order])
    nodes: dict[str, TreeNode] = {}
    for thread_id in reversed(order):
        children = tuple(nodes.pop(one) for one in below.get(thread_id, ()))
        node = _node(by_id[thread_id], reasons.get(thread_id, ""))
        nodes[thread_id] = evolve(node, children=children) if children else node
    return nodes[root_id]


async def watch_tree(
    store: "ThreadStore",
    root_id: str,
    draw: Callable[[TreeNode], None],
    *,
    every_s: float = 1.0,
) -> TreeNode:
    """Draw a tree at once, after changes and at least every `every_s`, until all have ended."""
    import anyio  # noqa: PLC0415 - a tree that is read once doesn't need it

    async with store.watch(root_id) as changes:
        while True:
            tree = await load_tree(store, root_id)
            draw(tree)
            if all(one.ended for one in tree.walk()):
                return tree
            await changes.changed(every_s)
            await anyio.sleep(min(_LEAST_S, every_s))


def _node(row: ThreadRecord, reason: str) -> TreeNode:
    note = reason
    if not row.ended and (row.cancel_requested or row.kill_requested):
        note = "It was asked to stop."
    elif row.continuation_thread_id is not None:
        note = f"It continues as {row.continuation_thread_id}."
    return TreeNode(
        thread_id=row.thread_id,
        item_id=row.item_id,
        status=row.status,
        turns=row.cost.turns,
        tokens=row.cost.input_tokens + row.cost.output_tokens,
        spend_microcents=row.cost.spend_microcents,
        limits=_limits(row.limits),
        started_at=_time(row.created_at),
        ended_at=_time(row.completed_at) if row.completed_at is not None else None,
        model=row.model,
        note=note,
    )


async def _reasons(store: "ThreadStore", rows: list[ThreadRecord]) -> dict[str, str]:
    """Return the reasons of the threads that failed last."""
    failed = [row for row in rows if row.status in ("error", "killed", "cancelled")]
    failed.sort(key=lambda row: row.completed_at or "", reverse=True)
    reasons: dict[str, str] = {}
    for row in failed[:_MAX_REASONS]:
        result = await store.registry.get_result(row.thread_id)
        error = result.get("error") if isinstance(result, Mapping) else None
        if error is not None:
            reasons[row.thread_id] = str(error)[:_MAX_NOTE]
    return reasons


def _limits(said: Mapping[str, object] | None) -> Limits:
    try:
        return read_limits(said or {})
    except ValueError:  # of a later version
        return Limits()


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
