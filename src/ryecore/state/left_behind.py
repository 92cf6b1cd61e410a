"""Close what a dead thread, or a dead run of a graph, has left: its file, and its transcript.

Its row says already how it ended. Whoever has found it dead does the rest.

Source: decision 47.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ryecore.errors import StateError
from ryecore.lillux.keys import SigningKey
from ryecore.state.checkpoints import Head
from ryecore.state.model import Durability, ThreadRecord
from ryecore.state.rows import describe_death
from ryecore.state.thread_file import THREAD_FILE, end_thread_file
from ryecore.state.transcript import Transcript

__all__ = ["TRANSCRIPT", "close_left_behind"]

TRANSCRIPT: Final = "transcript.jsonl"
"""The name of a transcript in its thread's folder."""


def close_left_behind(
    folder: Path,
    record: ThreadRecord,
    key: SigningKey,
    durability: Durability,
    overspent: Sequence[Mapping[str, object]] = (),
) -> Head | None:
    """Say in a dead thread's files how it ended.

    A torn line of its transcript is dropped. What no checkpoint speaks for stays, and the closing
    checkpoint says, signed, how many records that are. What was altered is left to be found, and
    what is closed already stays so.

    Args:
        folder: The thread's folder.
        record: Its row.
        key: The run key.
        durability: What a write survives.
        overspent: The requests that cost more than was held, recorded before the end.

    Returns:
        The end of the transcript's chain; None where it could not be closed. Its file then stays as
        it was, and the next caller tries again.
    """
    if not (folder / THREAD_FILE).exists():  # it never came to run
        return None
    head = None
    kind = "thread" if record.item_id.startswith("directive:") else "run"
    end = f"{kind}_{record.status}"
    with suppress(StateError):
        transcript, found = Transcript.resume(
            folder / TRANSCRIPT, record.thread_id, key, durability, head=record.transcript_head
        )
        with transcript:
            head = found.head
            if found.tail_records or found.last_type != end:
                for one in overspent:
                    transcript.append("budget_overspent", one)
                transcript.append(end, {"error": describe_death(record.pid)})
                head = transcript.checkpoint(found.turn + bool(found.tail_records))
    if head is not None or not os.path.lexists(folder / TRANSCRIPT):
        end_thread_file(folder / THREAD_FILE, record, key)
    return head
