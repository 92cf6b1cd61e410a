"""The picture of a tree of threads: the item, state and cost of each. Pure."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ryecore.display.picture import Box, Line, LineKind, Picture
from ryecore.display.text import BOX_STATUSES, compact, counted, dollars, duration, noun_of, out_of
from ryecore.policy.budget import Amount
from ryecore.threads.tree_rows import TreeRow, rows_of

if TYPE_CHECKING:
    from ryecore.threads.result import ThreadResult
    from ryecore.threads.tree_node import TreeNode

__all__ = ["result_picture", "tree_picture"]

_MAX_BOXES: Final = 200


def tree_picture(
    nodes: Sequence["TreeNode"], *, now: float, max_boxes: int = _MAX_BOXES
) -> Picture:
    """Draw threads, with arrows to the threads that they have started.

    Tokens and money count a thread together with all below it, as its budget does. Of a larger
    tree, running threads are shown first, and the rest is counted. `now` is in seconds since 1970
    (UTC).
    """
    boxes: list[Box] = []
    lines: list[Line] = []
    path: list[str] = []
    for at, row in enumerate(rows_of(nodes, max_boxes)):
        depth = len(row.guides) // 3
        name = f"{at}" if row.node is None else row.node.thread_id
        boxes.append(_left_out(name, row) if row.node is None else _box(row, row.node, now))
        if depth:
            is_live = row.node is not None and row.node.status == "running"
            kind: LineKind = "dashed" if row.node is None else "solid"
            lines.append(Line(path[depth - 1], name, kind=kind, is_taken=is_live))
        path[depth:] = [name]
    title = "" if boxes else "nothing runs"
    return Picture(tuple(boxes), tuple(lines), title, direction="right")


def _box(row: TreeRow, node: "TreeNode", now: float) -> Box:
    limits = node.limits
    until = now if node.ended_at is None else node.ended_at
    turns = _used(node.turns, limits.turns, compact)
    tokens = _used(row.tokens, limits.tokens, compact)
    spend = _used(row.spend_microcents, limits.spend_microcents, dollars)
    lasted = duration(until - node.started_at)
    turn = noun_of(limits.turns or node.turns, "turn")
    token = noun_of(limits.tokens or row.tokens, "token")
    details = [f"{turns} {turn}, {tokens} {token}, {spend}", lasted]
    if node.status != BOX_STATUSES[node.status]:
        details[-1] = f"{lasted}, {node.status}"
    if node.waits_for is not None:
        details.append(node.waits_for[0])
    if node.note:
        details.append(node.note)
    facts = [node.item_id, node.thread_id, *([f"model {node.model}"] if node.model else [])]
    return Box(
        node.thread_id,
        node.item_id.removeprefix("directive:"),
        tuple(details),
        status=BOX_STATUSES[node.status],
        tooltip="\n".join([*facts, *details]),
    )


def _left_out(name: str, row: TreeRow) -> Box:
    return Box(name, f"{len(row.left_out)} more", (row.count_left_out(),), "stack")


def _used(used: int, limit: int | None, written: Callable[[int], str]) -> str:
    return "".join(out_of(used, limit, written))


def result_picture(result: "ThreadResult") -> Picture:
    """Draw the result of a thread, with the total cost of its children.

    The result doesn't tell which threads it started; the registry does.
    """
    cost, total = result.cost, result.total
    own = cost.amount
    turns = counted(cost.turns, "turn")
    lasted = duration(result.duration_ms / 1000)
    status = BOX_STATUSES[result.ended]
    boxes = [
        Box(
            "thread",
            result.item_id.removeprefix("directive:"),
            (
                f"{turns}, {_amount(own)}",
                lasted if status == result.ended else f"{lasted}, {result.ended}",
            ),
            status=status,
            tooltip=f"{result.item_id}\n{result.thread_id}",
        )
    ]
    lines = []
    if total not in (own, Amount()):
        boxes.append(Box("below", "what it started", (_amount(total - own),), "stack"))
        lines.append(Line("thread", "below"))
    if result.continuation_thread_id is not None:
        boxes.append(Box("next", result.continuation_thread_id, ("continues it",)))
        lines.append(Line("thread", "next", kind="dashed"))
    return Picture(tuple(boxes), tuple(lines), direction="right")


def _amount(amount: Amount) -> str:
    return f"{counted(amount.tokens, 'token', write=compact)}, {dollars(amount.spend_microcents)}"
