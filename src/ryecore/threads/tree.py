"""The tree of a thread and all that it has started, read from the store."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from attrs import evolve

from ryecore.lillux.processes import current_process
from ryecore.policy.limits import Limits, read_limits
from ryecore.state.approvals import approvals_by_thread
from ryecore.state.model import ThreadRecord
from ryecore.threads.tree_node import TreeNode

if TYPE_CHECKING:
    from ryecore.state.approvals import ThreadApproval
    from ryecore.state.registry import ThreadRegistry
    from ryecore.state.store import ThreadStore

__all__ = ["load_tree", "watch_tree"]

_MAX_REASONS: Final = 20
"""The most failed threads with a reason, each of which is a read of the store."""
_MAX_NOTE: Final = 300
_LEAST_S: Final = 0.05
"""The least time between two reads, in seconds, however much happens."""


async def load_tree(
    store: "ThreadStore",
    root_id: str,
    *,
    settles: bool = True,
    progress_of: Callable[[str], str] = lambda _: "",
) -> TreeNode:
    """Read the tree of a thread and all that it has started.

    Threads that continue it, because it was handed off or somebody resumed it, are placed below it,
    after its children. With `settles`, threads whose
    process died are ended first; otherwise nothing is written. `progress_of` returns how far the
    tool is of a thread that this process runs.
    """
    if settles:
        await store.look(root_id)
    chain = [one.thread_id for one in await store.registry.get_chain(root_id)]
    continuing = chain[chain.index(root_id) :]

    async def find(registry: "ThreadRegistry") -> tuple[ThreadRecord, ...]:
        for one in continuing:  # grows in the loop
            for row in await registry.list_following(one):
                if row.chain_root_id is not None and row.thread_id not in continuing:
                    continuing.append(row.thread_id)  # a fork has none
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
    waiting = await approvals_by_thread(store.approvals)
    nodes: dict[str, TreeNode] = {}
    here = current_process()
    for thread_id in reversed(order):
        children = tuple(nodes.pop(one) for one in below.get(thread_id, ()))
        row = by_id[thread_id]
        note = progress_of(thread_id) if row.owner == here else reasons.get(thread_id, "")
        node = _node(row, note, waiting.get(thread_id, ()))
        if row.place is not None:
            from ryecore.threads.remote_tree import with_remote_tree  # noqa: PLC0415 - for nodes

            node = with_remote_tree(node, store.node_files(thread_id))
            children = (*node.children, *children)
        nodes[thread_id] = evolve(node, children=children) if children else node
    return nodes[root_id]


async def watch_tree(
    store: "ThreadStore",
    root_id: str,
    draw: Callable[[TreeNode], None],
    *,
    every_s: float = 1.0,
    progress_of: Callable[[str], str] = lambda _: "",
) -> TreeNode:
    """Draw a tree at once, after changes and at least every `every_s`, until all have ended."""
    import anyio  # noqa: PLC0415 - a tree that is read once doesn't need it

    async with store.watch(root_id) as changes:
        while True:
            tree = await load_tree(store, root_id, progress_of=progress_of)
            draw(tree)
            nodes = {one.thread_id: one for one in tree.walk()}
            if all(one.ended for one in nodes.values()):
                last = await store.registry.get_thread(await store.registry.last_of(root_id))
                # One that goes on with it may have begun since the tree was read.
                if last.thread_id in nodes and not last.awaits_worker:
                    return tree
            await changes.changed(every_s)
            await anyio.sleep(min(_LEAST_S, every_s))


def _node(row: ThreadRecord, reason: str, approvals: "tuple[ThreadApproval, ...]" = ()) -> TreeNode:
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
        approvals=approvals,
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
