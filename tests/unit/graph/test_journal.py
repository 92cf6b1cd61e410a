"""The journal of a run: what is written, and what a reader of its events is given."""

import gc
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from ryecore import SigningKey
from ryecore.agent.outcome import NodeFailure, NodeOutcome
from ryecore.errors import StateError
from ryecore.graph.schedule import Position
from ryecore.state.transcript_check import read_records, verify_transcript
from ryecore.state.transcript_format import Head
from tests.unit.graph.small_run import RUN, SyncJournal, create_journal, read_journal


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey.generate()


def begin(folder: Path, key: SigningKey, **more: object) -> SyncJournal:
    journal = create_journal(folder, folder / "objects", RUN, key, "process", **more)  # type: ignore[arg-type]
    journal.tell("run_started", {"graph": "tool:acme/flow", "inputs": {"path": "x"}})
    return journal


@pytest.mark.parametrize("ignored", [None, "", "!*\n"])
def test_states_are_kept_out_of_git_whatever_a_clone_says(
    tmp_path: Path, key: SigningKey, ignored: str | None
) -> None:
    objects = tmp_path / "objects"
    if ignored is not None:
        objects.mkdir()
        (objects / ".gitignore").write_text(ignored)
    journal = begin(tmp_path, key)
    journal.checkpoint(Position("each", 1, {"secret": "of the run"}))
    journal.close()
    assert [one for one in objects.iterdir() if one.is_dir()]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "-A"], check=True)
    staged = subprocess.run(
        ["git", "-C", tmp_path, "ls-files"], check=True, capture_output=True, text=True
    )
    assert staged.stdout.split() == ["transcript.jsonl"]


@pytest.mark.parametrize("place", ["objects", "objects/3f"])
def test_nothing_is_written_through_a_link_of_a_clone(
    tmp_path: Path, key: SigningKey, place: str
) -> None:
    (tmp_path / "outside").mkdir()
    link = tmp_path / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "outside")
    with pytest.raises(StateError, match="is a link") as refused:
        begin(tmp_path, key)
    assert str(link) in refused.value.message
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_run_is_found_where_it_was_left(tmp_path: Path, key: SigningKey) -> None:
    heads: list[Head] = []
    journal = begin(tmp_path, key, set_head=heads.append)
    state = {"count": 1, "rows": ["a long row"] * 1000, "none": None, "half": "\ud800"}
    error = NodeFailure("tool_failed", "It failed.", node="load")
    position = Position("each", 1, state, {"load": 2}, (error,), 1)
    journal.tell("node_started", {"node": "load", "step": 0})
    journal.append(
        "node_completed", {"node": "load", **journal.outcome_of(NodeOutcome("completed", 1))}
    )
    journal.checkpoint(position)
    journal.close()

    assert [journal.head] == heads
    head = (heads[-1].offset, heads[-1].digest)
    found = read_journal(tmp_path, tmp_path / "objects", RUN, key, head)
    assert found.started["inputs"] == {"path": "x"}
    assert found.position == position
    assert found.position is not None
    assert list(found.position.state) == list(state)
    assert (found.completed, found.in_flight, found.items) == (None, None, {})
    report = verify_transcript(tmp_path / "transcript.jsonl", RUN, key.public, head, ended=True)
    assert report.ok, report


def test_what_stands_behind_the_last_checkpoint_is_found(tmp_path: Path, key: SigningKey) -> None:
    journal = begin(tmp_path, key)
    journal.checkpoint(Position("each", 1, {}))
    large = ["x" * 100] * 1000
    journal.tell("node_started", {"node": "each", "step": 1})
    for index in range(4):
        journal.tell("item_started", {"node": "each", "index": index})
    no = NodeFailure("tool_failed", "no", retryable=True, node="each")
    done = {0: NodeOutcome("completed", large), 2: NodeOutcome("failed", failure=no)}
    for index, outcome in done.items():
        fields = journal.outcome_of(outcome)
        journal.tell("item_completed", {"node": "each", "index": index, **fields})

    found = read_journal(tmp_path, tmp_path / "objects", RUN, key, None)
    assert found.position == Position("each", 1, {})
    assert found.in_flight == "each"
    assert found.items == done
    assert found.items_in_flight == {1, 3}
    result = NodeOutcome("completed", {"items": [], "failed": 1})
    journal.append("node_completed", {"node": "each", **journal.outcome_of(result)})
    journal.close()

    found = read_journal(tmp_path, tmp_path / "objects", RUN, key, None)
    assert (found.completed, found.in_flight) == (result, None)


def test_an_earlier_step_can_be_looked_at(tmp_path: Path, key: SigningKey) -> None:
    journal = begin(tmp_path, key)
    for step in range(3):
        journal.checkpoint(Position("load", step, {"count": step}))
    journal.tell("node_started", {"node": "load"})
    journal.close()

    found = read_journal(tmp_path, tmp_path / "objects", RUN, key, None, at=1)
    assert found.position == Position("load", 1, {"count": 1})
    assert found.in_flight is None
    with pytest.raises(StateError, match="no checkpoint after step 7"):
        read_journal(tmp_path, tmp_path / "objects", RUN, key, None, at=7)


def test_large_values_are_written_once(tmp_path: Path, key: SigningKey) -> None:
    journal = begin(tmp_path, key)
    large = "x" * 100_000
    for step in range(20):
        journal.checkpoint(Position("load", step, {"large": large, "count": step}))
    journal.close()
    sizes = [one.stat().st_size for one in (tmp_path / "objects").rglob("*") if one.is_file()]
    assert sum(sizes) < 110_000
    assert [record.type for record in read_records(tmp_path / "transcript.jsonl")].count(
        "state_checkpoint"
    ) == 20


def test_hundreds_of_steps_leave_nothing_in_memory(tmp_path: Path, key: SigningKey) -> None:
    journal = begin(tmp_path, key)
    large = ["x" * 100] * 1000

    def steps(first: int, last: int) -> None:
        for step in range(first, last):
            journal.tell("node_started", {"node": "load", "step": step})
            journal.append(
                "node_completed",
                {"node": "load", **journal.outcome_of(NodeOutcome("completed", step))},
            )
            state = {f"key_{step % 100}": "y" * (step % 3000), "large": large, "count": step}
            journal.checkpoint(Position("load", step, state))

    steps(0, 200)  # each key of the state was there once
    gc.collect()
    tracemalloc.start()
    steps(200, 300)
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    steps(300, 1_000)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    journal.close()
    assert after - before < 12 * 1024, f"{after - before} bytes more after 700 steps"
    found = read_journal(tmp_path, tmp_path / "objects", RUN, key, None)
    assert found.position is not None
    assert found.position.step == 999
