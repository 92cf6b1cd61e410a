"""What is found of a run that was killed: at any byte, with anything missing or altered."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore import SigningKey
from ryecore.agent.outcome import ErrorCode, NodeFailure, NodeOutcome
from ryecore.errors import RyeError, StateError
from ryecore.graph.schedule import Ending, Position
from ryecore.state.transcript import Transcript
from ryecore.state.transcript_check import read_records
from tests.unit.graph.small_run import (
    NODES,
    RUN,
    SyncJournal,
    create_journal,
    done,
    effects,
    found_in,
    go_on,
    live,
    read_journal,
)

KEY = SigningKey.generate()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def head_of(folder: Path) -> tuple[int, str]:
    last = [one for one in read_records(folder / "transcript.jsonl") if one.type == "checkpoint"]
    return last[-1].payload["offset"], last[-1].payload["digest"]


def objects_of(folder: Path, step: int) -> list[Path]:
    """The files of a step's state: its own, then those that it names."""
    (digest,) = [
        one.payload["state_hash"]
        for one in read_records(folder / "transcript.jsonl")
        if one.type == "state_checkpoint" and one.payload["step"] == step
    ]
    path = folder / "objects" / digest[:2] / digest
    named = [one.get("sha256") for one in json.loads(path.read_bytes())["state"].values()]
    return [path, *(folder / "objects" / one[:2] / one for one in named if one)]


def test_a_run_goes_on_from_wherever_its_journal_may_have_ended(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    live(whole, KEY)
    content = (whole / "transcript.jsonl").read_bytes()
    line_ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    kinds = [record.type for record in read_records(whole / "transcript.jsonl")]
    folder = tmp_path / "cut"
    shutil.copytree(whole, folder)
    path = folder / "transcript.jsonl"
    beside = {end + by for end in line_ends for by in (-1, 0, 1)}
    for length in sorted({*range(0, len(content), 7), *beside} - {len(content), len(content) + 1}):
        path.write_bytes(content[:length])
        (folder / "effects").unlink(missing_ok=True)
        kept = kinds[: sum(end <= length for end in line_ends)]
        if not kept:
            assert found_in(folder, KEY).position is None
            continue
        found = found_in(folder, KEY)
        steps = kept.count("checkpoint")
        assert (found.position.step if found.position else 0) == steps
        assert len(done(found)) == kept.count("node_completed")
        in_flight = kept.count("node_started") > kept.count("node_completed")
        assert found.in_flight == (NODES[steps] if in_flight else None)
        if length not in line_ends:
            continue  # what is found there is what is found at the line's beginning
        shutil.rmtree(folder / "following", ignore_errors=True)
        position, unknown = go_on(found, folder, KEY)
        assert position.step == len(NODES)
        assert set(effects(folder)) == set(NODES) - done(found) - unknown


def test_a_journal_that_is_shorter_than_the_registry_knows_is_refused(tmp_path: Path) -> None:
    live(tmp_path, KEY)
    path, head = tmp_path / "transcript.jsonl", head_of(tmp_path)
    content = path.read_bytes()
    for length in range(1, len(content), 37):
        path.write_bytes(content[:length])
        if content[:length].count(b'"event_type":"checkpoint"') == len(NODES):
            break
        with pytest.raises(StateError, match=r"altered or cut|nothing to resume from"):
            found_in(tmp_path, KEY, head)


def test_a_byte_that_is_altered_is_found(tmp_path: Path) -> None:
    live(tmp_path, KEY)
    path, (attested, _) = tmp_path / "transcript.jsonl", head_of(tmp_path)
    content = path.read_bytes()
    for at in range(0, attested, 11):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(StateError) as refused:
            found_in(tmp_path, KEY, head_of_whole(content))
        assert "altered or cut" in refused.value.message


def head_of_whole(content: bytes) -> tuple[int, str]:
    said = [json.loads(line) for line in content.splitlines()]
    last = [one["payload"] for one in said if one["event_type"] == "checkpoint"][-1]
    return last["offset"], last["digest"]


def test_a_state_that_no_signature_speaks_for_is_not_gone_on_from(tmp_path: Path) -> None:
    """Somebody who can write the journal's end, and objects, can't set the state."""
    live(tmp_path, KEY)
    path = tmp_path / "transcript.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    checkpoints = [at for at, line in enumerate(lines) if b'"event_type":"checkpoint"' in line]
    forged = tmp_path / "forged"
    forged.mkdir()
    journal = create_journal(forged, tmp_path / "objects", RUN, SigningKey.generate(), "process")
    journal.checkpoint(Position("send", 1, {"to": "somebody else"}))
    journal.close()
    line = (forged / "transcript.jsonl").read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(b"".join(lines[: checkpoints[0] + 1]) + line)
    found = found_in(tmp_path, KEY)
    assert found.position is not None
    assert (found.position.node, "to" in found.position.state) == ("check", False)
    # Who finds the run dead signs what follows, and says what that doesn't speak for.
    transcript, _ = Transcript.resume(path, RUN, KEY)
    with transcript:
        transcript.append("run_error", {})
        transcript.checkpoint(2)
    again = found_in(tmp_path, KEY)
    assert again.position == found.position


@pytest.mark.parametrize("behind", ["a result", "a copy", "no record", "a torn line"])
def test_nothing_is_taken_from_behind_the_end_that_a_run_has_signed(
    tmp_path: Path, behind: str
) -> None:
    """Somebody who can write there can't say what came of a node that has failed."""
    journal = create_journal(tmp_path, tmp_path / "objects", RUN, KEY, "process")
    journal.tell("run_started", {"inputs": {}})
    failed = Ending("error", error=NodeFailure("tool_failed", "no such tide", node="load"))
    journal.append("run_error", {})
    journal.checkpoint(Position("load", 0, {}, ending=failed))
    journal.close()
    path = tmp_path / "transcript.jsonl"
    whole = path.read_bytes()
    assert found_in(tmp_path, KEY).completed is None
    forged = json.loads(whole.splitlines()[0])
    forged |= {"event_type": "node_completed", "payload": {"node": "load", "result": "forged"}}
    line = json.dumps(forged).encode()
    more = {
        "a result": line + b"\n", "a copy": whole, "no record": b"!\n", "a torn line": line,
    }  # fmt: skip
    path.write_bytes(whole + more[behind])
    with pytest.raises(StateError, match="something follows its end"):
        found_in(tmp_path, KEY, head_of_whole(whole))


@pytest.mark.parametrize("damage", ["missing", "altered", "empty"])
def test_a_state_that_is_lost_is_told_with_the_last_that_is_whole(
    tmp_path: Path, damage: str
) -> None:
    live(tmp_path, KEY)
    lost = objects_of(tmp_path, 3)
    assert len(lost) == 2
    assert lost[1] != objects_of(tmp_path, 1)[1]
    for path in reversed(lost):
        kept = path.read_bytes()
        path.unlink()
        if damage != "missing":
            path.write_bytes(b"" if damage == "empty" else kept[:-1] + b" ")
        with pytest.raises(StateError, match=f"{RUN} after step 3") as told:
            found_in(tmp_path, KEY)
        # The large value of step 2 is the one of step 3.
        at = 1 if path == lost[1] else 2
        assert str(told.value.next_step).endswith(f"--at {at}")
        found = read_journal(tmp_path, tmp_path / "objects", RUN, KEY, None, at=at)
        assert found.position is not None
        assert found.position.node == NODES[at]
        path.unlink(missing_ok=True)
        path.write_bytes(kept)
    for step in (1, 2, 3):
        objects_of(tmp_path, step)[0].unlink()
    with pytest.raises(StateError) as told:
        found_in(tmp_path, KEY)
    assert "anew" in str(told.value.next_step)


def test_a_result_that_is_lost_is_told(tmp_path: Path) -> None:
    journal = create_journal(tmp_path, tmp_path / "objects", RUN, KEY, "process")
    journal.tell("run_started", {})
    journal.checkpoint(Position("load", 0, {}))
    outcome = journal.outcome_of(NodeOutcome("completed", "x" * 20_000))
    journal.tell("node_completed", {"node": "load", **outcome})
    journal.close()
    digest = str(outcome["result_hash"])
    (tmp_path / "objects" / digest[:2] / digest).unlink()
    with pytest.raises(StateError, match="after step 0"):
        found_in(tmp_path, KEY)


def test_a_run_that_somebody_writes_can_be_looked_at(tmp_path: Path) -> None:
    journal = create_journal(tmp_path, tmp_path / "objects", RUN, KEY, "process")
    journal.tell("run_started", {})
    assert found_in(tmp_path, KEY).position is None
    journal.close()


def deep(levels: int) -> object:
    value: object = "end"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({1, 2}, "type set"),
        ([{"a": object()}], "type object"),
        (float("nan"), "NaN"),
        ([float("-inf")], "NaN"),
        (10**5000, "NaN"),
        (deep(100_000), "nested too deep"),
        (b"bytes", "type bytes"),
    ],
    ids=["set", "object", "nan", "infinity", "digits", "deep", "bytes"],
)
def test_a_value_that_is_no_json_is_refused_by_its_key(
    tmp_path: Path, value: object, why: str
) -> None:
    journal = create_journal(tmp_path, tmp_path / "objects", RUN, KEY, "process")
    journal.tell("run_started", {})
    journal.checkpoint(Position("load", 1, {"good": 1}))
    with pytest.raises(StateError) as refused:
        journal.checkpoint(Position("load", 2, {"good": 2, "bad one": value}))
    assert "'bad one'" in refused.value.message
    assert why in refused.value.message
    assert refused.value.__cause__ is None
    with pytest.raises(StateError, match="The result"):
        journal.outcome_of(NodeOutcome("completed", value))
    with pytest.raises(StateError):
        journal.tell("hook", {"value": {1, 2}})
    journal.checkpoint(Position("load", 2, {"good": 3}))
    journal.close()
    found = found_in(tmp_path, KEY)
    assert found.position == Position("load", 2, {"good": 3})


def test_what_is_nested_deep_comes_back_with_little_stack_left(tmp_path: Path) -> None:
    value = deep(700)
    journal = create_journal(tmp_path, tmp_path / "objects", RUN, KEY, "process")
    journal.tell("run_started", {})
    journal.checkpoint(Position("load", 1, {"deep": value}))
    journal.tell(
        "node_completed", {"node": "load", **journal.outcome_of(NodeOutcome("completed", value))}
    )
    journal.close()

    def with_less_stack(levels: int) -> object:
        if levels:
            return with_less_stack(levels - 1)
        return found_in(tmp_path, KEY).position

    position = with_less_stack(sys.getrecursionlimit() - 500)
    assert isinstance(position, Position)
    assert json.dumps(position.state["deep"]) == json.dumps(value)


@given(st.dictionaries(st.text(), JSON, max_size=5), st.text())
def test_any_state_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, state: dict[str, object], node: str
) -> None:
    folder = tmp_path_factory.mktemp("run")
    journal = create_journal(folder, folder / "objects", RUN, KEY, "process")
    journal.tell("run_started", {})
    large = ["x" * 3000, state]
    for step in range(2):
        journal.checkpoint(Position(node, step, {**state, "large": large, "step": step}))
    journal.close()
    found = read_journal(folder, folder / "objects", RUN, KEY, None)
    assert found.position == Position(node, 1, {**state, "large": large, "step": 1})
    shutil.rmtree(folder)


def test_a_full_disk_leaves_what_can_be_gone_on_from(small_disk: Path) -> None:
    filler = small_disk / "filler"
    journal = create_journal(small_disk, small_disk / "objects", RUN, KEY, "process")
    journal.tell("run_started", {})
    journal.checkpoint(Position("load", 1, {"step": 1}))
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * 2**20)
    with pytest.raises(StateError, match="No space"):
        journal.checkpoint(Position("check", 2, {"step": "x" * 100_000}))
    read = found_in(small_disk, KEY)
    assert read.position is not None
    filler.unlink()
    journal.checkpoint(Position("check", 2, {"step": 2}))
    journal.close()
    read = found_in(small_disk, KEY, journal_head(journal))
    assert read.position == Position("check", 2, {"step": 2})


def journal_head(journal: SyncJournal) -> tuple[int, str]:
    assert journal.head is not None
    return journal.head.offset, journal.head.digest


def test_no_descriptor_is_left_behind(tmp_path: Path) -> None:
    live(tmp_path, KEY)
    before = len(os.listdir("/proc/self/fd"))
    path = tmp_path / "transcript.jsonl"
    content = path.read_bytes()
    objects_of(tmp_path, 3)[0].unlink()
    with pytest.raises(RyeError):
        found_in(tmp_path, KEY)
    path.write_bytes(content.replace(b'"load"', b'"l0ad"'))
    with pytest.raises(RyeError):
        found_in(tmp_path, KEY)
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(("code", "in_flight"), [("cancelled", "a"), ("tool_failed", None)])
def test_a_node_that_was_broken_off_is_in_flight_still(
    tmp_path: Path, code: ErrorCode, in_flight: str | None
) -> None:
    journal = create_journal(tmp_path, tmp_path / "objects", RUN, KEY, "process")
    journal.append("run_started", {"inputs": {}})
    journal.checkpoint(Position("a"))
    journal.tell("node_started", {"node": "a", "try": 1})
    failure = NodeFailure(code, "it ended", node="a")
    outcome = NodeOutcome("failed", failure=failure)
    journal.append("node_completed", {"node": "a", **journal.outcome_of(outcome)})
    journal.checkpoint(Position("a", 1, ending=Ending("error", error=failure)))
    journal.close()
    found = read_journal(tmp_path, tmp_path / "objects", RUN, KEY, None)
    assert found.in_flight == in_flight
