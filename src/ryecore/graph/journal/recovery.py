"""The recovery of a run from its journal: its last position, and the records after it.

A run is resumed only from a position that a signed checkpoint attests. Complete results after it
are used. Whether a call that had begun there and has no end took effect is unknown.

Source: decision 47.
"""

from collections.abc import Mapping
from contextlib import aclosing
from copy import copy
from decimal import Decimal
from typing import Any, Final

from attrs import define, evolve, field

from ryecore.agent.outcome import NodeFailure, NodeOutcome
from ryecore.errors import StateError, StoreError
from ryecore.frozen import frozen
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.model import (
    ActionVertex,
    AgentForeach,
    AgentVertex,
    CallingVertex,
    ForeachVertex,
    VertexOfGraph,
)
from ryecore.graph.schedule import Position
from ryecore.policy.hooks import CONTROLS, Control
from ryecore.state.record_log import RecordStore
from ryecore.state.transcript_format import CHECKPOINT, Record

__all__ = ["STATE_CHECKPOINT", "Fold", "RecoveredRun", "is_unknown", "never_began", "read_run"]

STATE_CHECKPOINT: Final = "state_checkpoint"
_OF_ITEMS: Final = frozenset({"item_started", "item_retry", "item_completed"})
_ENDS: Final = frozenset({"run_completed", "run_error", "run_cancelled", "run_killed"})
_NO_ITEMS: Final[frozenset[int]] = frozenset()


@frozen
class RecoveredRun:
    """The recovered state of a run.

    Attributes:
        started: The payload of `run_started`.
        position: The position of the last checkpoint; None where the run has done nothing.
        completed: The outcome of the position's node, where it is recorded after the checkpoint.
        control: The control result of the hooks of its error.
        in_flight: The node that had begun and has no known end.
        items: The outcomes of the foreach's members whose end is known.
        items_in_flight: The members that had begun and have no known end.
        ran_s: How long the run lasted, in seconds, by its records.
    """

    started: Mapping[str, Any]
    position: Position | None
    completed: NodeOutcome | None = None
    control: Control | None = None
    in_flight: str | None = None
    items: Mapping[int, NodeOutcome] = field(factory=dict)
    items_in_flight: frozenset[int] = _NO_ITEMS
    ran_s: Decimal = Decimal(0)

    def left_by_failure(self) -> "RecoveredRun":
        """Return the part that remains when a node that has failed for good is run again.

        Failed members are called again too, except interrupted ones, whose end is unknown, as that
        of an interrupted node.
        """
        error = self.completed.failure if self.completed is not None else None
        failed = {i: one.failure for i, one in self.items.items() if one.failure is not None}
        broken_off = {index for index, one in failed.items() if _is_broken_off(one)}
        return evolve(
            self,
            completed=None,
            in_flight=error.node if error is not None and _is_broken_off(error) else None,
            items={index: one for index, one in self.items.items() if index not in failed},
            items_in_flight=self.items_in_flight | broken_off,
        )


def _is_broken_off(error: NodeFailure) -> bool:
    return error.effect_unknown or error.code == "cancelled"


@define
class _Behind:
    """The records after a position."""

    node: str | None = None
    is_in_flight: bool = False
    completed: Mapping[str, Any] | None = None
    items: dict[int, Mapping[str, Any]] = field(factory=dict)
    items_in_flight: set[int] = field(factory=set)

    def take(self, kind: str, payload: Mapping[str, Any]) -> None:
        if self.completed is not None:
            return
        if kind == "node_started":
            node = payload.get("node")
            self.node, self.is_in_flight = node if isinstance(node, str) else None, True
        elif kind == "node_retry":
            self.is_in_flight = False
        elif kind == "node_completed":
            self.completed, self.is_in_flight = payload, False
        elif kind in _OF_ITEMS:
            index = payload.get("index")
            if type(index) is not int:
                return
            if kind == "item_started":
                self.items_in_flight.add(index)
            else:
                self.items_in_flight.discard(index)
                if kind == "item_completed":
                    self.items[index] = payload

    def left_by_an_end(self) -> "_Behind":
        """Return the part that remains where the run was stopped or has failed at this node.

        A resumed run calls failed members again, and no others; the end of interrupted ones is
        unknown.
        """
        left = copy(self)
        left.items = {index: one for index, one in self.items.items() if not one.get("error")}
        left.items_in_flight = self.items_in_flight | {
            index for index, one in self.items.items() if _is_effect_unknown(one)
        }
        if self.completed is not None:
            left.is_in_flight = _is_effect_unknown(self.completed)
            left.completed = None
        return left


def _is_effect_unknown(outcome: Mapping[str, Any]) -> bool:
    """Return whether a record says that a call was interrupted: by signal, timeout or cancel."""
    return outcome.get("effect_unknown") is True or outcome.get("code") == "cancelled"


@define
class _Stand:
    """A position, by the digest of its object, and the records after it."""

    digest: str = ""
    step: int = 0
    has_ended: bool = False
    behind: _Behind = field(factory=_Behind)


class Fold:
    """The fold of a journal's records, one at a time, into the state after step `at`.

    With `members`, also the members of that step's foreach that are done, so that only the others
    are called again. Once a checkpoint attests the end (`is_over`), later records aren't the run's
    own, and are ignored.
    """

    def __init__(self, at: int | None = None, *, members: bool = False) -> None:
        self.is_over = False
        self.started: Mapping[str, Any] | None = None
        self.stand = _Stand()
        self.attested: tuple[int, str] | None = None
        self._at = at
        self._with_members = members
        self._found_at: _Stand | None = None
        self._unattested: tuple[int, _Stand] | None = None  # with its index in the segment
        self._records = 0
        self._has_end = False
        self._first_at: float | None = None
        self._last_at = 0.0

    def take(self, record: Record) -> None:
        """Take the next record."""
        kind, payload = record.type, record.payload
        if self.is_over:
            return
        self._first_at = record.timestamp if self._first_at is None else self._first_at
        self._last_at = record.timestamp
        self._has_end = self._has_end or kind in _ENDS
        if kind == CHECKPOINT:
            self._close(payload.get("unattested", 0))
            return
        self._records += 1
        if kind == STATE_CHECKPOINT:
            digest, step = payload.get("state_hash"), payload.get("step")
            if isinstance(digest, str) and type(step) is int:
                stand = _Stand(digest, step, "ended" in payload)
                if stand.has_ended:
                    stand.behind = self.stand.behind.left_by_an_end()
                self._unattested = (self._records, stand)
            return
        if kind == "run_started" and self.started is None:
            self.started = payload
        self.stand.behind.take(kind, payload)
        if self._unattested is not None:
            self._unattested[1].behind.take(kind, payload)

    def _close(self, left_by_a_crash: int) -> None:
        self.attested = None
        self.is_over = self._has_end
        if self._unattested is not None and self._unattested[0] > left_by_a_crash:
            self.stand = self._unattested[1]
            self.attested = (self.stand.step, self.stand.digest)
            if self.stand.step == self._at:
                # With members it gets the records behind it, too.
                self._found_at = (
                    self.stand if self._with_members else _Stand(self.stand.digest, self.stand.step)
                )
        self._unattested, self._records = None, 0

    async def found(self, run_id: str, states: PositionStore, records: RecordStore) -> RecoveredRun:
        """Return the recovered state, with its objects read."""
        if self.started is None:
            raise never_began(run_id)
        stand = self.stand if self._at is None else self._found_at
        if stand is None:
            raise StateError(
                f"The run {run_id} has no checkpoint after step {self._at}.",
                next_step=f"See its steps: rye graph show {run_id}",
            )
        ran_s = Decimal(str(self._last_at)) - Decimal(str(self._first_at))
        behind = stand.behind.left_by_an_end() if self._with_members else stand.behind
        try:
            return RecoveredRun(
                self.started,
                await states.get(stand.digest) if stand.digest else None,
                await states.outcome_from(behind.completed) if behind.completed else None,
                _control_of(behind.completed or {}),
                behind.node if behind.is_in_flight else None,
                {index: await states.outcome_from(one) for index, one in behind.items.items()},
                frozenset(behind.items_in_flight),
                max(ran_s, Decimal(0)),
            )
        except StoreError as problem:
            raise await _not_whole(run_id, states, records, stand.step, problem) from problem


def never_began(run_id: str, earlier: str | None = None) -> StateError:
    """Make the error for a run that ended before its first node, or before it resumed `earlier`."""
    next_step = "Run the graph anew."
    if earlier is not None:
        next_step = f"Resume the one before it: rye graph resume {earlier}"
    return StateError(
        f"The run {run_id} has left nothing to resume from: it ended before it began.",
        next_step=next_step,
    )


async def read_run(
    records: RecordStore,
    states: PositionStore,
    run_id: str,
    head: tuple[int, str] | None,
    *,
    at: int | None = None,
    members: bool = False,
    ended: bool = False,
) -> RecoveredRun:
    """Read the state of a run after step `at`; without a position where it never began.

    With `members`, the ones that are done of that step's foreach, as `Fold` has them.

    The journal must hold `head`, the last checkpoint that the registry knows, and nothing unsigned
    where the run has ended. One that can't be read, was altered or cut, or has no such step, is a
    StateError.
    """
    if head is None and not await records.exists(run_id):
        return RecoveredRun({}, None)
    fold = Fold(at, members=members)
    async with aclosing(records.read_proved(run_id, head, ended=ended)) as proved:
        async for record in proved:
            fold.take(record)
    if fold.started is None:
        return RecoveredRun({}, None)
    return await fold.found(run_id, states, records)


def _control_of(completed: Mapping[str, Any]) -> Control | None:
    return next((one for one in CONTROLS if one == completed.get("control")), None)


async def _not_whole(
    run_id: str, states: PositionStore, records: RecordStore, step: int, problem: StoreError
) -> StateError:
    """Make the error that names an earlier intact checkpoint of a proved journal."""
    steps: dict[int, str] = {}
    fold = Fold()
    async with aclosing(records.read(run_id)) as found:
        async for record in found:
            fold.take(record)
            if record.type == CHECKPOINT and fold.attested is not None:
                steps[fold.attested[0]] = fold.attested[1]
    next_step = "No earlier checkpoint is intact: run the graph anew."
    for one in sorted(steps, reverse=True):
        if one < step and await states.is_whole(steps[one]):
            next_step = f"Resume from the last intact one: rye graph resume {run_id} --at {one}"
            break
    return StateError(
        f"The state of the run {run_id} after step {step} can't be read: {problem.message}",
        next_step=next_step,
    )


def is_unknown(vertex: VertexOfGraph, found: RecoveredRun) -> bool:
    """Return whether a call had begun that may have had an effect and must not be repeated."""
    if isinstance(vertex, ForeachVertex):
        return bool(found.items_in_flight) and not _may_repeat(vertex)
    if isinstance(vertex, ActionVertex):
        return found.in_flight is not None and not _may_repeat(vertex)
    return found.in_flight is not None and isinstance(vertex, AgentVertex)


def _may_repeat(vertex: CallingVertex | AgentForeach) -> bool:
    """Return whether a node's author allows repeated calls."""
    if isinstance(vertex, AgentForeach):
        return False
    return vertex.tries.max > 1 or vertex.cache_result
