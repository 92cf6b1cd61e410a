"""The events of runs: stored before they are sent, so that no id is ever used twice.

Source: docs/design/remote.md#requests; decision 63.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, Literal

import anyio

from ryecore.convert.json_text import make_encoder
from ryecore.frozen import frozen
from ryecore.state.database import Database

__all__ = ["EventLog", "NodeEvent", "RunEvents"]

EventName = Literal["status", "run", "tree"]

_PAGE: Final = 200
_MAX_STORED_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of a run's events; beyond them only its status and its tree are stored."""

_encode: Final = make_encoder(ascii_only=True)


@frozen
class NodeEvent:
    """An event of a run.

    Attributes:
        id: Its number in the run, higher than that of each event before it.
        event: Its name: the `status` of the run, an event of its thread (`run`), or its `tree`.
        data: The event, JSON-ready.
    """

    id: int
    event: EventName
    data: Mapping[str, Any]


class RunEvents:
    """The stored events of all runs.

    Args:
        database: The node's database.
        start: Starts a task that calls the log's `write`; called when its first event is added.
    """

    def __init__(self, database: Database, start: "Callable[[EventLog], None]") -> None:
        self._database = database
        self._start = start

    def begin(self, caller: str, thread_id: str) -> "EventLog":
        """Open the log of a new run."""
        return EventLog(self._database, self._start, caller, thread_id)

    async def reopen(self, caller: str, thread_id: str) -> "EventLog":
        """Open the log of a run that is recovered."""
        rows = await self._database.fetch(
            "SELECT coalesce(max(id), 0), coalesce(sum(length(data)), 0),"
            " count(*) FILTER (WHERE event = 'run') FROM events"
            " WHERE caller = ? AND thread_id = ?",
            (caller, thread_id),
        )
        return EventLog(self._database, self._start, caller, thread_id, *rows[0])

    async def follow(
        self, caller: str, thread_id: str, after: int, log: "EventLog | None"
    ) -> AsyncGenerator[NodeEvent]:
        """Yield the events behind an id, and those of a log that is open until it is closed."""
        while True:
            is_closed = log is None or log.is_closed
            rows = await self._database.fetch(
                "SELECT id, event, data FROM events"
                " WHERE caller = ? AND thread_id = ? AND id > ? ORDER BY id LIMIT ?",
                (caller, thread_id, after, _PAGE),
            )
            for row in rows:
                after = row["id"]
                yield NodeEvent(after, row["event"], json.loads(row["data"]))
            if len(rows) == _PAGE:
                continue
            if log is None or is_closed:
                return
            await log.stored_behind(after)


class EventLog:
    """The events of a run of this process. `write` stores them, in a task of its own."""

    def __init__(
        self,
        database: Database,
        start: "Callable[[EventLog], None]",
        caller: str,
        thread_id: str,
        last_id: int = 0,
        size_bytes: int = 0,
        run_events: int = 0,
    ) -> None:
        self._database = database
        self._caller = caller
        self._start = start
        self._is_started = False
        self.thread_id = thread_id
        self._last_id = last_id
        self._stored_id = last_id
        self._size_bytes = size_bytes
        self.run_events = run_events
        self._pending: list[tuple[int, EventName, str]] = []
        self._is_ending = False
        self._added: anyio.Event | None = None  # once the writer is started
        self._stored: anyio.Event | None = None  # while somebody waits for it
        self._tree: Mapping[str, Any] | None = None
        self.is_closed = False

    def add(self, event: EventName, data: Mapping[str, Any]) -> None:
        """Add an event, without waiting. One that JSON lacks, or that is too much, is left out."""
        if self.is_closed:  # its writer failed, such as on a full disk: nothing is stored any more
            return
        try:
            text = _encode(data)
        except (TypeError, ValueError, RecursionError):
            return
        if event == "run":
            if self._size_bytes + len(text) > _MAX_STORED_BYTES:
                return
            self._size_bytes += len(text)
            self.run_events += 1
        self._last_id += 1
        self._pending.append((self._last_id, event, text))
        self._wake_writer()

    def _wake_writer(self) -> None:
        if not self._is_started:
            self._is_started = True
            self._start(self)
        self._added = self._added or anyio.Event()
        self._added.set()

    @property
    def is_empty(self) -> bool:
        """Whether the run has had no events yet."""
        return self._last_id == 0

    def add_tree(self, tree: Mapping[str, Any]) -> None:
        """Add the tree of the run's threads, unless it is the same as the last one."""
        if tree != self._tree:
            self._tree = tree
            self.add("tree", tree)

    async def write(self) -> None:
        """Store what is added, until the log is closed. Several events are one transaction."""
        try:
            while not self._is_ending or self._pending:
                added = self._added = self._added or anyio.Event()
                await added.wait()
                self._added = None
                await self._store()
                self._wake()
        finally:
            self.is_closed = True
            self._wake()

    def _wake(self) -> None:
        stored, self._stored = self._stored, None
        if stored is not None:
            stored.set()

    async def _wait(self) -> None:
        stored = self._stored = self._stored or anyio.Event()
        await stored.wait()

    async def _store(self) -> None:
        batch, self._pending = self._pending, []
        if not batch:
            return
        key = (self._caller, self.thread_id)
        trees = [number for number, event, _ in batch if event == "tree"]
        async with self._database.writing() as run:
            if trees:  # only the last tree counts
                run.execute(
                    "DELETE FROM events WHERE caller = ? AND thread_id = ? AND event = 'tree'", key
                )
            run.executemany(
                "INSERT INTO events (caller, thread_id, id, event, data) VALUES (?, ?, ?, ?, ?)",
                [(*key, *one) for one in batch if one[1] != "tree" or one[0] == trees[-1]],
            )
        self._stored_id = batch[-1][0]

    def close(self) -> None:
        """Close the log once all is stored."""
        self._is_ending = True
        if self._is_started:
            self._wake_writer()
        else:
            self.is_closed = True
            self._wake()

    async def closed(self) -> None:
        """Wait until all is stored."""
        while not self.is_closed:
            await self._wait()

    async def stored_behind(self, after: int) -> None:
        """Wait until an event behind an id is stored, or the log is closed."""
        while self._stored_id <= after and not self.is_closed:
            await self._wait()
