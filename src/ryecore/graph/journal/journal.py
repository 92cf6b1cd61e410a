"""The journal of a run: its events, and signed checkpoints of its positions.

A checkpoint is written in four steps: the position as an object in the content store, a record that
names its digest, the transcript's signed line, which attests both, and the head in the registry. A
process that dies between any two steps leaves a journal from which the run can be resumed.

Source: decisions 38 and 47.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from ryecore.agent.outcome import NodeOutcome
from ryecore.errors import StateError
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import STATE_CHECKPOINT
from ryecore.graph.projection import SHOWN_TYPES, GraphEvent, event_of
from ryecore.graph.schedule import Position
from ryecore.policy.context import EventSink
from ryecore.state.events import EventBus, EventsMissed, EventStream
from ryecore.state.record_log import RecordLog, RecordStore
from ryecore.state.transcript_format import CHECKPOINT, Head
from ryecore.state.waiting import run_in_thread

__all__ = ["Journal", "SetHead"]

SetHead: TypeAlias = Callable[[Head], Awaitable[None]]
"""Writes a journal's last checkpoint to the registry."""

_STEPS: Final = frozenset({
    "run_started", "run_resumed", "node_started", "node_retry", "item_completed", "node_completed",
})  # fmt: skip
"""The events that the event sink of a run's caller receives."""


class Journal:
    """The only writer of a run's journal. Made by `create`.

    `head` is None before the first checkpoint; `step` counts the nodes before the last one.
    """

    def __init__(
        self,
        run_id: str,
        log: RecordLog,
        records: RecordStore,
        positions: PositionStore,
        sink: EventSink | None,
        set_head: SetHead | None,
    ) -> None:
        self.head: Head | None = None
        self.step = 0
        self._run_id = run_id
        self._log = log
        self._records = records
        self._positions = positions
        self._sink = sink
        self._set_head = set_head
        self._bus: EventBus[GraphEvent] | None = None
        self._appended = 0
        self._is_closed = False
        self._is_head_due = False

    @classmethod
    async def create(
        cls,
        records: RecordStore,
        positions: PositionStore,
        run_id: str,
        *,
        sink: EventSink | None = None,
        set_head: SetHead | None = None,
    ) -> Self:
        """Create a run's journal; StateError where it can't be made, or exists already.

        Args:
            sink: The caller's event sink, which gets each step and the names of nodes, no values.
            set_head: Writes each checkpoint to the registry.
        """
        await run_in_thread(positions.prepare)
        log = await records.create(run_id)
        return cls(run_id, log, records, positions, sink, set_head)

    def append(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Record an event of JSON, to be written by the next flush, checkpoint or commit."""
        try:
            self._log.append(kind, payload)
        except TypeError as problem:
            raise StateError(
                f"A record of {self._run_id} ({kind}) holds what JSON lacks: {problem}.",
                next_step="Use only texts, numbers, booleans, null, lists and mappings.",
            ) from None
        self._appended += 1
        if self._bus is not None:
            self._bus.emit(GraphEvent(self._run_id, time.time(), kind, payload))
        if self._sink is not None and kind in _STEPS:
            about = payload.get("node", self._run_id)
            self._sink({"step": kind, "item_id": about, "turn": self.step})

    def show(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Send an event to the live listeners, without storing it."""
        if self._bus is not None:
            self._bus.emit(GraphEvent(self._run_id, time.time(), kind, payload))

    async def flush(self) -> None:
        """Write all records so far, so that they survive the death of the process."""
        await self._log.flush()

    async def commit(self) -> None:
        """Write all records so far as safely as the durability demands, before an effect."""
        await self._positions.synced()
        await self._log.commit()
        if self._is_head_due and self._set_head is not None and self.head is not None:
            self._is_head_due = False
            await self._set_head(self.head)

    async def checkpoint(
        self, position: Position, carried: Mapping[int, NodeOutcome] = MappingProxyType({})
    ) -> None:
        """Write a checkpoint, from which the run can be resumed.

        After a StateError the journal is unchanged, and the next checkpoint tries again.

        Args:
            position: The position. Values of its state are replaced, never changed in place.
            carried: The outcomes of the foreach's members in the run that this one resumes, by
                their indexes. They are part of the same write, so that no crash can lose them.
        """
        digest = self._positions.put(position)
        step = position.step
        said = {"step": step, "node": position.node, "state_hash": digest}
        if position.ending is not None:
            said["ended"] = position.ending.status
        self.append(STATE_CHECKPOINT, said)
        for index, outcome in carried.items():
            about = {"node": position.node, "index": index, "carried": True}
            self.append("item_completed", {**about, **self.outcome_of(outcome)})
        await self._sign(step)

    async def break_off(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Write and sign the end of a run whose position can't be stored."""
        if self._is_closed:
            return
        self.append(kind, payload)
        await self._sign(self.step)
        await self.commit()

    async def _sign(self, step: int) -> None:
        self.head = head = await self._log.checkpoint(step)
        self.step = step
        self._appended += 1
        if self._bus is not None:
            said = {"turn": step, "offset": head.offset, "digest": head.digest}
            self._bus.emit(GraphEvent(self._run_id, time.time(), CHECKPOINT, said))
        if self._positions.is_durable:
            self._is_head_due = True  # a head never covers a record that a power cut can take
        elif self._set_head is not None:
            await self._set_head(head)

    @property
    def is_listened_to(self) -> bool:
        """Whether there is a listener."""
        return self._bus is not None

    def outcome_of(self, outcome: NodeOutcome) -> dict[str, object]:
        """Return an outcome's fields in a record, as `PositionStore.outcome_of` makes them."""
        return self._positions.outcome_of(outcome)

    async def _listen(self) -> tuple[int, EventStream[GraphEvent]]:
        """Subscribe: return the journal's length so far, and a stream of the events to come."""
        appended = -1
        while appended != self._appended:  # otherwise an event could be in neither part
            appended = self._appended
            await self._log.flush()
        if self._bus is None:
            self._bus = EventBus(self._run_id)
        return self._log.offset, self._bus.subscribe()

    async def events(self) -> AsyncGenerator[GraphEvent, None]:
        """Stream the events of the run: the written ones, then live until the journal closes.

        Each comes once; what a slow reader missed is read from the log.
        """
        if self._is_closed:
            async with aclosing(self._records.read(self._run_id)) as records:
                async for record in records:
                    yield event_of(record)
            return
        offset, live = await self._listen()
        async with aclosing(self._records.read(self._run_id, to_offset=offset)) as records:
            async for record in records:
                yield event_of(record)
        given = 0  # since `offset`
        while True:
            async for envelope in live:
                if isinstance(envelope, EventsMissed):
                    break
                given += envelope.event.type not in SHOWN_TYPES
                yield envelope.event
            else:
                return
            until = None if self._is_closed else await self._listen()
            missed = self._records.read(
                self._run_id, from_offset=offset, to_offset=until[0] if until else None
            )
            async with aclosing(missed) as records:
                async for record in records:
                    if given > 0:
                        given -= 1
                    else:
                        yield event_of(record)
            if until is None:
                return
            (offset, live), given = until, 0

    async def close(self) -> None:
        """Write pending records, close the log in any case, and end the listeners' streams."""
        self._is_closed = True
        try:
            await self._log.close()
        finally:
            if self._bus is not None:
                self._bus.close()
