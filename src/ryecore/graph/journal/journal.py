"""The journal of a run: its events, and signed checkpoints of its positions.

A checkpoint is written in four steps: the position as an object in the content store, a record that
names its digest, the transcript's signed line, which attests both, and the head in the registry. A
process that dies between any two steps leaves a journal from which the run can be resumed.

Source: decisions 38 and 47.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Self, TypeAlias

from typing_extensions import override

from ryecore.agent.outcome import NodeOutcome
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import STATE_CHECKPOINT
from ryecore.graph.schedule import Position
from ryecore.policy.context import EventSink
from ryecore.state.events import Recorder
from ryecore.state.record_log import RecordLog, RecordStore
from ryecore.state.transcript_format import Head
from ryecore.state.waiting import run_in_thread

__all__ = ["Journal", "SetHead"]

SetHead: TypeAlias = Callable[[Head], Awaitable[None]]
"""Writes a journal's last checkpoint to the registry."""


class Journal(Recorder):
    """The recorder of a run's events. Made by `create`. Its sink gets the names of nodes."""

    steps = frozenset({
        "run_started", "run_resumed", "node_started", "node_retry", "item_completed",
        "node_completed",
    })  # fmt: skip
    subject = "node"

    def __init__(
        self,
        run_id: str,
        log: RecordLog,
        records: RecordStore,
        positions: PositionStore,
        sink: EventSink | None,
        set_head: SetHead | None,
    ) -> None:
        super().__init__(run_id, log, records, sink)
        self._positions = positions
        self._set_head = set_head
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
        """Create a run's journal; StateError where it can't be made, or exists already."""
        await run_in_thread(positions.prepare)
        log = await records.create(run_id)
        return cls(run_id, log, records, positions, sink, set_head)

    @override
    async def flush(self) -> None:
        await self._positions.stored()
        await super().flush()

    @override
    async def close_turn(self, turn: int, *, soon: bool = False) -> Head:
        await self._positions.stored()
        return await super().close_turn(turn, soon=soon)

    @override
    async def write_ahead(self, *, closes: bool = False) -> None:
        await self._positions.synced()
        await super().write_ahead(closes=closes)
        if self._is_head_due and self._set_head is not None and self.head is not None:
            self._is_head_due = False
            await self._set_head(self.head)

    @override
    async def commit(self) -> None:
        await self.write_ahead()
        await super().commit()

    async def checkpoint(
        self, position: Position, carried: Mapping[int, NodeOutcome] = MappingProxyType({})
    ) -> None:
        """Write a checkpoint, from which the run can be resumed.

        After a StateError the journal is unchanged, and the next checkpoint tries again. Values of
        the position's state are replaced, never changed in place. `carried` are the outcomes of
        foreach's members in the resumed run, by index: in the same write, so that no crash can lose
        them.
        """
        digest = self._positions.put(position)
        step = position.step
        members = {index: self.outcome_of(outcome) for index, outcome in carried.items()}
        await self._positions.stored()
        said = {"step": step, "node": position.node, "state_hash": digest}
        if position.ending is not None:
            said["ended"] = position.ending.status
        self.append(STATE_CHECKPOINT, said)
        for index, fields in members.items():
            about = {"node": position.node, "index": index, "carried": True}
            self.append("item_completed", {**about, **fields})
        await self._sign(step)

    async def break_off(self, kind: str, payload: Mapping[str, Any]) -> None:
        """Write and sign the end of a run whose position can't be stored."""
        if self._is_closed:
            return
        self.append(kind, payload)
        await self._sign(self.turn)
        await self.commit()

    async def _sign(self, step: int) -> None:
        head = await self.close_turn(step)
        self.turn = step
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
