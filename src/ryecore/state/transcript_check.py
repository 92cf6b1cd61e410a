"""The check of a transcript: which turn was altered, cut, or never attested; and reading one.

A file is checked line by line in bounded memory, and no content can make that fail. An altered turn
doesn't hide the turns after it: each checkpoint names the digest that it follows.

Source: decision 47.
"""

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from attrs import define

from ryecore.errors import StateError
from ryecore.frozen import frozen
from ryecore.items.signature import parse_payload
from ryecore.lillux.keys import PublicKey
from ryecore.state.model import TERMINAL
from ryecore.state.records import knows
from ryecore.state.transcript_format import (
    CHECKPOINT,
    Checkpoint,
    CheckpointLines,
    Head,
    Line,
    Record,
    lines_of,
    open_plain,
    parse_line,
    segment,
)
from ryecore.state.transcript_report import TranscriptReport, TurnReport, TurnState, Unit

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = [
    "Record",
    "RecordChain",
    "RecordSource",
    "Tail",
    "proved_records",
    "read_chain",
    "read_records",
    "verify_transcript",
]

_ENDS: Final = frozenset(f"{kind}_{status}" for kind in ("thread", "run") for status in TERMINAL)
_MAX_NAMED: Final = 100  # turns that a gap may list
_MAX_BROKEN: Final = 1000  # reports for a forged file


class RecordSource(Protocol):
    """The bytes of a log that isn't a file. As text, it is named for people."""

    def open(self) -> BinaryIO:
        """Open them for reading, with a seekable position.

        Raises:
            OSError: They are missing, or can't be read.
        """
        ...


def _open(source: "Path | RecordSource") -> BinaryIO:
    return open(open_plain(source), "rb") if isinstance(source, Path) else source.open()


def read_chain(
    file: BinaryIO, size: int, thread_id: str, key: PublicKey, head: tuple[int, str] | None
) -> "tuple[RecordChain, str]":
    """Check all lines of a log to continue; return its chain, and the type of its last record.

    A checkpoint isn't counted as a record here.
    """
    chain, last_type = RecordChain(thread_id, key, head), ""
    for line in lines_of(file, 0, size):
        record = chain.feed(line)
        if record is not None and record.type != CHECKPOINT:
            last_type = record.type
    return chain, last_type


def verify_transcript(
    path: "Path | RecordSource",
    thread_id: str,
    public_key: PublicKey,
    head: tuple[int, str] | None,
    *,
    ended: bool,
    unit: Unit = "turn",
) -> TranscriptReport:
    """Check a transcript, turn by turn. Anything at the path is judged; a FIFO isn't waited for.

    The file may have more after the registry's head. Nothing may follow the last checkpoint of a
    thread that has ended.

    Source: decision 47.
    """
    try:
        opened = _open(path)
    except OSError as problem:
        reason = f"{path} can't be read: {problem.strerror or problem}."
        if isinstance(problem, FileNotFoundError):
            reason = f"There is no transcript {path}."
        return TranscriptReport(False, (), (reason,), 0, 0)
    chain = RecordChain(thread_id, public_key, head)
    with opened as file:
        size = file.seek(0, 2)
        file.seek(0)
        try:
            for line in lines_of(file, 0, size):
                chain.feed(line)
        except OSError as problem:
            return TranscriptReport(
                False, tuple(chain.turns), (f"{path} can't be read: {problem.strerror}.",), 0, size
            )
    return chain.report(size, ended=ended, unit=unit)


def read_records(
    path: "Path | RecordSource", *, from_offset: int = 0, to_offset: int | None = None
) -> Generator[Record, None, None]:
    """Read a transcript's records one at a time, without the check of `verify_transcript`.

    The offsets are in bytes: a record's `offset` or `end`. Yields each record of any type, up to
    the first line that isn't a record or has no line end.
    """
    try:
        with _open(path) as file:
            size = file.seek(0, 2)
            file.seek(from_offset)
            for line in lines_of(file, from_offset, size if to_offset is None else to_offset):
                record = parse_line(line)
                if record is None:
                    return
                yield record
    except OSError as problem:
        raise _unreadable(path, problem) from problem


def proved_records(
    path: "Path | RecordSource",
    thread_id: str,
    key: PublicKey,
    head: tuple[int, str] | None,
    *,
    ended: bool,
) -> Generator[Record, None, None]:
    """Read a transcript's records, and check its whole chain after the last one.

    Yields, for a thread that hasn't ended, also those after the last checkpoint, up to the first
    line that isn't a record. What was altered or cut, or has lines after its end, is a StateError.

    Source: decision 47.
    """
    chain, has_end, is_over = RecordChain(thread_id, key, head), False, False
    try:
        with _open(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            for line in lines_of(file, 0, size):
                record = chain.feed(line)
                if record is not None:
                    has_end = has_end or record.type in _ENDS
                    is_over = is_over or (has_end and record.type == CHECKPOINT)
                    yield record
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    chain.check(path, ended=ended)
    if is_over and (chain.tail().records or chain.dropped()):
        raise StateError(
            f"The transcript {path} was altered or cut: something follows its end.",
            next_step=f"See what: rye threads verify {thread_id}",
        )


@frozen
class Tail:
    """The whole records after the last checkpoint: how many, their end in bytes, their digest."""

    records: int
    end: int
    digest: "_Hash"


@define
class _Segment:
    """The lines after the last checkpoint."""

    first_line: int
    digest: "_Hash | None"  # None if the digest that it follows is unknown
    why_unknown: str = ""
    last_line: int = 0
    records: int = 0
    turn: int = 0  # the highest turn in a record
    bad: str = ""  # why a line of it isn't genuine
    is_torn: bool = False
    good: Tail | None = None  # the part before the first bad line


class RecordChain:
    """Checks a transcript line by line: its thread, its key, and a checkpoint it must have."""

    def __init__(self, thread_id: str, key: PublicKey, head: tuple[int, str] | None) -> None:
        self.turns: list[TurnReport] = []
        self.last: Checkpoint | None = None
        self.is_broken = False
        self._thread_id = thread_id
        self._lines = CheckpointLines(thread_id)
        self._key = key
        self._head = head
        self._has_head = head is None
        self._end = 0
        self._unattested = 0
        self._open = _Segment(1, segment(""))

    @property
    def head(self) -> Head | None:
        """The last valid checkpoint."""
        return None if self.last is None else Head(self.last.offset, self.last.digest)

    def feed(self, line: Line) -> Record | None:
        """Check the next line; return its record if all lines of its segment so far are records."""
        now, record = self._open, parse_line(line)
        now.last_line = line.number
        if record is None:
            if line.is_whole or line.content is None:
                self._bad(now, f"line {line.number} isn't a record")
            else:
                now.is_torn = True
        elif record.thread_id != self._thread_id:
            self._bad(now, f"line {line.number} is of another thread")
        elif record.type == CHECKPOINT:
            checkpoint = self._lines.read(record, line.content or b"", self._key)
            if checkpoint is None:
                self._close_broken(line, record)
                return None
            if self.last is None or checkpoint.offset > self.last.offset:
                self._close(line, checkpoint)
                return record
            self._bad(now, f"line {line.number} repeats an earlier checkpoint")
        else:
            now.records += 1
            turn = record.payload.get("turn")
            if type(turn) is int and turn > now.turn:
                now.turn = turn
        if now.digest is not None and line.content is not None and not now.is_torn:
            now.digest.update(line.content)
        if now.bad or now.is_torn:
            return None
        self._end = line.end
        return record

    def _bad(self, now: _Segment, why: str) -> None:
        if not now.bad:
            now.bad, now.good = why, self._tail(now)

    def _tail(self, now: _Segment) -> Tail | None:
        if now.digest is None:
            return None
        return Tail(now.records, self._end, now.digest.copy())

    def _close(self, line: Line, checkpoint: Checkpoint) -> None:
        """Close the segment with a checkpoint that this key signed for this thread."""
        now, last = self._open, self.last
        known = last.turn if last is not None else 0
        state: TurnState
        if now.digest is None:
            state, reason = "unattested", now.why_unknown
            if now.bad:
                state, reason = "altered", now.bad
        elif checkpoint.previous != (last.digest if last is not None else ""):
            reason = "the checkpoint before it is missing"
            state = self._report_gap(now, checkpoint, known, line)
        elif now.bad or checkpoint.digest != now.digest.hexdigest():
            state = "altered"
            reason = now.bad or "these lines are not those that were signed"
        elif checkpoint.unattested:
            state = "unattested"
            reason = f"a crash had left {checkpoint.unattested} records of it without a checkpoint"
            self._unattested += min(checkpoint.unattested, now.records)
        else:
            state, reason = "attested", ""
        if reason and not (
            state == "unattested" and checkpoint.unattested and now.digest is not None
        ):
            self.is_broken = True
            self._unattested += now.records
        self._add(checkpoint.turn, state, now.first_line, line.number, reason)
        self._has_head = self._has_head or (checkpoint.offset, checkpoint.digest) == self._head
        self.last, self._end = checkpoint, line.end
        self._open = _Segment(line.number + 1, segment(checkpoint.digest))
        if self._open.digest is not None:
            self._open.digest.update(line.content or b"")

    def _report_gap(
        self, now: _Segment, checkpoint: Checkpoint, known: int, line: Line
    ) -> TurnState:
        """Report turns without checkpoints; the turn that ends the gap can't be attested."""
        missing = range(known + 1, min(checkpoint.turn, known + 1 + _MAX_NAMED))
        state: TurnState = "altered" if now.bad else "cut"
        for turn in missing:
            reason = now.bad or "its checkpoint is missing"
            self._add(turn, state, now.first_line, line.number, reason)
        return state if now.bad or not missing else "unattested"

    def _close_broken(self, line: Line, record: Record) -> None:
        """Close the segment with a checkpoint that was altered, or that another key signed."""
        now = self._open
        turn = record.payload.get("turn")
        guess = self._guess(now)
        if not now.turn and turn == guess + 1:  # its own turn may be what was altered
            guess += 1
        reason = now.bad or f"the checkpoint in line {line.number} {self._why_not(record)}"
        self._add(guess, "altered", now.first_line, line.number, reason)
        self.is_broken = True
        self._unattested += now.records
        why = "the checkpoint before it doesn't hold"
        self._open = _Segment(line.number + 1, None, why)

    def _why_not(self, record: Record) -> str:
        """Return what is wrong with a checkpoint: another's signature is told from a false one."""
        line = record.payload.get("_signature")
        signature = parse_payload(line) if isinstance(line, str) else None
        if signature is None or knows(self._key, signature.fingerprint):
            return "doesn't hold"
        return f"is signed by the run key {signature.fingerprint}, which isn't known here"

    def _guess(self, now: _Segment) -> int:
        return now.turn or (self.turns[-1].turn if self.turns else 0)

    def _add(self, turn: int, state: TurnState, first: int, last: int, reason: str) -> None:
        if not self.is_broken or len(self.turns) < _MAX_BROKEN or state == "attested":
            self.turns.append(TurnReport(turn, state, first, last, reason))

    def tail(self) -> Tail:
        """Return the part after the last checkpoint of a valid chain, up to the first bad line."""
        found = self._open.good if self._open.bad else self._tail(self._open)
        if found is None:
            raise ValueError("a broken chain has no tail to continue from")
        return found

    def dropped(self) -> bool:
        """Return whether there are bytes after the last whole record."""
        return bool(self._open.bad) or self._open.is_torn

    def check(self, path: "Path | RecordSource", *, ended: bool = False) -> None:
        """Refuse an invalid transcript; the tail of a thread that hasn't ended isn't checked."""
        problems = self.report(0, ended=ended, unit="turn").problems
        if self.is_broken or not self._has_head or (ended and problems):
            why = f": {problems[0]}" if problems else "."
            raise StateError(
                f"The transcript {path} was altered or cut, so it can't be continued{why}",
                next_step=f"See where: rye threads verify {self._thread_id}",
            )

    def report(self, size_bytes: int, *, ended: bool, unit: Unit) -> TranscriptReport:
        """Return the report of the check."""
        called = unit.title()
        problems = [
            f"{called} {one.turn} (lines {one.first_line} to {one.last_line}): {one.reason}."
            for one in self.turns
            if one.state in ("altered", "cut")
        ]
        turns, now = list(self.turns), self._open
        unattested = self._unattested + now.records
        is_cut = not self._has_head and not self.is_broken
        turn = self._guess(now)
        last_line = max(now.last_line, now.first_line - 1)
        if is_cut:
            turn = now.turn or (self.last.turn + 1 if self.last is not None else 1)
            reason = "the file ends before the checkpoint that the registry knows"
            turns.append(TurnReport(turn, "cut", now.first_line, last_line, reason))
        elif now.bad:
            turns.append(TurnReport(turn, "altered", now.first_line, last_line, now.bad))
        elif now.records or now.is_torn:
            reason = now.why_unknown or "no checkpoint closes it"
            if now.is_torn:
                reason += f", and line {last_line} is torn"
            turns.append(TurnReport(turn, "unattested", now.first_line, last_line, reason))
        if len(turns) > len(self.turns) and (ended or turns[-1].state != "unattested"):
            one = turns[-1]
            where = f"lines {one.first_line} to {one.last_line}"
            if one.last_line < one.first_line:
                where = f"after line {one.last_line}"
            problems.append(f"{called} {one.turn} ({where}): {one.reason}.")
        if self.is_broken and not problems:
            problems.append("The chain of checkpoints is broken.")
        return TranscriptReport(
            not problems, tuple(turns), tuple(problems), unattested, size_bytes, unit
        )


def _unreadable(path: "Path | RecordSource", problem: OSError) -> StateError:
    return StateError(
        f"The transcript {path} can't be read: {problem.strerror or problem}.",
        next_step="See which threads there are: rye threads list --all",
    )
