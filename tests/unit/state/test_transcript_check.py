"""Proving a transcript: every byte of it is under a digest, and the report says which turn."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ryecore import SigningKey
from ryecore.errors import StateError
from ryecore.state.transcript import Transcript
from ryecore.state.transcript_check import (
    Record,
    proved_records,
    read_records,
    verify_transcript,
)
from ryecore.state.transcript_format import MAX_LINE_BYTES
from ryecore.state.transcript_report import TranscriptReport, TurnReport
from tests.matrix import IS_SOAK

KEY = SigningKey.generate()
THREAD = "acme/t-1"
TURNS = (1, 2, 3, 3)
"""The turn that each checkpoint closes; behind the third, the thread ends."""


class Written:
    """A whole transcript of three turns, and what the registry knows of it."""

    def __init__(self, path: Path, thread_id: str = THREAD, key: SigningKey = KEY) -> None:
        self.path = path
        with Transcript.create(path, thread_id, key) as transcript:
            transcript.append("thread_started", {"model": "fake/m"})
            for turn in (1, 2, 3):
                transcript.append("cognition_in", {"turn": turn, "parts": []})
                transcript.append("cognition_out", {"turn": turn, "parts": []})
                head = transcript.checkpoint(turn)
            transcript.append("thread_completed", {})
            head = transcript.checkpoint(3)
        self.head = (head.offset, head.digest)
        self.content = path.read_bytes()
        self.lines = self.content.splitlines(keepends=True)

    def verify(self, content: bytes | None = None, *, ended: bool = True) -> TranscriptReport:
        """The report on other content."""
        if content is not None:
            self.path.write_bytes(content)
        return verify_transcript(self.path, THREAD, KEY.public, self.head, ended=ended)

    def verify_with(self, offset: int, byte: int) -> TranscriptReport:
        """The report while one byte is another."""
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes([byte]), offset)
            report = self.verify()
            os.pwrite(file.fileno(), self.content[offset : offset + 1], offset)
        return report

    def place_of(self, offset: int) -> tuple[int, int]:
        """The line (from 1) and the segment (from 0) that a byte belongs to."""
        before = self.content[:offset]
        line = before.count(b"\n") + 1
        return line, sum(b'"checkpoint"' in one for one in self.lines[: line - 1])


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path / "transcript.jsonl")


def states(report: TranscriptReport) -> list[tuple[int, str]]:
    return [(turn.turn, turn.state) for turn in report.turns]


def blamed(report: TranscriptReport) -> list[TurnReport]:
    return [turn for turn in report.turns if turn.state in ("altered", "cut")]


def test_a_transcript_as_it_was_written_is_attested_whole(written: Written) -> None:
    report = written.verify()
    assert report.ok
    assert report.problems == ()
    assert states(report) == [(turn, "attested") for turn in TURNS]
    assert [(turn.first_line, turn.last_line) for turn in report.turns] == [
        (1, 4), (5, 7), (8, 10), (11, 12),
    ]  # fmt: skip
    assert report.unattested_records == 0
    assert report.to_dict()["size_bytes"] == len(written.content)


FLIPS: dict[str, Callable[[int], int]] = {
    "a bit": lambda byte: byte ^ 1,
    "case": lambda byte: byte ^ 0x20,
    "a line end": lambda byte: 0x0A if byte != 0x0A else 0x20,
    "NUL": lambda _: 0,
    "no ASCII": lambda byte: byte | 0x80,
    "a quote": lambda byte: 0x22 if byte != 0x22 else 0x5C,
}


@pytest.mark.parametrize("flip", FLIPS)
def test_any_flipped_byte_is_noticed_and_its_turn_named(written: Written, flip: str) -> None:
    # Each byte in one of the ways, which take turns; in the soak in all of them.
    first, step = (0, 1) if IS_SOAK else ([*FLIPS].index(flip), len(FLIPS))
    for offset in range(first, len(written.content), step):
        report = written.verify_with(offset, FLIPS[flip](written.content[offset]))
        _, place = written.place_of(offset)
        assert not report.ok, offset
        assert report.problems, offset
        named = blamed(report)
        last = place == len(TURNS) - 1
        assert TURNS[place] in {one.turn for one in named} or last, (offset, report)
        assert states(report)[:place] == [(turn, "attested") for turn in TURNS[:place]]
        assert min(one.turn for one in named) >= TURNS[place], (offset, report)
        # What stands two checkpoints behind it is proved all the same.
        assert states(report)[place + 2 :] == [(turn, "attested") for turn in TURNS[place + 2 :]], (
            offset,
            report,
        )


def test_a_truncation_is_noticed_at_every_byte(written: Written) -> None:
    for size in reversed(range(len(written.content))):
        os.truncate(written.path, size)
        report = written.verify()
        _, place = written.place_of(size)
        assert not report.ok, size
        assert states(report)[:place] == [(turn, "attested") for turn in TURNS[:place]]
        assert [one.state for one in blamed(report)] == ["cut"], (size, report)
        assert "the registry knows" in report.problems[0]


def test_a_removed_a_repeated_and_a_moved_line_are_noticed(written: Written) -> None:
    lines = written.lines
    for at in range(len(lines)):
        for changed in (
            lines[:at] + lines[at + 1 :],
            [*lines[: at + 1], lines[at], *lines[at + 1 :]],
            lines[:at] + lines[at + 1 : at + 2] + lines[at : at + 1] + lines[at + 2 :],
            [*lines, lines[at]],
        ):
            if changed == lines:
                continue
            report = written.verify(b"".join(changed))
            assert not report.ok, (at, report)


def test_a_checkpoint_has_one_spelling(written: Written) -> None:
    """Behind the last one no digest speaks for its line, and its signature is of what it says."""
    *before, last = written.lines
    said = json.loads(last)
    seconds = f"{said['timestamp']:.6f}"
    for other in (
        json.dumps(said).encode() + b"\n",
        json.dumps({**said, "more": 1}, separators=(",", ":")).encode() + b"\n",
        last.replace(seconds.encode(), seconds.encode() + b"0"),
        last.replace(b"checkpoint", b"\\u0063heckpoint"),
    ):
        assert json.loads(other)["payload"] == said["payload"]
        report = written.verify(b"".join(before) + other)
        assert states(report)[-1] == (3, "altered"), other


def test_a_checkpoint_that_stands_there_again_is_called_so(written: Written) -> None:
    lines = written.lines
    report = written.verify(b"".join([*lines[:7], lines[3], *lines[7:]]))
    assert states(report) == [(1, "attested"), (2, "attested"), (3, "altered"), (3, "attested")]
    assert report.turns[2].reason == "line 8 repeats an earlier checkpoint"


def test_a_turn_that_was_taken_out_whole_is_cut(written: Written) -> None:
    lines = written.lines
    report = written.verify(b"".join(lines[:4] + lines[7:]))
    assert states(report) == [(1, "attested"), (2, "cut"), (3, "unattested"), (3, "attested")]
    assert "Turn 2" in report.problems[0]
    assert "its checkpoint is missing" in report.problems[0]


def test_two_turns_that_changed_places_are_noticed(written: Written) -> None:
    lines = written.lines
    report = written.verify(b"".join(lines[:4] + lines[7:10] + lines[4:7] + lines[10:]))
    assert not report.ok
    assert states(report)[0] == (1, "attested")
    assert 2 in {one.turn for one in blamed(report)}


RECORD = b'{"timestamp":1.5,"thread_id":"acme/t-1","event_type":"hook","payload":{}}\n'
ADDED = {
    "garbage": b"\x93\xfa\n",
    "garbage without an end": b"garbage",
    "NULs": b"\0" * 5000,
    "a record": RECORD,
    "a record of another thread": RECORD.replace(b"t-1", b"t-2"),
    "a record of an unknown type": RECORD.replace(b"hook", b"dance"),
    "a line end": b"\n",
    "CRLF": RECORD.replace(b"\n", b"\r\n"),
    "a BOM": b"\xef\xbb\xbf" + RECORD,
    "JSON": b"[1]\n",
    "deep JSON": b"[" * 100_000 + b"\n",
    "a long number": b'{"timestamp":' + b"9" * 5000 + b"}\n",
    "no UTF-8": RECORD.replace(b"hook", b"h\xff\xfek"),
    "UTF-16": RECORD.decode().encode("utf-16"),
    "a checkpoint without its fields": RECORD.replace(b"hook", b"checkpoint"),
    "a payload that is none": RECORD.replace(b"{}", b"[]"),
    "an endless time": RECORD.replace(b"1.5", b"1e999"),
}


@pytest.mark.parametrize("added", ADDED)
def test_nothing_can_be_added_anywhere(written: Written, added: str) -> None:
    """Behind its end, or between any two lines."""
    for at in range(len(written.lines) + 1):
        lines = [*written.lines[:at], ADDED[added], *written.lines[at:]]
        report = written.verify(b"".join(lines))
        assert not report.ok, (at, report)
        if at == len(written.lines):
            assert states(report)[: len(TURNS)] == [(turn, "attested") for turn in TURNS]
            running = written.verify(ended=False)
            is_torn = b"\n" not in ADDED[added]
            is_record = added in ("a record", "a record of an unknown type")
            assert running.ok == (is_torn or is_record)
            assert running.unattested_records == is_record


def test_a_running_threads_tail_is_no_problem_and_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.append("cognition_in", {"turn": 1})
        head = transcript.checkpoint(1)
        transcript.record("model_call", {"turn": 2})
        report = verify_transcript(
            path, THREAD, KEY.public, (head.offset, head.digest), ended=False
        )
        assert report.ok
        assert states(report) == [(1, "attested"), (2, "unattested")]
        assert report.turns[1].reason == "no checkpoint closes it"
        assert report.unattested_records == 1
        ended = verify_transcript(path, THREAD, KEY.public, None, ended=True)
        assert not ended.ok
        assert ended.problems == ("Turn 2 (lines 3 to 3): no checkpoint closes it.",)


def test_an_older_transcript_that_was_put_back_is_cut(written: Written) -> None:
    """It proves itself, but the registry knows of a later checkpoint."""
    older = b"".join(written.lines[:7])
    assert not written.verify(older).ok
    written.path.write_bytes(older)
    assert verify_transcript(written.path, THREAD, KEY.public, None, ended=True).ok
    assert states(written.verify(ended=False))[-1] == (3, "cut")


def test_the_registry_may_know_an_earlier_head_than_the_file(written: Written) -> None:
    """It is told with the next transaction, and the process may die before."""
    payload = json.loads(written.lines[6])["payload"]
    known = (payload["offset"], payload["digest"])
    assert verify_transcript(written.path, THREAD, KEY.public, known, ended=True).ok
    for wrong in ((known[0] + 1, known[1]), (known[0], "0" * 64)):
        assert not verify_transcript(written.path, THREAD, KEY.public, wrong, ended=True).ok


def test_another_threads_transcript_and_another_keys_prove_nothing(tmp_path: Path) -> None:
    written = Written(tmp_path / "mine.jsonl")
    other = Written(tmp_path / "others.jsonl", thread_id="acme/t-2")
    forged = Written(tmp_path / "forged.jsonl", key=SigningKey.generate())
    for content in (other.content, other.content.replace(b"acme/t-2", b"acme/t-1"), forged.content):
        report = written.verify(content)
        assert not report.ok
        assert "attested" not in dict(states(report)).values()
        assert not verify_transcript(written.path, THREAD, KEY.public, None, ended=False).ok


@pytest.mark.parametrize("kind", ["missing", "link", "fifo", "folder", "socket"])
def test_what_is_no_file_is_reported_and_never_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "transcript.jsonl"
    match kind:
        case "link":
            path.symlink_to(Written(tmp_path / "real.jsonl").path)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "socket":
            os.mknod(path, 0o140600)
    report = verify_transcript(path, THREAD, KEY.public, None, ended=False)
    assert not report.ok
    assert str(path) in report.problems[0]
    with pytest.raises(StateError, match="can't be read"):
        list(read_records(path))


def test_an_empty_transcript_proves_nothing_and_hides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(b"")
    assert verify_transcript(path, THREAD, KEY.public, None, ended=False).ok
    assert not verify_transcript(path, THREAD, KEY.public, (5, "a" * 64), ended=False).ok


def test_a_huge_line_is_judged_in_bounded_memory(written: Written) -> None:
    """In a process of its own, which may hold less than the line."""
    with written.path.open("wb") as file:
        file.write(b"".join(written.lines[:7]))
        file.truncate(len(b"".join(written.lines[:7])) + 6 * MAX_LINE_BYTES)
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
        file.write(b"".join(written.lines[7:]))
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from ryecore.lillux.keys import PublicKey\n"
        "from ryecore.state.transcript_check import verify_transcript\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)\n"
        "key = PublicKey(bytes.fromhex(sys.argv[2]))\n"
        "print(*((one.turn, one.state) for one in verify_transcript("
        "Path(sys.argv[1]), 'acme/t-1', key, None, ended=True).turns))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(written.path), KEY.public.raw.hex()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = "(1, 'attested') (2, 'attested') (3, 'altered') (3, 'attested')"
    assert done.stdout.strip() == said, done.stderr


def test_records_are_read_from_and_to_any_of_them(written: Written) -> None:
    records = list(read_records(written.path))
    assert len(records) == len(written.lines)
    assert [record.end - record.offset for record in records] == list(map(len, written.lines))
    third = records[2]
    assert next(read_records(written.path, from_offset=third.offset)) == third
    assert list(read_records(written.path, from_offset=records[1].end)) == records[2:]
    assert list(read_records(written.path, to_offset=third.end)) == records[:3]
    assert list(read_records(written.path, from_offset=10**9)) == []
    written.path.write_bytes(b"".join(written.lines[:3]) + written.lines[3][:-1])
    assert list(read_records(written.path)) == records[:3]
    written.path.write_bytes(b"".join(written.lines[:2]) + ADDED["a record of an unknown type"])
    assert [record.type for record in read_records(written.path)][-1] == "dance"


def test_a_file_of_forged_checkpoints_is_reported_in_bounded_memory(written: Written) -> None:
    forged = written.lines[3].replace(b'"_signature":"rye', b'"_signature":"eyr')
    report = written.verify(b"".join(written.lines[:4]) + forged * 3000)
    assert not report.ok
    assert states(report)[0] == (1, "attested")
    assert len(report.turns) < 1100


def test_records_to_go_on_from_are_those_of_a_chain_that_holds(written: Written) -> None:
    def read(head: tuple[int, str] | None = written.head) -> list[Record]:
        return list(proved_records(written.path, THREAD, KEY.public, head, ended=False))

    whole = list(read_records(written.path))
    assert read() == whole
    begun = b"".join(written.lines[:4])
    written.path.write_bytes(begun + RECORD + b"garbage\n" + RECORD + b"torn")
    assert [record.type for record in read(None)] == [*(one.type for one in whole[:4]), "hook"]
    for altered in (
        written.content.replace(b'"parts":[]', b'"parts":[ ]', 1),
        b"".join(written.lines[:7]),
        b"".join(written.lines[:4] + written.lines[7:]),
        b"",
    ):
        written.path.write_bytes(altered)
        with pytest.raises(StateError, match="altered or cut"):
            read()
    written.path.unlink()
    with pytest.raises(StateError, match="can't be read"):
        read()


def test_nothing_behind_the_signed_end_of_a_thread_is_gone_on_from(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    with Transcript.create(path, THREAD, KEY) as transcript:
        transcript.append("thread_started", {})
        transcript.append("thread_error", {})
        transcript.checkpoint(1)
    assert len(list(proved_records(path, THREAD, KEY.public, None, ended=False))) == 3
    with open(path, "ab") as file:
        file.write(RECORD)
    with pytest.raises(StateError, match="something follows its end"):
        list(proved_records(path, THREAD, KEY.public, None, ended=False))
