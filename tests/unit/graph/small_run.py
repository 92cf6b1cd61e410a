"""A run of three nodes, each with an effect that can't be taken back; and how it is gone on with.

`python -m tests.unit.graph.small_run FOLDER` kills such a run at each of its calls of the system,
and goes on with what is left. One JSON line a point.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from ryecore import SigningKey
from ryecore.errors import StateError
from ryecore.graph.journal.journal import Journal
from ryecore.graph.journal.recovery import Found
from ryecore.graph.schedule import Ending, NodeError, NodeResult, Position
from ryecore.state.checkpoints import Head
from ryecore.state.database import Database
from ryecore.state.model import Durability
from ryecore.state.registry import MIGRATIONS, ThreadRegistry
from ryecore.state.transcript_check import verify_transcript
from tests.killing import forked

__all__ = ["NODES", "RUN", "done", "effects", "go_on", "live", "resumed", "walk"]

RUN: Final = "acme/flow/flow-1739820456"
NODES: Final = ("load", "check", "send")
_UNKNOWN: Final = "It had begun, and nobody knows whether it ended."


def live(
    folder: Path,
    key: SigningKey,
    durability: Durability = "process",
    set_head: Callable[[Head], None] | None = None,
) -> Position:
    """Run it from the first node to the last."""
    journal = Journal.create(folder, folder / "objects", RUN, key, durability, set_head=set_head)
    journal.tell("run_started", {"inputs": {"path": "x"}})
    position = walk(journal, folder, Position(NODES[0], 0, {"rows": ["row"] * 1000}))
    journal.close()
    return position


def walk(journal: Journal, folder: Path, position: Position) -> Position:
    """Run what is left of it."""
    while position.node is not None:
        journal.tell("node_started", {"node": position.node, "step": position.step})
        _append(folder / "effects", position.node)
        position = _kept(journal, position, NodeResult(f"{position.node} went well"))
    journal.tell("run_completed", {})
    return position


def _kept(journal: Journal, position: Position, result: NodeResult) -> Position:
    about = {"node": position.node, "step": position.step}
    journal.append("node_completed", {**about, **journal.outcome_of(result)})
    position = _after(position, result)
    journal.checkpoint(position)
    return position


def _after(position: Position, result: NodeResult) -> Position:
    value = result.error.error if result.error is not None else result.value
    state = {**position.state, str(position.node): value}
    if position.node == "check":
        state["rows"] = ["another row"] * 1000
    step = position.step + 1
    node = NODES[step] if step < len(NODES) else None
    ending = None if node is not None else Ending("completed", {"said": value})
    return evolve(position, node=node, step=step, state=state, ending=ending)


def resumed(
    folder: Path,
    key: SigningKey,
    head: tuple[int, str] | None = None,
    set_head: Callable[[Head], None] | None = None,
) -> tuple[Journal, Found]:
    """Take it up again."""
    return Journal.resume(
        folder, folder / "objects", RUN, key, "process", head=head, set_head=set_head
    )


def go_on(journal: Journal, found: Found, folder: Path) -> tuple[Position, set[str]]:
    """Go on with it. A node that was in flight isn't run again.

    Returns:
        Where it ended, and the nodes of which nobody knows whether they ran.
    """
    position = found.position or Position(NODES[0], 0, {"rows": ["row"] * 1000})
    unknown: set[str] = set()
    journal.tell("run_resumed", {})
    if found.completed is not None:
        position = _after(position, found.completed)
        journal.checkpoint(position)
    elif found.in_flight is not None:
        assert found.in_flight == position.node
        unknown.add(found.in_flight)
        error = NodeError(found.in_flight, _UNKNOWN, "internal")
        position = _kept(journal, position, NodeResult(error=error))
    position = walk(journal, folder, position)
    journal.close()
    return position, unknown


def done(found: Found) -> set[str]:
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


# The death


class _Killer:
    """Ends its process right before or right after one of the calls that reach the disk.

    Where it tears, it counts calls of `os.write` alone, and ends the process in the middle of one.
    """

    def __init__(self, at: int, *, torn: bool) -> None:
        self.count = 0
        self._at, self._torn = at, torn
        self._write = os.write

    def __enter__(self) -> None:
        if self._torn:
            os.write = self._written  # type: ignore[assignment]
        else:
            sys.setprofile(self._called)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        os.write = self._write

    def _called(self, _frame: object, event: str, called: Any) -> None:
        if event in ("c_call", "c_return") and (
            called.__name__ in ("put", "execute", "flock")
            or called.__module__ in ("posix", "io", "_io")
        ):
            self._count()

    def _written(self, descriptor: int, data: bytes) -> int:
        self.count += 1
        if self.count == self._at:
            self._write(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return self._write(descriptor, data)

    def _count(self) -> None:
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


def _registry(folder: Path) -> tuple[Database, ThreadRegistry]:
    database = Database(folder / "threads.db", MIGRATIONS)
    return database, ThreadRegistry(database)


def _setter(registry: ThreadRegistry) -> Callable[[Head], None]:
    return lambda head: registry.set_head(RUN, (head.offset, head.digest))


def _doomed(folder: Path, key: SigningKey, at: int, *, torn: bool) -> str:
    database, registry = _registry(folder)
    registry.register(RUN, "tool:acme/flow")
    killer = _Killer(at, torn=torn)
    with killer:
        live(folder, key, set_head=_setter(registry))
    database.close()
    return str(killer.count)


def _found(folder: Path, key: SigningKey) -> str:
    database, registry = _registry(folder)
    before = effects(folder)
    path = folder / "transcript.jsonl"
    if not path.exists() or not path.stat().st_size:
        assert not before
        return "nothing"
    head = registry.get_thread(RUN).transcript_head
    try:
        journal, found = resumed(folder, key, head, _setter(registry))
    except StateError as error:
        if before or "has left nothing to go on from" not in error.message:
            raise
        return "nothing"
    ran = done(found)
    assert set(before) - ({found.in_flight} if found.in_flight else set()) == ran, (before, found)
    position, unknown = go_on(journal, found, folder)
    after = effects(folder)
    assert len(after) == len(set(after)), after
    assert set(NODES) - set(after) <= unknown, (after, unknown)
    assert position.step == len(NODES)
    rows = position.state["rows"]
    assert rows == ["another row"] * 1000
    head = registry.get_thread(RUN).transcript_head
    report = verify_transcript(path, RUN, key.public, head, ended=False)
    assert report.ok, report
    database.close()
    return json.dumps(sorted(unknown))


def main(work: Path, how: str) -> None:
    """Kill it at each point in turn, until it comes to its end."""
    key = SigningKey.generate()
    at, ended = 0, False
    while not ended:
        at += 1
        folder = work / str(at)
        folder.mkdir()
        code, said = forked(partial(_doomed, folder, key, at, torn=how == "torn"))
        ended = code != -signal.SIGKILL
        ok = not ended or code == 0
        if ok:
            code, said = forked(partial(_found, folder, key))
            ok = code == 0
        print(json.dumps({"at": at, "ended": ended, "ok": ok, "said": said}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
