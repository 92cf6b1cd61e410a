"""The table of runs in `node.db`.

Source: docs/design/remote.md#on-the-node; decision 70.
"""

import json
from collections.abc import Collection, Mapping
from sqlite3 import Row
from typing import Any, Final, Literal, Self

from ryecore.convert.json_text import make_encoder
from ryecore.frozen import frozen
from ryecore.items.signature import utc_now
from ryecore.node.events import NodeEvent
from ryecore.node.gate import Admission
from ryecore.remote.protocol.models import ExecuteBody, RunState, RunStatus, read_body
from ryecore.state.database import Database

__all__ = ["RunRow", "RunTable"]

_encode: Final = make_encoder()


@frozen(slots=False)
class RunRow:
    """A run, as the node's database knows it.

    Attributes:
        caller: The fingerprint of its caller.
        thread_id: The caller's id of it.
        request_sha256: The SHA-256 of the request.
        body: The request.
        status: Its status.
        node_thread_id: The id of its thread on the node; None for a tool's.
        space: The name of its space's folder; None before it has one.
        stop: How it was asked to stop; None where it wasn't.
        max_spend_microcents: The most that it may spend, in units of 1e-8 USD; None for no bound.
        created_at: When the node took the request, in UTC.
        report: The signed report; None before its end.
        handed_id: Its id in the state that is shared with the workers to whom it was handed; None
            where it wasn't.
    """

    caller: str
    thread_id: str
    request_sha256: str
    body: ExecuteBody
    status: RunStatus
    node_thread_id: str | None
    space: str | None
    stop: Literal["cancel", "kill"] | None
    max_spend_microcents: int | None
    created_at: str
    report: Mapping[str, Any] | None
    handed_id: str | None = None

    @classmethod
    def of(cls, caller: str, body: ExecuteBody, request_sha256: str) -> Self:
        """Return the row of a run that is about to begin."""
        now = utc_now()
        return cls(
            caller,
            body.thread_id,
            request_sha256,
            body,
            "running",
            None,
            None,
            None,
            None,
            now,
            None,
        )

    @property
    def status_event(self) -> NodeEvent:
        """Its end as the only event of a run that has no other ones."""
        return NodeEvent(1, "status", self.end)

    @property
    def end(self) -> Mapping[str, Any]:
        """What the event of its end holds."""
        return {"status": self.status, "node_thread_id": self.node_thread_id}

    def to_state(self) -> RunState:
        """Return the state that its caller sees."""
        return RunState(self.thread_id, self.status, self.node_thread_id, self.report)


class RunTable:
    """The runs of all callers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, caller: str, thread_id: str) -> RunRow | None:
        """Return a caller's run by its id."""
        query = "SELECT * FROM runs WHERE caller = ? AND thread_id = ?"
        rows = await self._database.fetch(query, (caller, thread_id))
        return _read(rows[0]) if rows else None

    async def list_running(self) -> tuple[RunRow, ...]:
        """Return the runs that have not ended, oldest first."""
        query = "SELECT * FROM runs WHERE ended_at IS NULL ORDER BY created_at, thread_id"
        return tuple(map(_read, await self._database.fetch(query)))

    async def count_running(self, caller: str) -> int:
        """Return how many runs of a caller have not ended."""
        query = "SELECT count(*) FROM runs WHERE caller = ? AND ended_at IS NULL"
        return int((await self._database.fetch(query, (caller,)))[0][0])

    async def count_ended(self) -> Mapping[str, int]:
        """Return how many runs that are kept have ended, by their statuses."""
        query = "SELECT status, count(*) FROM runs WHERE ended_at IS NOT NULL GROUP BY status"
        return {row[0]: int(row[1]) for row in await self._database.fetch(query)}

    async def list_snapshots(self) -> Mapping[str, Collection[str]]:
        """Return the snapshots of the runs that have not ended, by caller."""
        found: dict[str, set[str]] = {}
        query = "SELECT DISTINCT caller, snapshot FROM runs WHERE ended_at IS NULL"
        for row in await self._database.fetch(query):
            found.setdefault(row[0], set()).add(row[1])
        return found

    async def spent_microcents(self, caller: str) -> int:
        """Return what a caller's ended runs have spent, in units of 1e-8 USD.

        The upkeep sums up those that it removes in `spent`.
        """
        query = (
            "SELECT (SELECT coalesce(sum(spend_microcents), 0) FROM runs"
            " WHERE caller = ?1 AND spend_microcents > 0)"
            " + coalesce((SELECT microcents FROM spent WHERE caller = ?1), 0)"
        )
        return int((await self._database.fetch(query, (caller,)))[0][0])

    async def insert(self, row: RunRow, request: str, admission: Admission | None = None) -> bool:
        """Insert a run that is about to begin, and with it the nonce of its request.

        Args:
            row: The run.
            request: Its request as it is stored, of which the row's `body` is read.
            admission: The admission of its request.

        Returns:
            Whether its caller hadn't used its id.

        Raises:
            NodeProblem: The nonce was used before.
        """
        body = row.body
        async with self._database.writing() as run:
            if admission is not None:
                admission.write(run)
            inserted = run.execute(
                "INSERT INTO runs"
                " (caller, thread_id, item_id, snapshot, request_sha256, request, space,"
                " max_spend_microcents, size_bytes, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (
                    row.caller, row.thread_id, body.item_id, body.snapshot, row.request_sha256,
                    request, row.space, row.max_spend_microcents, len(request),
                    row.created_at,
                ),
            )  # fmt: skip
        if admission is not None:
            admission.confirm()
        return inserted.rowcount == 1

    async def place(self, caller: str, thread_id: str, space: str) -> None:
        """Note the space of a run."""
        await self._update("UPDATE runs SET space = ?", caller, thread_id, space)

    async def hand(self, caller: str, thread_id: str, handed_id: str) -> None:
        """Note the id of a run that was handed to workers."""
        await self._update("UPDATE runs SET handed_id = ?", caller, thread_id, handed_id)

    async def begin(self, caller: str, thread_id: str, node_thread_id: str) -> None:
        """Note the thread of a run."""
        await self._update("UPDATE runs SET node_thread_id = ?", caller, thread_id, node_thread_id)

    async def bound(self, caller: str, thread_id: str, most: int | None) -> None:
        """Note the most that a run may spend, in units of 1e-8 USD."""
        await self._update("UPDATE runs SET max_spend_microcents = ?", caller, thread_id, most)

    async def ask_to_stop(self, caller: str, thread_id: str, *, kill: bool) -> None:
        """Note that a run was asked to stop. A kill stays one."""
        change = "UPDATE runs SET stop = CASE stop WHEN 'kill' THEN stop ELSE ? END"
        await self._update(change, caller, thread_id, "kill" if kill else "cancel")

    def begin_sync(self) -> None:
        """Begin what `synced` waits for."""
        self._database.begin_sync()

    async def synced(self) -> None:
        """Wait until what was written so far survives a power cut."""
        await self._database.synced()

    async def end(
        self,
        caller: str,
        thread_id: str,
        status: RunStatus,
        report: Mapping[str, Any],
        spend_microcents: int,
    ) -> int:
        """End a run that hasn't ended.

        Returns:
            The bytes of its report.
        """
        text = _encode(report)
        await self._update(
            "UPDATE runs SET status = ?, report = ?, spend_microcents = ?, ended_at = ?,"
            " size_bytes = size_bytes + ? + (SELECT coalesce(sum(length(data)), 0) FROM events"
            " WHERE events.caller = runs.caller AND events.thread_id = runs.thread_id)",
            caller,
            thread_id,
            status,
            text,
            spend_microcents,
            utc_now(),
            len(text),
        )
        return len(text)

    async def stored_bytes(self) -> Mapping[str, int]:
        """Return the bytes of each caller's runs in the database."""
        query = "SELECT caller, sum(size_bytes) FROM runs INDEXED BY runs_by_end GROUP BY caller"
        return {row[0]: int(row[1]) for row in await self._database.fetch(query)}

    async def _update(self, change: str, caller: str, thread_id: str, *values: object) -> None:
        async with self._database.writing() as run:
            run.execute(
                f"{change} WHERE caller = ? AND thread_id = ? AND ended_at IS NULL",
                (*values, caller, thread_id),
            )


def _read(row: Row) -> RunRow:
    report = row["report"]
    return RunRow(
        row["caller"],
        row["thread_id"],
        row["request_sha256"],
        read_body(json.loads(row["request"]), ExecuteBody),
        row["status"],
        row["node_thread_id"],
        row["space"],
        row["stop"],
        row["max_spend_microcents"],
        row["created_at"],
        None if report is None else json.loads(report),
        row["handed_id"],
    )
