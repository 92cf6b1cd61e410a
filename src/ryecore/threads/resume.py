"""What a thread that goes on from another one begins with.

Source: docs/design/threads.md#resume-messages; decisions 45 and 47.
"""

import os
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from ryecore.errors import StateError
from ryecore.lillux.keys import PublicKey
from ryecore.llm.parts import Message
from ryecore.policy.limits import Limits
from ryecore.runs.bounds import bounds_of
from ryecore.runs.resume import Continuation, idle_followers, refuse_running
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import THREAD_FILE, TRANSCRIPT, read_thread_file
from ryecore.state.transcript_check import Record, verified_records
from ryecore.threads.records.messages import cut_after, keep_tail, rebuild, write_payload

__all__ = [
    "continued_record", "fork_of", "handoff_of", "has_begun", "resume_of",
]  # fmt: skip


_GOES_ON: Final = frozenset({"thread_resumed", "thread_forked"})


def continued_record(continues: Continuation) -> tuple[str, dict[str, Any]]:
    """The record by which such a thread's transcript says what it goes on from."""
    payload: dict[str, Any] = {
        "from": continues.previous_id,
        "kind": continues.kind,
        "messages": [write_payload(message) for message in continues.messages],
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
    """What a thread hands on: the end of its conversation, within a budget of tokens."""
    return Continuation(
        "handoff",
        record.thread_id,
        record.chain_root_id or record.thread_id,
        tuple(keep_tail(messages, max_tokens)),
        capabilities=capabilities,
        limits=limits,
        owns_process=record.owns_process,
    )


def resume_of(
    store: ThreadStore,
    record: ThreadRecord,
    key: PublicKey,
    message: str,
    max_tokens: int,
    *,
    again: bool = False,
) -> Continuation:
    """What a thread that has ended is taken up with: its conversation, trimmed to its end.

    Args:
        store: The project's threads.
        record: The thread's row.
        key: The run key, which signed what it left.
        message: What is said to the model now.
        max_tokens: How much of the conversation is kept.
        again: Whether another thread may have taken it up already.

    Raises:
        ThreadConflict: It still runs, or another thread goes on with it.
        StateError: What it left can't be read, or was altered.
    """
    refuse_running(record)
    beside = None
    if not again:
        beside = idle_followers(
            store, record.thread_id, lambda one: has_begun(store, one, key), _go_on_with
        )
    said, records = _left_by(store, record, key)
    rebuilt = rebuild(records)
    return Continuation(
        "resume",
        record.thread_id,
        record.chain_root_id or record.thread_id,
        tuple(keep_tail(rebuilt.messages, max_tokens)),
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
        "one once more, say --again; rye threads fork begins a conversation of its own."
    )


def has_begun(store: ThreadStore, record: ThreadRecord, key: PublicKey) -> bool:
    """Return whether an ended thread had received the conversation that it was to continue.

    Raises:
        StateError: What it left can't be read, or was altered.
    """
    path = store.folder_of(record.thread_id) / TRANSCRIPT
    if not os.path.lexists(path):
        return False
    records = verified_records(
        path, record.thread_id, key, record.transcript_head, ended=record.ended
    )
    return any(one.type in _GOES_ON for one in records)


def fork_of(
    store: ThreadStore, record: ThreadRecord, key: PublicKey, turn: int, message: str
) -> Continuation:
    """What a fork of a thread begins with: all that was said up to the results of a turn.

    Args:
        store: The project's threads.
        record: The thread's row.
        key: The run key, which signed what it left.
        turn: The turn.
        message: What is said to the model now; empty to let it go on by itself.

    Raises:
        StateError: The turn isn't there, or what the thread left can't be read.

    Source: decision 47.
    """
    said, records = _left_by(store, record, key)
    cut = cut_after(records, turn)
    return Continuation(
        "fork",
        record.thread_id,
        None,
        tuple(rebuild(cut.records).messages),
        message,
        frozenset(map(str, said["capabilities"])),
        turn,
        cut.digest,
        **_beginning(records),
    )


def _ran_s(records: tuple[Record, ...]) -> Decimal:
    """Return how long a thread ran, in seconds, by its records; the clock may have gone back."""
    first, last = records[0].timestamp, records[-1].timestamp
    return max(Decimal(str(last)) - Decimal(str(first)), Decimal(0))


def _beginning(records: tuple[Record, ...]) -> dict[str, Any]:
    """What the thread was given and asked, as its first record says."""
    began = next((one.payload for one in records if one.type == "thread_started"), {})
    inputs, model = began.get("inputs"), began.get("model")
    return {
        "inputs": inputs if isinstance(inputs, dict) else {},
        "model": model if isinstance(model, str) else None,
    }


def _left_by(
    store: ThreadStore, record: ThreadRecord, key: PublicKey
) -> tuple[Mapping[str, Any], tuple[Record, ...]]:
    """What a thread's file says, and its records, proved."""
    thread_id, earlier = record.thread_id, record.continuation_of
    folder = store.folder_of(thread_id)
    path = folder / TRANSCRIPT
    records: tuple[Record, ...] = ()
    if os.path.lexists(path):
        records = verified_records(path, thread_id, key, record.transcript_head, ended=record.ended)
    if not records or (earlier and not any(one.type in _GOES_ON for one in records)):
        raise StateError(
            f"The thread {thread_id} ended before it began: it has left nothing to go on from.",
            next_step=f"Resume the one before it: {earlier}" if earlier else "Start it anew.",
        )
    return read_thread_file(folder / THREAD_FILE, key, thread_id), records
