"""thread.json: a thread's permissions and status, signed by the run key.

The registry is authoritative; this file is for people, and for readers of only the folder.

Source: docs/design/threads.md#the-threads-file; decisions 5 and 37.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from attrs import Factory

from ryecore.convert.json_text import indented_json
from ryecore.convert.strict import RECORDS
from ryecore.errors import StateError
from ryecore.frozen import frozen
from ryecore.items.files import replace_and_keep, write_atomically
from ryecore.lillux.digests import read_digest
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.state.model import Cost, ThreadRecord
from ryecore.state.record_log import RecordStore
from ryecore.state.records import holds, sign_record
from ryecore.state.refusals import advice
from ryecore.state.thread_rows import describe_death
from ryecore.state.transcript_format import Head

__all__ = [
    "THREAD_FILE",
    "TRANSCRIPT",
    "ThreadFile",
    "encode_thread_file",
    "end_thread_file",
    "prove_thread_file",
    "read_thread_file",
    "recover_orphan",
    "with_end",
    "write_thread_file",
]

THREAD_FILE: Final = "thread.json"
"""The file's name in the thread's folder."""

_KIND: Final = "thread"
_FIELD: Final = "_signature"
_MAX_BYTES: Final = 4 * 1024 * 1024


@frozen(slots=False)
class ThreadFile:
    """The contents of a thread's file. Times are UTC, and the item's hash is SHA-256 (hex).

    A limit has its name in files, a root is its own `root_id`, and the model is `provider/model`;
    None if it isn't known yet.
    """

    thread_id: str
    item_id: str
    directive: str
    item_hash: str
    status: str
    created_at: str
    updated_at: str
    model: str | None
    limits: Mapping[str, Any]
    capabilities: tuple[str, ...]
    parent_id: str | None = None
    root_id: str = Factory(lambda self: self.thread_id, takes_self=True)
    chain_root_id: str | None = None
    continuation_of: str | None = None
    cost: Cost = Factory(Cost)

    def ended(self, status: str, cost: Cost, updated_at: str) -> "ThreadFile":
        """Return the file of the same thread once it has ended."""
        return ThreadFile(  # inlined: `evolve` takes three times as long
            self.thread_id,
            self.item_id,
            self.directive,
            self.item_hash,
            status,
            self.created_at,
            updated_at,
            self.model,
            self.limits,
            self.capabilities,
            self.parent_id,
            self.root_id,
            self.chain_root_id,
            self.continuation_of,
            cost,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the file's fields. Source: docs/design/threads.md#the-threads-file."""
        document: dict[str, Any] = RECORDS.write(self)
        return document


def encode_thread_file(thread: ThreadFile, key: SigningKey) -> bytes:
    """Sign a thread's file, and return its content."""
    return _encode(thread.to_dict(), key)


def _encode(document: Mapping[str, Any], key: SigningKey) -> bytes:
    signed = sign_record(_KIND, document, key)
    return f"{indented_json(signed, ascii_only=True)}\n".encode()


def write_thread_file(
    path: str | Path, thread: ThreadFile, key: SigningKey, *, keep: bool = False
) -> str | None:
    """Write and sign a thread's file, atomically, into a folder that exists. It isn't synced.

    With `keep`, a file that it replaces stays, under the path that is returned.
    """
    content = encode_thread_file(thread, key)
    try:
        if keep:
            return replace_and_keep(os.fspath(path), content)
        write_atomically(path, content, mode=0o600, durable=False)
    except OSError as problem:
        raise StateError(
            f"{path} can't be written: {problem.strerror or problem}.",
            next_step=advice(problem),
        ) from problem
    return None


def end_thread_file(path: Path, record: ThreadRecord, key: SigningKey) -> None:
    """Write a thread's end into its file, if its owner could not and the file is unaltered."""
    with suppress(StateError, OSError):
        ended = with_end(read_thread_file(path, key.public, record.thread_id), record, key)
        if ended is not None:
            write_atomically(path, ended, mode=0o600, durable=False)


def with_end(document: Mapping[str, Any], record: ThreadRecord, key: SigningKey) -> bytes | None:
    """Return the content of a thread's file with its end; None if the file has it already."""
    if document.get("status") == record.status:
        return None
    end = {
        "status": record.status,
        "updated_at": record.updated_at,
        "cost": record.cost.to_dict(),
    }
    return _encode({**document, **end}, key)


def read_thread_file(path: Path, public_key: PublicKey, thread_id: str) -> Mapping[str, Any]:
    """Read a thread's file without its signature, and verify it. A FIFO isn't waited for.

    A file that was altered, or is another thread's, is a StateError.
    """
    try:
        content = read_digest(path, max_bytes=_MAX_BYTES)[0]
    except OSError as problem:
        raise StateError(
            f"{path} can't be read: {problem.strerror or problem}.",
            next_step="See which threads there are: rye threads list --all",
        ) from problem
    return prove_thread_file(content, str(path), public_key, thread_id)


def prove_thread_file(
    content: bytes, name: str, public_key: PublicKey, thread_id: str
) -> Mapping[str, Any]:
    """Verify the content of a thread's file, and return it without its signature.

    Content that was altered, or is another thread's, is a StateError that says its `name`.
    """
    next_step = (
        f"Trust the registry: rye threads show {thread_id}; then move the file away. The "
        f"transcript is proved by: rye threads verify {thread_id}"
    )
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise StateError(f"{name} isn't JSON any more.", next_step=next_step) from None
    if not isinstance(document, dict) or not holds(_KIND, document, public_key):
        raise StateError(
            f"{name} was altered after it was written, or was written by somebody else; by whom "
            "can't be known.",
            next_step=next_step,
        )
    if document.get("thread_id") != thread_id:
        raise StateError(
            f"{name} is the file of another thread, {document.get('thread_id')!r}.",
            next_step=next_step,
        )
    return {name: value for name, value in document.items() if name != _FIELD}


TRANSCRIPT: Final = "transcript.jsonl"
"""The name of a transcript in its thread's folder."""


async def recover_orphan(
    records: RecordStore,
    record: ThreadRecord,
    error: str | None,
    overspent: Sequence[Mapping[str, object]] = (),
) -> Head | None:
    """Close the log of a dead thread.

    A torn line is dropped. Records that no checkpoint covers stay, and the signed closing
    checkpoint has their number. Requests that cost more than was held are recorded before it. An
    altered log and a closed one are left unchanged. The closing record has the error of the
    thread's result, if it has one.

    Returns the head of the log's chain; None if it can't be closed. It is unchanged then, and the
    next caller tries again.
    """
    kind = "thread" if record.item_id.startswith("directive:") else "run"
    end = f"{kind}_{record.status}"
    with suppress(StateError):
        log, found = await records.resume(record.thread_id, record.transcript_head)
        head = found.head
        try:
            if found.tail_records or found.last_type != end:
                for one in overspent:
                    log.append("budget_overspent", one)
                log.append(end, {"error": error or describe_death(record.pid)})
                head = await log.checkpoint(found.turn + bool(found.tail_records))
        finally:
            await log.close()
        return head
    return None
