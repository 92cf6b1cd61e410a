"""The writer of a transcript: what it writes, when, and what it takes up after a crash."""

import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore import SigningKey
from ryecore.errors import StateError
from ryecore.state.records import canonical_json, holds
from ryecore.state.transcript import Transcript
from ryecore.state.transcript_check import read_records, verify_transcript
from ryecore.state.transcript_format import (
    CHECKPOINT,
    MAX_LINE_BYTES,
    Checkpoint,
    CheckpointLines,
    encode_payload,
)

KEY = SigningKey.generate()
THREAD = "acme/research-1739820456"
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "transcript.jsonl"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_records_stand_in_the_file_as_they_were_told_once_they_are_committed(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.append(
            "cognition_in", {"turn": 1, "parts": [{"type": "text", "text": "é\ud800"}]}
        )
        transcript.append("model_call", {"turn": 1})
        assert path.read_bytes() == b""
        transcript.commit()
        first, second = lines(path)
        assert transcript.offset == path.stat().st_size
    assert list(first) == ["timestamp", "thread_id", "event_type", "payload"]
    assert first["thread_id"] == THREAD
    assert first["event_type"] == "cognition_in"
    assert first["payload"]["parts"][0]["text"] == "é\ud800"
    assert second["timestamp"] >= first["timestamp"] > 1.7e9
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@given(JSON)
def test_any_json_comes_back_as_it_was(value: object) -> None:
    assert json.loads(encode_payload({"value": value})) == {"value": value}


def test_numbers_that_json_lacks_are_written_as_texts() -> None:
    """A model may write NaN into its arguments, and Python reads it."""
    payload = json.loads('{"a": [NaN, 1.5], "b": {"c": -Infinity}}')
    assert json.loads(encode_payload(payload)) == {"a": ["nan", 1.5], "b": {"c": "-inf"}}


def test_a_record_that_no_reader_would_take_is_refused(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        with pytest.raises(StateError, match="too large"):
            transcript.record("cognition_in", {"text": "x" * MAX_LINE_BYTES})
        deep: list[object] = []
        for _ in range(100_000):
            deep = [deep]
        for odd in ({"input": deep}, {"nan": float("nan"), "input": deep}):
            with pytest.raises(StateError, match="nested too deep"):
                transcript.record("tool_call_start", odd)
        with pytest.raises(StateError, match="a number too long"):
            transcript.record("directive_return", {"outputs": {"n": 10**5000}})
        transcript.record("thread_error", {})
    assert [line["event_type"] for line in lines(path)] == ["thread_error"]


def test_streamed_text_stands_before_the_record_that_follows_it(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.delta("Hel")
        transcript.delta("lo")
        transcript.append("cognition_out", {"turn": 1})
        transcript.checkpoint(1)
    types = [line["event_type"] for line in lines(path)]
    assert types == ["token_delta", "cognition_out", CHECKPOINT]
    assert lines(path)[0]["payload"] == {"text": "Hello"}


def test_streamed_text_is_written_in_large_pieces(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        for _ in range(3 * 4096):
            transcript.delta("abcd")
        transcript.append("cognition_out", {})
    said = [line["payload"]["text"] for line in lines(path)[:-1]]
    assert "".join(said) == "abcd" * 3 * 4096
    assert all(len(one) <= 4099 for one in said)
    assert len(said) < 40  # and not one a piece; a slow machine's 50 ms cut it too


def test_streamed_text_is_written_within_the_time_that_readers_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000]
    monkeypatch.setattr("time.monotonic_ns", lambda: now[0])
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.delta("a")
        now[0] += 49_000_000
        transcript.delta("b")
        assert path.read_bytes() == b""
        now[0] += 1_000_000
        transcript.delta("c")
        assert lines(path)[0]["payload"] == {"text": "abc"}


def test_a_checkpoint_is_a_record_that_the_run_key_signed(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.record("thread_started", {})
        first = transcript.checkpoint(1)
        second = transcript.checkpoint(2)
    _, one, two = lines(path)
    assert (one["payload"]["offset"], one["payload"]["digest"]) == (first.offset, first.digest)
    assert one["payload"]["previous"] == ""
    assert two["payload"]["previous"] == first.digest
    assert second.offset == path.stat().st_size - len(path.read_bytes().splitlines(True)[-1])
    signed = {
        **two["payload"],
        "thread_id": THREAD,
        "timestamp_us": round(two["timestamp"] * 1e6),
    }
    assert holds("checkpoint", signed, KEY.public)
    assert not holds("checkpoint", {**signed, "thread_id": "acme/other-1"}, KEY.public)
    assert KEY.pem not in path.read_bytes()


@given(st.text(), st.integers(0, 99), st.integers(0, 2**40), st.integers(0, 3))
def test_what_a_checkpoint_signs_is_canonical(
    thread: str, turn: int, offset: int, unattested: int
) -> None:
    said = Checkpoint(turn, offset, "a" * 64, "", unattested)
    record: dict[str, object] = {
        "digest": "a" * 64,
        "offset": offset,
        "previous": "",
        "thread_id": thread,
        "timestamp_us": 10**15,
        "turn": turn,
    }
    if unattested:
        record["unattested"] = unattested
    line = json.loads(CheckpointLines(thread).write(said, 10**15, KEY))
    assert holds("checkpoint", {**record, "_signature": line["payload"]["_signature"]}, KEY.public)
    assert json.loads(canonical_json(record)) == record


def test_two_never_write_one_transcript(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.record("thread_started", {})
        with pytest.raises(StateError, match="is written by this process itself"):
            Transcript.resume(path, THREAD, KEY)
        with pytest.raises(StateError, match="can't be used"):
            Transcript.create(path, THREAD, KEY)
    resumed, _ = Transcript.resume(path, THREAD, KEY)
    resumed.close()
    resumed.close()
    with pytest.raises(StateError, match="it is closed"):
        resumed.record("thread_error", {})


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "missing"])
def test_only_a_plain_file_is_taken_up_and_nothing_is_waited_for(path: Path, kind: str) -> None:
    other = path.with_name("other")
    other.write_bytes(b"")
    match kind:
        case "link":
            path.symlink_to(other)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(StateError, match="can't be used"):
        Transcript.resume(path, THREAD, KEY)
    if kind != "missing":
        with pytest.raises(StateError):
            Transcript.create(path, THREAD, KEY)
    assert other.read_bytes() == b""


def test_with_no_descriptor_left_a_thread_is_told_what_to_raise(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(StateError, match="Too many open files") as refused:
            Transcript.create(path, THREAD, KEY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "ulimit -n" in refused.value.next_step
    assert not path.exists()


def test_no_descriptor_is_left_behind(path: Path) -> None:
    """By refusals, too."""
    before = len(os.listdir("/proc/self/fd"))
    with Transcript.create(path, THREAD, KEY) as transcript:
        for _ in range(3):
            with pytest.raises(StateError):
                Transcript.resume(path, THREAD, KEY)
        transcript.record("cognition_in", {"turn": 1})
        transcript.checkpoint(1)
    path.write_bytes(path.read_bytes().replace(b"cognition_in", b"cognition_im"))
    with pytest.raises(StateError):
        Transcript.resume(path, THREAD, KEY)
    for _ in read_records(path):
        break
    verify_transcript(path, THREAD, KEY.public, None, ended=True)
    # Fewer, where what an earlier test has left was closed meanwhile.
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_torn_line_is_dropped_and_the_tail_is_kept_and_stays_marked(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.record("cognition_in", {"turn": 1})
        head = transcript.checkpoint(1)
        transcript.append("cognition_in", {"turn": 2})
        transcript.record("tool_call_start", {"turn": 2, "call_id": "c"})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"timestamp":1763796896.1,"thread_id":"acm')

    resumed, found = Transcript.resume(path, THREAD, KEY, head=(head.offset, head.digest))
    assert (found.head, found.turn, found.tail_records, found.is_torn) == (head, 1, 2, True)
    assert path.read_bytes() == whole
    with resumed:
        resumed.record("cognition_out", {"turn": 2})
        last = resumed.checkpoint(2)
        resumed.record("thread_completed", {})
        last = resumed.checkpoint(2)
    report = verify_transcript(path, THREAD, KEY.public, (last.offset, last.digest), ended=True)
    assert report.ok
    assert [(turn.turn, turn.state) for turn in report.turns] == [
        (1, "attested"),
        (2, "unattested"),
        (2, "attested"),
    ]
    assert "a crash had left 2 records" in report.turns[1].reason
    assert report.unattested_records == 2


@pytest.mark.parametrize("rest", [b"\0" * 700, b"\0\0\n\0\n", b"garbage\n", b"\n", b"{}\n{}"])
def test_what_is_no_record_behind_the_last_checkpoint_is_dropped(path: Path, rest: bytes) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.record("cognition_in", {"turn": 1})
        transcript.checkpoint(1)
        transcript.record("model_call", {"turn": 2})
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    resumed, found = Transcript.resume(path, THREAD, KEY)
    resumed.close()
    assert found.is_torn
    assert found.tail_records == 1
    assert path.read_bytes() == whole


def test_a_transcript_that_was_altered_or_cut_is_not_taken_up(path: Path) -> None:
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.record("cognition_in", {"turn": 1})
        first = path.read_bytes()
        head = transcript.checkpoint(1)
    whole = path.read_bytes()
    known = (head.offset, head.digest)
    for content, knows in (
        (whole.replace(b'"turn":1', b'"turn":7', 1), None),
        (first, known),
        (b"", known),
        (whole[:-3], known),
    ):
        path.write_bytes(content)
        with pytest.raises(StateError, match="altered or cut") as refused:
            Transcript.resume(path, THREAD, KEY, head=knows)
        assert f"rye threads verify {THREAD}" in refused.value.next_step
        assert path.read_bytes() == content
    path.write_bytes(whole)
    with pytest.raises(StateError, match="altered or cut"):
        Transcript.resume(path, THREAD, SigningKey.generate())
    Transcript.resume(path, THREAD, KEY, head=known)[0].close()


def test_a_full_disk_leaves_nothing_half_and_loses_nothing(small_disk: Path) -> None:
    path = small_disk / "transcript.jsonl"
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 40_000)
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.record("thread_started", {})
        before = path.read_bytes()
        transcript.append("cognition_in", {"text": "x" * 40_000})
        with pytest.raises(StateError, match="No space left"):
            transcript.commit()
        assert path.read_bytes() == before
        with pytest.raises(StateError, match="No space left"):
            transcript.checkpoint(1)
        assert transcript.offset == len(before)
        filler.unlink()
        transcript.append("thread_error", {})
        head = transcript.checkpoint(1)
    kept = [record.type for record in read_records(path)]
    assert kept == ["thread_started", "cognition_in", "thread_error", "checkpoint"]
    assert verify_transcript(path, THREAD, KEY.public, (head.offset, head.digest), ended=True).ok


def test_after_a_failed_sync_nothing_is_promised_any_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    transcript = Transcript.create(path, THREAD, KEY)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        transcript.record("model_call", {})
        with pytest.raises(StateError, match="Input/output error"):
            transcript.sync()
    for _ in range(2):  # the disk may say by now that all is well
        with pytest.raises(StateError, match="Input/output error"):
            transcript.record("model_call", {})
        with pytest.raises(StateError, match="Input/output error"):
            transcript.sync()
    with pytest.raises(StateError):
        transcript.close()
    assert f"{KEY!r}".startswith("SigningKey(fingerprint=")
    assert "0x" in repr(transcript)


def test_an_interrupted_write_is_taken_back_by_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come right behind the write; the records are written once all the same."""
    write = os.write

    def interrupted(descriptor: int, data: bytes) -> int:
        write(descriptor, data)
        raise KeyboardInterrupt

    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.append("tool_call_start", {"turn": 1})
        for way in (transcript.commit, lambda: transcript.checkpoint(1)):
            with monkeypatch.context() as patched:
                patched.setattr(os, "write", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    way()
        head = transcript.checkpoint(1)
    assert [line["event_type"] for line in lines(path)] == ["tool_call_start", "checkpoint"]
    assert verify_transcript(path, THREAD, KEY.public, (head.offset, head.digest), ended=True).ok


_WRITER = """
import sys
from pathlib import Path
from ryecore.lillux.keys import SigningKey
from ryecore.state.transcript import Transcript

path, key = Path(sys.argv[1]), SigningKey.from_pem(Path(sys.argv[2]).read_bytes())
if path.exists():
    transcript, _ = Transcript.resume(path, sys.argv[3], key)
else:
    transcript = Transcript.create(path, sys.argv[3], key)
number = int(sys.argv[4])
while True:
    for _ in range(3):
        transcript.append("hook", {"turn": number // 30, "number": number, "text": "x" * 3000})
        number += 1
    transcript.commit()
    print("committed", number, flush=True)
    if number // 30 > (number - 3) // 30:
        head = transcript.checkpoint(number // 30)
        print("head", head.offset, head.digest, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_committed(path: Path, tmp_path: Path) -> None:
    """Each round goes on where the one before was killed, at a place of its own."""
    key_file = tmp_path / "key.pem"
    key_file.write_bytes(KEY.pem)
    committed, head = 0, None
    for round_ in range(6):
        begun = committed
        arguments = [str(path), str(key_file), THREAD, str(begun)]
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, *arguments], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            said = [writer.stdout.readline() for _ in range(20 + 7 * round_)]
            writer.kill()
            said += writer.stdout  # what it said before it died
        for line in said:
            match line.split():
                case ["committed", number]:
                    committed = int(number)
                case ["head", offset, digest]:
                    head = (int(offset), digest)
        report = verify_transcript(path, THREAD, KEY.public, head, ended=False)
        assert report.ok, report.problems
        resumed, found = Transcript.resume(path, THREAD, KEY, head=head)
        resumed.close()
        assert found.head is not None
        records = tuple(read_records(path))
        assert records[-1].end == path.stat().st_size
        numbers = [record.payload["number"] for record in records if record.type == "hook"]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= committed > begun
        committed = len(numbers)
    turns = verify_transcript(path, THREAD, KEY.public, head, ended=False).turns
    assert any(turn.state == "unattested" for turn in turns[:-1])
    assert sum(turn.state == "attested" for turn in turns) > 10
