"""The operations of a thread on others, and of the host on all, across processes.

A thread reaches its own subtree, and that of the threads it continues. Any other thread is reported
as missing.

Source: docs/design/threads.md#orchestrator; decisions 41 and 46.
"""

import time
from collections import deque
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio
import anyio.lowlevel

from ryecore.convert.money import write_usd
from ryecore.errors import InputError, RyeError, ThreadConflict
from ryecore.policy import CallContext
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_format import Record
from ryecore.threads.orchestrator.chain_search import (
    MAX_RESULTS,
    SearchType,
    matcher,
    search_records,
)
from ryecore.threads.orchestrator.children import (
    Document,
    below,
    bounded,
    chain_of,
    find,
    find_all,
    outcome,
    refuse_itself,
    standing,
)

if TYPE_CHECKING:
    from ryecore.threads.service import ThreadService

__all__ = [
    "MAX_TAIL_LINES",
    "MAX_THREAD_IDS",
    "MAX_WAIT_S",
    "WaitMode",
    "aggregate_results",
    "cancel_thread",
    "chain_search",
    "get_chain",
    "get_status",
    "handoff_thread",
    "kill_thread",
    "list_active",
    "read_transcript",
    "resume_thread",
    "wait_threads",
]

WaitMode: TypeAlias = Literal["all", "any"]

MAX_WAIT_S: Final = 3600.0
MAX_THREAD_IDS: Final = 1000
MAX_TAIL_LINES: Final = 500

_MAX_WATCHED: Final = 100
"""The most threads of a wait for the first; each costs a task, a descriptor and a watcher."""
_SEARCH_S: Final = 10.0
_KILL_GRACE_S: Final = 3.0
_MAX_LISTED: Final = 200
_RECORD_CHARS: Final = 2000
_QUIET: Final = frozenset({"token_delta", "checkpoint"})
"""The types of records that repeat what other records hold."""


async def wait_threads(
    store: ThreadStore,
    thread_ids: Iterable[str],
    *,
    caller: str | None,
    timeout_s: float = 600.0,
    mode: WaitMode = "all",
) -> Document:
    """Wait until all or any of 1 to 1,000 (any: 100) threads have ended, in any process.

    Return the outcome of each; `success` is False where the time, at most 3,600 seconds, was over.
    """
    if not 0 <= timeout_s <= MAX_WAIT_S:
        raise InputError(
            f"timeout_s is {timeout_s}, not from 0 to {MAX_WAIT_S:.0f}.",
            next_step="Wait again where the threads have not ended by then.",
        )
    ids = _listed(thread_ids, _MAX_WATCHED if mode == "any" else MAX_THREAD_IDS)
    refuse_itself(ids, caller, "wait for")
    await find_all(store, ids, caller)
    with anyio.move_on_after(timeout_s):
        if mode == "any":
            await _first_end(store, ids)
        else:
            for thread_id in ids:  # one after the other: all have ended when the last wait is over
                await store.wait(thread_id)
    outcomes = [await outcome(store, await store.look(one)) for one in ids]
    done = sum(1 for one in outcomes if one["ended"])
    timed_out = done < (len(ids) if mode == "all" else 1)
    document: Document = {"success": not timed_out, "timed_out": timed_out, "threads": outcomes}
    if timed_out:
        document["error"] = f"{done} of {len(ids)} threads had ended after {timeout_s:g} s."
    return document


async def _first_end(store: ThreadStore, thread_ids: Sequence[str]) -> None:
    """Wait until one of some threads has ended."""
    refusals: list[RyeError] = []
    async with anyio.create_task_group() as waiting:

        async def wait_for(thread_id: str) -> None:
            try:
                await store.wait(thread_id)
            except RyeError as error:  # a task group would wrap it
                refusals.append(error)
            waiting.cancel_scope.cancel()

        for thread_id in thread_ids:
            waiting.start_soon(wait_for, thread_id)
    if refusals:
        raise refusals[0]


async def cancel_thread(store: ThreadStore, thread_id: str, *, caller: str | None) -> Document:
    """Ask a thread, and all below it, to stop. Doesn't wait for that."""
    refuse_itself((thread_id,), caller, "cancel")
    await find(store, thread_id, caller)
    return {"success": True, **standing(await store.cancel(thread_id))}


async def kill_thread(store: ThreadStore, thread_id: str, *, caller: str | None) -> Document:
    """Kill a thread and its process, which has three seconds to end by itself.

    A thread that shares its process with others is asked to stop instead.
    """
    refuse_itself((thread_id,), caller, "kill")
    await find(store, thread_id, caller)
    return {"success": True, **standing(await store.kill(thread_id, _KILL_GRACE_S))}


async def get_status(store: ThreadStore, thread_id: str, *, caller: str | None) -> Document:
    """Return the state of a thread: its row, its children, and its outcome once it has ended."""
    record = await find(store, thread_id, caller)
    children = await store.registry.list_children(thread_id)
    return {
        "success": True,
        **record.to_dict(),
        **await outcome(store, record),
        "children": [
            {"thread_id": one.thread_id, "item_id": one.item_id, "status": one.status}
            for one in children[:_MAX_LISTED]
        ],
        "children_count": len(children),
    }


async def list_active(store: ThreadStore, *, caller: str | None) -> Document:
    """List at most 200 threads that have not ended, oldest first; `count` counts all.

    Those without a process are ended before. A caller sees only threads below it.
    """
    active = await store.look_at_all(lambda registry: registry.list_active())
    if caller is not None:
        own = await below(store, caller)
        active = tuple(one for one in active if one.thread_id in own and one.thread_id != caller)
    listed = [dict(one.to_dict()) for one in active[:_MAX_LISTED]]
    return {"success": True, "count": len(active), "threads": listed}


async def aggregate_results(
    store: ThreadStore, thread_ids: Iterable[str], *, caller: str | None
) -> Document:
    """Return the outcomes of 1 to 1,000 threads, counts by status, and what they spent."""
    ids = _listed(thread_ids)
    records = await find_all(store, ids, caller)
    counts: dict[str, int] = {}
    for record in records:
        counts[record.status] = counts.get(record.status, 0) + 1
    costs = [record.cost for record in records]
    return {
        "success": True,
        "results": [await outcome(store, record) for record in records],
        "counts": counts,
        "totals": {
            "turns": sum(one.turns for one in costs),
            "input_tokens": sum(one.input_tokens for one in costs),
            "output_tokens": sum(one.output_tokens for one in costs),
            "spend": write_usd(sum(one.spend_microcents for one in costs)),
        },
    }


async def get_chain(store: ThreadStore, thread_id: str, *, caller: str | None) -> Document:
    """Return the chain of continuations of a thread, from its root on."""
    chain = await chain_of(store, thread_id, caller)
    return {
        "success": True,
        "chain_root_id": chain[0].thread_id,
        "chain": [dict(one.to_dict()) for one in chain],
    }


async def chain_search(
    store: ThreadStore,
    thread_id: str,
    query: str,
    *,
    caller: str | None,
    search_type: SearchType = "text",
    max_results: int = MAX_RESULTS,
) -> Document:
    """Search the transcripts of a thread's chain, the oldest first; see `matcher`.

    `truncated` tells that there may be more: `max_results` was reached, or ten seconds were over.
    """
    if not 1 <= max_results <= MAX_RESULTS:
        raise InputError(
            f"max_results is {max_results}, not from 1 to {MAX_RESULTS}.", next_step="Pass fewer."
        )
    match = matcher(query, search_type)
    chain = await chain_of(store, thread_id, caller)
    until = time.monotonic() + _SEARCH_S
    async with aclosing(_records(store, *(one.thread_id for one in chain))) as records:
        found, truncated = await search_records(records, match, most=max_results, until=until)
    return {
        "success": True,
        "query": query,
        "search_type": search_type,
        "searched": [one.thread_id for one in chain],
        "results": found,
        "truncated": truncated,
    }


async def read_transcript(
    store: ThreadStore,
    thread_id: str,
    *,
    caller: str | None,
    tail_lines: int = 50,
    types: Collection[str] | None = None,
) -> Document:
    """Return the last 1 to 500 records of a thread's transcript, each cut to 2,000 characters.

    Without `types`, these are all but deltas and checkpoints; `total` counts all of these types.
    """
    if not 1 <= tail_lines <= MAX_TAIL_LINES:
        raise InputError(
            f"tail_lines is {tail_lines}, not from 1 to {MAX_TAIL_LINES}.", next_step="Pass 50."
        )
    await find(store, thread_id, caller)
    tail: deque[Record] = deque(maxlen=tail_lines)
    total = 0
    async with aclosing(_records(store, thread_id)) as records:
        async for _, record in records:
            if record.type in types if types is not None else record.type not in _QUIET:
                total += 1
                tail.append(record)
    return {
        "success": True,
        "thread_id": thread_id,
        "total": total,
        "records": [
            {
                "timestamp": one.timestamp,
                "event_type": one.type,
                "payload": bounded(one.payload, _RECORD_CHARS),
            }
            for one in tail
        ],
    }


async def resume_thread(
    store: ThreadStore, control: "ThreadService", thread_id: str, message: str, *, ctx: CallContext
) -> Document:
    """Resume a thread that has ended, with a message that isn't blank."""
    if not message.strip():
        raise InputError("A thread is resumed with a message.", next_step="Say what it is to do.")
    record = await find(store, thread_id, ctx.budget_account)
    if not record.ended:
        raise ThreadConflict(
            "The thread is still running and can't be resumed.",
            next_step="Wait for it, or cancel it first.",
            thread_id=thread_id,
            state=record.status,
        )
    return {"success": True, **(await control.resume(thread_id, message, ctx)).to_dict()}


async def handoff_thread(
    store: ThreadStore, control: "ThreadService", thread_id: str, *, ctx: CallContext
) -> Document:
    """Hand a running thread off: it ends as continued, and a new thread takes over."""
    record = await find(store, thread_id, ctx.budget_account)
    if record.ended:
        raise ThreadConflict(
            f"The thread is {record.status} and can't be handed off.",
            next_step="Resume it instead, with a message.",
            thread_id=thread_id,
            state=record.status,
        )
    return {"success": True, **(await control.hand_off(thread_id, ctx)).to_dict()}


def _listed(thread_ids: Iterable[str], most: int = MAX_THREAD_IDS) -> tuple[str, ...]:
    ids = tuple(dict.fromkeys(thread_ids))
    if not 1 <= len(ids) <= most:
        raise InputError(
            f"{len(ids)} threads are named, not 1 to {most}.",
            next_step="Name at least one, and many in several calls.",
        )
    return ids


async def _records(
    store: ThreadStore, *thread_ids: str
) -> AsyncGenerator[tuple[str, Record], None]:
    """Yield the records of threads, each with its thread's id."""
    for thread_id in thread_ids:
        await anyio.lowlevel.checkpoint()  # short logs are read without waiting
        # A tool's thread has no transcript, and a thread that has just begun has none yet.
        if not await store.records.exists(thread_id):
            continue
        async with aclosing(store.records.read(thread_id)) as records:
            async for record in records:
                yield thread_id, record
