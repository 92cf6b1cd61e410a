"""The reader of a map's result, from the journals of its run and of those that it resumes."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from ryecore.agent.outcome import NodeOutcome
from ryecore.convert.money import to_usd
from ryecore.errors import BudgetNotRegistered, InputError, StateError, ThreadNotFound
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import STATE_CHECKPOINT
from ryecore.graph.map_result import MapReport, MapRow, MapStatus, RowStatus
from ryecore.graph.mapping import ROWS, recorded_options
from ryecore.policy.limits import read_limits
from ryecore.state.transcript_format import Record

if TYPE_CHECKING:
    from ryecore.state.model import ThreadRecord
    from ryecore.state.store import ThreadStore

__all__ = ["read_map"]

_STATUSES: Final[Mapping[str, MapStatus]] = {
    "completed": "completed", "cancelled": "cancelled", "killed": "killed", "error": "error",
}  # fmt: skip


@define
class _Row:
    """What the journals say of one row: its last outcome, in which run, and what it cost."""

    outcome: Mapping[str, Any] | None = None
    run_id: str = ""
    thread_id: str | None = None
    spent: int = 0
    has_begun: bool = False


@define
class _Journals:
    """What the journals of a map say, read from the oldest run to the last."""

    started: Mapping[str, Any] | None = None
    limit: int | None = None
    state_hash: str | None = None
    rows: dict[int, _Row] = field(factory=dict)
    ran_s: float = 0.0

    def begin(self) -> None:
        """Begin with the journal of another run."""
        self.started = self.state_hash = None
        for row in self.rows.values():
            row.has_begun = False

    def take(self, run_id: str, record: Record) -> None:
        """Take the next record of a journal."""
        payload = record.payload
        if record.type in ("item_started", "item_completed"):
            index = payload.get("index")
            if type(index) is int:
                self._take_of_row(self.rows.setdefault(index, _Row()), run_id, record)
        elif record.type == STATE_CHECKPOINT and self.state_hash is None:
            digest = payload.get("state_hash")
            self.state_hash = digest if isinstance(digest, str) else None
        elif record.type == "run_started" and self.started is None:
            self.started = payload

    def _take_of_row(self, row: _Row, run_id: str, record: Record) -> None:
        payload = record.payload
        if record.type == "item_started":
            row.has_begun = True
            row.outcome = None
            return
        row.has_begun = False
        if payload.get("carried"):  # from a run that was read already, unless it was removed
            if row.outcome is None:
                row.outcome, row.run_id = payload, run_id
            return
        row.outcome, row.run_id = payload, run_id
        row.thread_id = payload.get("thread_id") or row.thread_id
        row.spent += int(payload.get("spend_microcents", 0))


async def read_map(store: "ThreadStore", run_id: str) -> MapReport:
    """Read the result of a map, as far as it has come.

    Raises:
        InputError: The run isn't one of a map.
        StateError: Its journal can't be read.
    """
    chain = await _chain(store, run_id)
    journals, spent = _Journals(), 0
    for record in chain:
        journals.begin()
        first = last = None
        async with aclosing(store.records.read(record.thread_id)) as records:
            async for one in records:
                journals.take(record.thread_id, one)
                first, last = first or one.timestamp, one.timestamp
        journals.ran_s += (last or 0.0) - (first or 0.0)
        spent += await _spent(store, record.thread_id)
    record = chain[-1]
    started = journals.started or {}
    options = recorded_options(started)
    if options is None:
        raise InputError(
            f"{record.thread_id} isn't the run of a map.",
            next_step=f"See what it ran: rye graph show {record.thread_id}",
        )
    inputs = await _inputs(store, record.thread_id, journals.state_hash)
    results = tuple(
        [
            await _row(store, index, given, journals.rows.get(index, _Row()))
            for index, given in enumerate(inputs)
        ]
    )
    status: MapStatus = _STATUSES.get(record.status, "running")
    if status == "completed" and any(one.status != "completed" for one in results):
        status = "completed_with_errors"
    return MapReport(
        run_id=record.thread_id,
        item_id=str(options.item),
        status=status,
        results=results,
        error=await _error(store, record),
        spend_microcents=spent,
        limit_microcents=read_limits(started.get("asked", {})).spend_microcents,
        duration_s=journals.ran_s,
        next_step=_next_step(record.thread_id, status, results),
    )


def _next_step(run_id: str, status: MapStatus, results: Sequence[MapRow]) -> str:
    if status == "running" or all(one.status == "completed" for one in results):
        return ""
    if status in ("completed", "completed_with_errors"):
        return f"Run the failed rows again: rye map --retry-failed {run_id}"
    has_unknown = any(one.status == "interrupted" for one in results)
    rerun = ", with --rerun to repeat the rows that were interrupted" if has_unknown else ""
    return f"Go on: rye map --resume {run_id}{rerun}"


async def _chain(store: "ThreadStore", run_id: str) -> "list[ThreadRecord]":
    """Return a run and those that it resumes, the oldest first; one that was removed ends it."""
    record = await store.look(run_id)
    chain = [record]
    while record.continuation_of is not None:
        try:
            record = await store.look(record.continuation_of)
        except ThreadNotFound:
            break
        chain.append(record)
    return chain[::-1]


async def _inputs(
    store: "ThreadStore", run_id: str, digest: str | None
) -> "list[Mapping[str, object]]":
    if digest is None:
        return []
    position = await PositionStore(store.objects(run_id), run_id).get(digest)
    rows = position.state.get(ROWS)
    return rows if isinstance(rows, list) else []


async def _row(store: "ThreadStore", index: int, inputs: Mapping[str, object], row: _Row) -> MapRow:
    cost = to_usd(row.spent)
    if row.outcome is None:
        status: RowStatus = "interrupted" if row.has_begun else "pending"
        return MapRow(index, status, None, None, cost, row.thread_id, inputs)
    outcome = await PositionStore(store.objects(row.run_id), row.run_id).outcome_from(row.outcome)
    if outcome.failure is not None:
        error = outcome.failure.message
        return MapRow(index, "failed", None, error, cost, row.thread_id, inputs)
    return MapRow(index, "completed", _output(outcome), None, cost, row.thread_id, inputs)


def _output(outcome: NodeOutcome) -> object:
    """Return what an item returned: the outputs of a directive, else its text; a tool's data."""
    document = outcome.output
    if not isinstance(document, Mapping):
        return document
    if document.get("type") == "directive" and "thread_id" in document:
        return document.get("outputs") or document.get("result")
    if "graph_run_id" in document:
        return document.get("output")
    return document


async def _spent(store: "ThreadStore", run_id: str) -> int:
    try:
        return (await store.ledger.tree(run_id)).spent.spend_microcents
    except BudgetNotRegistered:  # it ended before it had an account
        return 0


async def _error(store: "ThreadStore", record: "ThreadRecord") -> str | None:
    if record.status in ("completed", "running", "created"):
        return None
    try:
        result = await store.registry.get_result(record.thread_id)
    except StateError:
        return None
    error = result.get("error") if isinstance(result, Mapping) else None
    return str(error) if error else f"The map ended as {record.status}."
