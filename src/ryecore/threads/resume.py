"""The conversation with which a thread continues another one.

Source: docs/design/threads.md#resume-messages; decisions 45 and 47.
"""

from collections.abc import Mapping
from contextlib import aclosing
from decimal import Decimal
from functools import partial
from typing import Any, Final

from ryecore.errors import StateError
from ryecore.llm.messages import write_message
from ryecore.llm.parts import Message
from ryecore.policy.limits import Limits
from ryecore.runs.bounds import bounds_of
from ryecore.runs.resume import Continuation, idle_followers, refuse_running
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore
from ryecore.state.transcript_format import Record
from ryecore.state.waiting import run_in_thread
from ryecore.threads.records.messages import cut_after, keep_tail, rebuild

__all__ = [
    "continued_record", "fork_of", "handoff_of", "has_begun", "resume_of",
]  # fmt: skip


_GOES_ON: Final = frozenset({"thread_resumed", "thread_forked"})


def continued_record(continues: Continuation) -> tuple[str, dict[str, Any]]:
    """Return the transcript record that names the thread that is continued."""
    payload: dict[str, Any] = {
        "from": continues.previous_id,
        "kind": continues.kind,
        "messages": [write_message(message) for message in continues.messages],
    }
    if continues.kind == "fork":
        return "thread_forked", payload | {"turn": continues.turn, "digest": continues.digest}
    return "thread_resumed", payload | {"message": continues.message}


def handoff_of(
    record: ThreadRecord,
    messages: list[Message],
    capabilities: frozenset[str],
    max_tokens: int,
    limits: Limits,
) -> Continuation:
    """Return the continuation of a handoff: the conversation's end, within a token budget."""
    return Continuation(
        "handoff",
        record.thread_id,
        record.chain_root_id or record.thread_id,
        tuple(keep_tail(messages, max_tokens)),
        capabilities=capabilities,
        limits=limits,
        owns_process=record.owns_process,
    )


async def resume_of(
    store: ThreadStore,
    record: ThreadRecord,
    message: str,
    max_tokens: int,
    *,
    again: bool = False,
) -> Continuation:
    """Return the continuation that resumes a thread: the end of its conversation, and a message.

    With `again`, another thread may have continued it already; else that is a ThreadConflict.
    """
    refuse_running(record)
    beside = None
    if not again:
        beside = await idle_followers(
            store, record.thread_id, partial(has_begun, store), _go_on_with
        )
    said, records = await _left_by(store, record)
    messages = await run_in_thread(lambda: keep_tail(rebuild(records).messages, max_tokens))
    return Continuation(
        "resume",
        record.thread_id,
        record.chain_root_id or record.thread_id,
        tuple(messages),
        message,
        frozenset(map(str, said["capabilities"])),
        beside=beside,
        limits=bounds_of(record.thread_id, said).limits,
        ran_s=_ran_s(records),
        **_beginning(records),
    )


def _go_on_with(other: str) -> str:
    return (
        f"Resume that one where it has ended: rye threads resume {other}. To resume the earlier "
        "one once more, pass --again; rye threads fork begins a conversation of its own."
    )


async def has_begun(store: ThreadStore, record: ThreadRecord) -> bool:
    """Return whether an ended thread had recorded the conversation that it continues."""
    return any(one.type in _GOES_ON for one in await _proved(store, record))


async def fork_of(
    store: ThreadStore, record: ThreadRecord, turn: int, message: str
) -> Continuation:
    """Return the continuation of a fork: the conversation up to a turn's results.

    Source: decision 47.
    """
    said, records = await _left_by(store, record)
    cut = cut_after(records, turn)
    rebuilt = await run_in_thread(rebuild, cut.records)
    return Continuation(
        "fork",
        record.thread_id,
        None,
        tuple(rebuilt.messages),
        message,
        frozenset(map(str, said["capabilities"])),
        turn,
        cut.digest,
        **_beginning(records),
    )


def _ran_s(records: tuple[Record, ...]) -> Decimal:
    """Return how long a thread ran, in seconds, by its records; never negative."""
    first, last = records[0].timestamp, records[-1].timestamp
    return max(Decimal(str(last)) - Decimal(str(first)), Decimal(0))


def _beginning(records: tuple[Record, ...]) -> dict[str, Any]:
    """Return the inputs and settings of a thread, from its first record."""
    began = next((one.payload for one in records if one.type == "thread_started"), {})
    inputs, model = began.get("inputs"), began.get("model")
    return {
        "inputs": inputs if isinstance(inputs, dict) else {},
        "model": model if isinstance(model, str) else None,
    }


async def _left_by(
    store: ThreadStore, record: ThreadRecord
) -> tuple[Mapping[str, Any], tuple[Record, ...]]:
    """Return the content of a thread's file, and its records, proved."""
    thread_id, earlier = record.thread_id, record.continuation_of
    records = await _proved(store, record)
    if not records or (earlier and not any(one.type in _GOES_ON for one in records)):
        raise StateError(
            f"The thread {thread_id} ended before it began: it has left nothing to continue from.",
            next_step=f"Resume the one before it: {earlier}" if earlier else "Start it anew.",
        )
    return await store.read_file(thread_id), records


async def _proved(store: ThreadStore, record: ThreadRecord) -> tuple[Record, ...]:
    """Return a thread's records, proved; none where it never had a log.

    A log that the registry knows of and that is gone is an error: the thread did begin.
    """
    thread_id, head = record.thread_id, record.transcript_head
    if head is None and not await store.records.exists(thread_id):
        return ()
    proved = store.records.read_proved(thread_id, head, ended=record.ended)
    async with aclosing(proved) as records:
        return tuple([one async for one in records])
