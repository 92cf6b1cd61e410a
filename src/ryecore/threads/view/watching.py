"""A tree of threads as the store knows it, once or while it runs."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

import anyio
from attrs import evolve

from ryecore.policy.limits import Limits, read_limits
from ryecore.state.change_watcher import ChangeWatcher
from ryecore.state.model import ThreadRecord
from ryecore.state.registry import ThreadRegistry
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread
from ryecore.threads.view.tree import TreeNode

__all__ = ["load_tree", "watch_tree"]

_MAX_REASONS: Final = 20
"""So many failed threads say why: each is a look at the store."""
_MAX_NOTE: Final = 300
_LEAST_S: Final = 0.05
"""Between two looks, however much happens."""


def load_tree(store: ThreadStore, root_id: str, *, settles: bool = True) -> TreeNode:
    """Read how a thread stands, and all that it has started.

    Args:
        store: The project's threads.
        root_id: The thread. Those that continue it stand below it, behind its children.
        settles: Whether threads that nobody runs any more are ended first; else nothing is
            written.

    Raises:
        ThreadNotFound: There is none of this id.
    """
    if settles:
        store.look(root_id)
    chain = [one.thread_id for one in store.registry.get_chain(root_id)]
    continuing = chain[chain.index(root_id) :]

    def find(registry: ThreadRegistry) -> tuple[ThreadRecord, ...]:
        return tuple(row for top in continuing for row in registry.list_tree(top))

    rows = store.look_at_all(find) if settles else find(store.registry)
    by_id = {row.thread_id: row for row in rows}
    below: dict[str, list[str]] = {}
    for row in by_id.values():
        if row.thread_id in continuing:
            continue
        if row.parent_id is not None:
            below.setdefault(row.parent_id, []).append(row.thread_id)
    below.setdefault(root_id, []).extend(continuing[1:])
    order = [root_id]
    for thread_id in order:  # which grows: each thread stands before those that it has started
        order.extend(below.get(thread_id, ()))
    reasons = _reasons(store, [by_id[one] for one in order])
    nodes: dict[str, TreeNode] = {}
    for thread_id in reversed(order):
        children = tuple(nodes.pop(one) for one in below.get(thread_id, ()))
        node = _node(by_id[thread_id], reasons.get(thread_id, ""))
        nodes[thread_id] = evolve(node, children=children) if children else node
    return nodes[root_id]


async def watch_tree(
    store: ThreadStore,
    root_id: str,
    draw: Callable[[TreeNode], None],
    *,
    every_s: float = 1.0,
) -> TreeNode:
    """Have a tree of threads drawn until all of them have ended.

    Args:
        store: The project's threads.
        root_id: The thread at its top.
        draw: Draws it: at once, when the thread tells of a change, and at least every `every_s`.
        every_s: After how many seconds it is looked at again where nothing was told.

    Returns:
        The tree in the end.

    Raises:
        ThreadNotFound: There is none of this id.
    """
    async with ChangeWatcher(store.folder_of(root_id)) as signs:
        while True:
            tree = await run_in_thread(load_tree, store, root_id)
            draw(tree)
            if all(one.ended for one in tree.walk()):
                return tree
            await signs.changed(every_s)
            await anyio.sleep(min(_LEAST_S, every_s))


def _node(row: ThreadRecord, reason: str) -> TreeNode:
    note = reason
    if not row.ended and (row.cancel_requested or row.kill_requested):
        note = "It was asked to stop."
    elif row.continuation_thread_id is not None:
        note = f"It goes on as {row.continuation_thread_id}."
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


def _reasons(store: ThreadStore, rows: list[ThreadRecord]) -> dict[str, str]:
    """Why threads failed, of those that did so last."""
    failed = [row for row in rows if row.status in ("error", "killed", "cancelled")]
    failed.sort(key=lambda row: row.completed_at or "", reverse=True)
    reasons: dict[str, str] = {}
    for row in failed[:_MAX_REASONS]:
        result = store.registry.get_result(row.thread_id)
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
