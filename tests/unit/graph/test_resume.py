"""Where a run begins that goes on with another one, by what that has left."""

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ryecore import SigningKey
from ryecore.agent.outcome import NodeOutcome
from ryecore.errors import InputError, StateError
from ryecore.graph.journal.recovery import RecoveredRun
from ryecore.graph.model import Graph
from ryecore.graph.resume import start_position
from ryecore.graph.schedule import Ending, Position
from ryecore.runs.request import ResumeOptions
from ryecore.state.transcript import Transcript
from tests.graphs import graph
from tests.unit.graph.small_run import SyncJournal, create_journal, read_journal
from tests.workspace import Workspace

KEY = SigningKey.generate()
RUN = "acme/flow/flow-1"
RESUME = ResumeOptions(RUN)

NODES = {
    "load": {"action": {"item_id": "tool:acme/one"}, "assign": {"at": "${state._timestamp}"},
             "next": "each"},
    "each": {"type": "foreach", "over": "${state.all}", "as": "one", "next": "end",
             "action": {"item_id": "tool:acme/one"}},
    "end": {"type": "return", "output": "${state.at}"},
}  # fmt: skip


async def read(workspace: Workspace, **config: Any) -> Graph:
    workspace.shell("acme/one", "echo 1")
    ref = graph(workspace, NODES, state={"at": 0, "all": [1, 2, 3]}, **config)
    async with workspace.open() as rye:
        return await rye.graphs.load(ref)


@pytest.fixture
async def flow(workspace: Workspace) -> Graph:
    return await read(workspace)


def found(flow: Graph, node: str | None, **more: Any) -> RecoveredRun:
    position = Position(node, 1, {"at": 0, "all": [1, 2, 3]})
    return RecoveredRun({"item_hash": flow.digest}, position, **more)


def journal(folder: Path) -> SyncJournal:
    made = create_journal(folder, folder / "objects", RUN, KEY, "process")
    made.append("run_started", {})
    return made


def read_back(folder: Path) -> RecoveredRun:
    return read_journal(folder, folder / "objects", RUN, KEY, None)


pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_node_that_ended_as_its_process_died_ended_now(flow: Graph) -> None:
    left = found(flow, "load", completed=NodeOutcome("completed", 1))
    begun = start_position(flow, left, RESUME, {}, now_ms=1_795_000_000_000)
    assert (begun.position.node, begun.position.state["at"]) == ("each", 1_795_000_000_000)


async def test_what_hooks_wanted_of_an_error_still_counts(flow: Graph) -> None:
    failed = NodeOutcome.failed("tool_failed", "no such tide")
    passed = start_position(
        flow, found(flow, "load", completed=failed, control="continue"), RESUME, {}
    )
    assert (passed.position.node, passed.position.suppressed) == ("each", 1)
    left = found(flow, "load", completed=failed, control="retry")
    again = start_position(flow, left, RESUME, {})
    assert (again.position.node, again.position.hook_retries) == ("load", {"load": 1})


async def test_a_node_that_failed_for_good_as_its_process_died_is_run_again(flow: Graph) -> None:
    """As it is where the run's end was written, too."""
    failed = NodeOutcome.failed("tool_failed", "Member 1 of 'each': no")
    known = {0: NodeOutcome("completed", "a"), 1: NodeOutcome.failed("tool_failed", "no")}
    begun = start_position(flow, found(flow, "each", completed=failed, items=known), RESUME, {})
    assert (begun.position.node, begun.position.ending) == ("each", None)
    assert begun.known == {0: NodeOutcome("completed", "a")}


async def test_a_run_whose_end_nobody_was_told_of_ends_so(flow: Graph) -> None:
    left = found(flow, None)
    assert left.position is not None
    left = evolve(left, position=evolve(left.position, ending=Ending("completed", 7)))
    assert start_position(flow, left, RESUME, {}).position == left.position
    with pytest.raises(InputError, match="nothing is left to continue"):
        start_position(flow, left, evolve(RESUME, at=1), {})


async def test_a_run_of_a_single_node_is_not_gone_on_with(flow: Graph) -> None:
    left = evolve(found(flow, "load"), started={"item_hash": flow.digest, "only": "load"})
    with pytest.raises(InputError, match="single node 'load'") as refused:
        start_position(flow, left, RESUME, {})
    assert refused.value.next_step == "Run the node again: rye graph step acme/flow load"


async def test_a_failed_step_of_one_node_does_not_become_a_walk(workspace: Workspace) -> None:
    workspace.shell("acme/one", 'echo "$0" >> "$1/../effects"; exit 3')
    ref = graph(workspace, NODES, state={"at": 0, "all": [1, 2, 3]})
    async with workspace.open() as rye:
        failed = await rye.graphs.step(ref, "load")
        with pytest.raises(InputError, match="single node 'load'"):
            await rye.graphs.resume(failed.run_id)
    assert len((workspace.root / "effects").read_text().splitlines()) == 1


def test_members_that_are_carried_over_stand_with_the_position(tmp_path: Path) -> None:
    """A death before the next write must not have them done once more."""
    made = journal(tmp_path)
    known = {0: NodeOutcome("completed", "a"), 2: NodeOutcome("completed", "x" * 20_000)}
    made.checkpoint(Position("each", 1, {}), known)
    left = read_back(tmp_path)  # as it stands now, before anything else is told
    assert (left.position, left.items) == (Position("each", 1, {}), known)
    assert not left.items_in_flight
    made.close()


def test_what_hooks_wanted_stands_with_the_end_of_a_node(tmp_path: Path) -> None:
    made = journal(tmp_path)
    made.checkpoint(Position("load", 0, {}))
    failed = made.outcome_of(NodeOutcome.failed("tool_failed", "no"))
    made.tell("node_completed", {"node": "load", **failed, "control": "continue"})
    made.close()
    # As whoever finds the run dead closes its journal.
    left, _ = Transcript.resume(tmp_path / "transcript.jsonl", RUN, KEY)
    with left:
        left.checkpoint(1)
    assert read_back(tmp_path).control == "continue"


def test_a_run_that_never_began_has_no_position(tmp_path: Path) -> None:
    assert read_back(tmp_path).position is None
    with pytest.raises(StateError):  # the registry knows better
        read_journal(tmp_path, tmp_path / "objects", RUN, KEY, (10, "0" * 64))
    made = journal(tmp_path)
    made.close()
    assert read_back(tmp_path).position is None
