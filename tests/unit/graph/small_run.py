"""A run of three nodes, each with an effect that can't be taken back; and one that goes on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from ryecore import SigningKey
from ryecore.agent.outcome import NodeFailure, NodeOutcome
from ryecore.graph.journal.journal import Journal
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import RecoveredRun, read_run
from ryecore.graph.schedule import Ending, Position
from ryecore.policy.context import EventSink
from ryecore.state.model import Durability
from ryecore.state.objects import FolderRunObjects
from ryecore.state.transcript_format import Head
from ryecore.state.transcript_store import FileRecordStore
from ryecore.state.waiting import run_blocking

__all__ = [
    "NODES", "RUN", "SyncJournal", "create_journal", "done", "effects", "found_in", "go_on", "live",
    "read_journal",
]  # fmt: skip

RUN: Final = "acme/flow/flow-1739820456"
NODES: Final = ("load", "check", "send")
_NONE: Final[Mapping[int, NodeOutcome]] = {}
_UNKNOWN: Final = "It had begun, and nobody knows whether it ended."


class SyncJournal:
    """A journal whose writes block, and so need no event loop."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.append = journal.append
        self.outcome_of = journal.outcome_of
        self.events = journal.events

    @property
    def head(self) -> Head | None:
        return self.journal.head

    def tell(self, kind: str, payload: Mapping[str, Any]) -> None:
        self.journal.append(kind, payload)
        run_blocking(self.journal.flush())

    def checkpoint(self, position: Position, carried: Mapping[int, NodeOutcome] = _NONE) -> None:
        run_blocking(self.journal.checkpoint(position, carried))

    def close(self) -> None:
        run_blocking(self.journal.close())


def create_journal(
    folder: Path,
    objects: Path,
    run_id: str,
    key: SigningKey,
    durability: Durability,
    *,
    sink: EventSink | None = None,
    set_head: Callable[[Head], None] | None = None,
) -> SyncJournal:
    """Create a run's journal in a folder, and its objects in another one."""

    async def keep(head: Head) -> None:
        if set_head is not None:
            set_head(head)

    positions = PositionStore(FolderRunObjects(objects.parent, durability), run_id)
    records = _records(folder, key)
    created = Journal.create(records, positions, run_id, sink=sink, set_head=keep)
    return SyncJournal(run_blocking(created))


def read_journal(
    folder: Path,
    objects: Path,
    run_id: str,
    key: SigningKey,
    head: tuple[int, str] | None,
    *,
    at: int | None = None,
) -> RecoveredRun:
    """Read a run from a folder."""
    positions = PositionStore(FolderRunObjects(objects.parent, "process"), run_id)
    return run_blocking(read_run(_records(folder, key), positions, run_id, head, at=at))


def _records(folder: Path, key: SigningKey) -> FileRecordStore:
    return FileRecordStore(lambda _: folder, lambda _: folder, lambda: key)


def live(folder: Path, key: SigningKey) -> Position:
    """Run it from the first node to the last."""
    journal = create_journal(folder, folder / "objects", RUN, key, "process")
    journal.tell("run_started", {"inputs": {"path": "x"}})
    position = walk(journal, folder, Position(NODES[0], 0, {"rows": ["row"] * 1000}))
    journal.close()
    return position


def walk(journal: SyncJournal, folder: Path, position: Position) -> Position:
    """Run what is left of it."""
    while position.node is not None:
        journal.tell("node_started", {"node": position.node, "step": position.step})
        _append(folder / "effects", position.node)
        position = _kept(journal, position, NodeOutcome("completed", f"{position.node} went well"))
    journal.tell("run_completed", {})
    return position


def _kept(journal: SyncJournal, position: Position, outcome: NodeOutcome) -> Position:
    about = {"node": position.node, "step": position.step}
    journal.append("node_completed", {**about, **journal.outcome_of(outcome)})
    position = _after(position, outcome)
    journal.checkpoint(position)
    return position


def _after(position: Position, outcome: NodeOutcome) -> Position:
    failure = outcome.failure
    value = outcome.output if failure is None else failure.message
    state = {**position.state, str(position.node): value}
    if position.node == "check":
        state["rows"] = ["another row"] * 1000
    step = position.step + 1
    node = NODES[step] if step < len(NODES) else None
    ending = None if node is not None else Ending("completed", {"said": value})
    return evolve(position, node=node, step=step, state=state, ending=ending)


def found_in(folder: Path, key: SigningKey, head: tuple[int, str] | None = None) -> RecoveredRun:
    """What is found of it."""
    return read_journal(folder, folder / "objects", RUN, key, head)


def go_on(found: RecoveredRun, folder: Path, key: SigningKey) -> tuple[Position, set[str]]:
    """Go on with it in another run. A node that was in flight isn't run again.

    Returns:
        Where it ended, and the nodes of which nobody knows whether they ran.
    """
    position = found.position or Position(NODES[0], 0, {"rows": ["row"] * 1000})
    unknown: set[str] = set()
    following = folder / "following"
    following.mkdir()
    journal = create_journal(following, folder / "objects", RUN, key, "process")
    journal.tell("run_resumed", {})
    if found.completed is not None:
        position = _after(position, found.completed)
        journal.checkpoint(position)
    elif found.in_flight is not None:
        assert found.in_flight == position.node
        unknown.add(found.in_flight)
        failure = NodeFailure("internal", _UNKNOWN, node=found.in_flight)
        position = _kept(journal, position, NodeOutcome("failed", failure=failure))
    position = walk(journal, folder, position)
    journal.close()
    return position, unknown


def done(found: RecoveredRun) -> set[str]:
    """The nodes of which it is known that they ran."""
    step = found.position.step if found.position is not None else 0
    return set(NODES[: step + (found.completed is not None)])


def effects(folder: Path) -> list[str]:
    """The nodes that ran, in order."""
    path = folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


def _append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")
