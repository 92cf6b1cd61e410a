"""Idempotency keys: a start that is repeated with the same key finds the run of the first.

A key counts within the chain of the thread that starts something, so that one which is handed off
or resumed still finds its own. What the host starts shares one scope, and callers that may do less
than the host have one for each set of capabilities: who guesses a key neither sees the result of a
run that could do more, nor keeps its owner from starting.
"""

import json
import re
import sqlite3
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from attrs import field, frozen

from ryecore.errors import AlreadyStarted, InputError
from ryecore.state.model import Status, ThreadRecord, has_ended
from ryecore.state.owners import is_abandoned
from ryecore.state.thread_rows import end_abandoned, record_of

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = [
    "EarlierStart",
    "IdempotencyKey",
    "describe_start",
    "free_start_key",
    "keep_start_key",
    "refuse_started",
]

_KEY: Final = re.compile(r"[!-~]{1,200}")
_RESUMABLE: Final = ("error", "cancelled", "killed")
_NEVER_CLAIMED: Final = 1
"""The fence of a thread that ended before any process claimed it: it counts the end alone."""


@frozen
class IdempotencyKey:
    """An idempotency key, and the request that it identifies.

    Attributes:
        key: The key.
        item_id: What is started, as a canonical ref.
        digest: The SHA-256 (hex) of all that the request says.
        scope: Where the key counts unless a thread uses it; empty for the host's own.
    """

    key: str
    item_id: str
    digest: str
    scope: str = ""

    @classmethod
    def of(
        cls,
        key: object,
        item_id: str,
        request: Mapping[str, object],
        capabilities: Collection[str] | None = None,
    ) -> Self:
        """Make the key of a request.

        Args:
            key: The caller's key: 1 to 200 visible ASCII characters.
            item_id: What is started, as a canonical ref.
            request: Its parameters, and whatever else makes it another request.
            capabilities: What the caller may do; None for the host.

        Raises:
            InputError: It can't be a key, or the request can't be written as JSON.
        """
        if not isinstance(key, str) or _KEY.fullmatch(key) is None:
            raise InputError(
                f"The idempotency key {key!r:.80} can't be used.",
                next_step="Pass 1 to 200 visible ASCII characters, such as order-17.",
            )
        try:
            text = json.dumps([item_id, request], sort_keys=True, default=str)
        except (TypeError, ValueError, RecursionError) as problem:
            raise InputError(
                f"The parameters can't be written as JSON, which an idempotency key needs: "
                f"{problem}.",
                next_step="Pass parameters of JSON's types, with text as the keys of objects.",
            ) from None
        return cls(key, item_id, sha256(text.encode()).hexdigest(), _scope_of_caller(capabilities))


@frozen
class EarlierStart:
    """The state of a run that was started before with the same idempotency key.

    Attributes:
        status: Its status; of a thread that was handed off, that of the last one that goes on.
        result: Its result, likewise; None while it runs.
        pid: The id of its process, likewise; 0 for none.
    """

    status: Status
    result: object = field(repr=False)
    pid: int

    @classmethod
    def find(cls, store: "ThreadStore", thread_id: str) -> Self:
        """Look at a run that was started before.

        Args:
            store: The project's threads.
            thread_id: Its id.

        Raises:
            ThreadNotFound: It was pruned meanwhile.
        """
        record = store.look(store.registry.last_of(thread_id))
        result = store.registry.get_result(record.thread_id)
        return cls(record.status, result, record.pid or 0)

    def to_dict(self) -> dict[str, object]:
        """Return the additional fields of the response of a repeated start."""
        document: dict[str, object] = {"already_started": True, "state": self.status}
        if has_ended(self.status):
            document["result"] = self.result
        return document


def _scope_of_caller(capabilities: Collection[str] | None) -> str:
    if capabilities is None:
        return ""
    text = json.dumps(sorted(capabilities))
    return f"capabilities:{sha256(text.encode()).hexdigest()}"  # no thread's id has a colon


def describe_start(verb: str, earlier: EarlierStart | None) -> str:
    """Return the verb of a new start, or the state of the run that was started before."""
    return verb if earlier is None else f"already started, {earlier.status.replace('_', ' ')}"


def _scope_of(run: sqlite3.Connection, start: IdempotencyKey, parent_id: str | None) -> str:
    if parent_id is None:
        return start.scope
    query = "SELECT coalesce(chain_root_id, thread_id) FROM threads WHERE thread_id = ?"
    row = run.execute(query, (parent_id,)).fetchone()
    return parent_id if row is None else str(row[0])


def refuse_started(
    run: sqlite3.Connection, start: IdempotencyKey | None, parent_id: str | None
) -> None:
    """Refuse a start whose key another one has; one that ended before it began frees its key.

    One whose process died before it could begin is ended first, so that nothing can begin it.

    Args:
        run: The transaction.
        start: The key; None for none.
        parent_id: The thread that starts it.

    Raises:
        AlreadyStarted: The same request was started with it. `thread_id` is its thread, or the last
            one that resumed it.
        InputError: Another request was.
    """
    if start is None:
        return
    row = run.execute(
        "SELECT * FROM threads WHERE start_scope = ? AND start_key = ?",
        (_scope_of(run, start, parent_id), start.key),
    ).fetchone()
    if row is None:
        return
    record, digest = record_of(row), row["start_digest"]
    thread_id, item_id = record.thread_id, record.item_id
    is_dead = record.status == "created" and is_abandoned(record)
    if is_dead:
        end_abandoned(run, record)
    if is_dead or _never_began(record):
        free_start_key(run, thread_id)
        return
    if digest != start.digest:
        is_same = item_id == start.item_id
        difference = "with other parameters" if is_same else f"not {start.item_id}"
        raise InputError(
            f"The idempotency key {start.key} was used to start {item_id}, {difference}: "
            f"{thread_id}.",
            next_step="Use a key of its own for each request.",
        )
    last = _resumed(run, record)
    resumed = "" if last is record else f", which {last.thread_id} resumed"
    raise AlreadyStarted(
        f"{item_id} was started with the idempotency key {start.key} already, as "
        f"{thread_id}{resumed}.",
        next_step=f"See it: rye threads show {last.thread_id}",
        thread_id=last.thread_id,
        state=last.status,
    )


def _resumed(run: sqlite3.Connection, record: ThreadRecord) -> ThreadRecord:
    """Return the last thread that resumes one that failed or was stopped; itself without one.

    A thread stands for those that it was handed off to.
    """
    query = (
        "SELECT * FROM threads WHERE continuation_of = ?"
        " AND chain_root_id IS NOT NULL ORDER BY rowid DESC"  # a fork has none
    )
    last = record
    while record.status == "continued" or record.status in _RESUMABLE:
        rows = map(record_of, run.execute(query, (record.thread_id,)))
        following = next((one for one in rows if not _never_began(one)), None)
        if following is None:
            break
        if record.status != "continued":
            last = following
        record = following
    return last


def _never_began(record: ThreadRecord) -> bool:
    return record.ended and record.fence <= _NEVER_CLAIMED


def free_start_key(run: sqlite3.Connection, thread_id: str) -> None:
    """Free the key that a thread was started with.

    Args:
        run: The transaction.
        thread_id: The thread.
    """
    run.execute("UPDATE threads SET start_key = NULL WHERE thread_id = ?", (thread_id,))


def keep_start_key(
    run: sqlite3.Connection, thread_id: str, start: IdempotencyKey | None, parent_id: str | None
) -> None:
    """Note the key that a thread was started with.

    Args:
        run: The transaction that registers it.
        thread_id: The thread.
        start: The key; None for none.
        parent_id: The thread that starts it.
    """
    if start is not None:
        run.execute(
            "UPDATE threads SET start_scope = ?, start_key = ?, start_digest = ?"
            " WHERE thread_id = ?",
            (_scope_of(run, start, parent_id), start.key, start.digest, thread_id),
        )
