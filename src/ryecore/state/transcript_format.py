"""The lines of a transcript: writing a record as a line, and reading it.

    {"timestamp":1763796896.104512,"thread_id":"...","event_type":"...","payload":{...}}

A line is ASCII, so that it can hold any text of a model, lone surrogates too.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ryecore.convert.json_text import make_encoder, quoted
from ryecore.errors import StateError
from ryecore.frozen import frozen
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.state.records import holds, record_signature

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = [
    "CHECKPOINT",
    "MAX_LINE_BYTES",
    "Checkpoint",
    "CheckpointLines",
    "Head",
    "Line",
    "Record",
    "encode_payload",
    "head_of",
    "lines_of",
    "open_plain",
    "parse_line",
    "segment",
    "stamp",
]

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""The bound of a line, which bounds a reader's memory even with a forged file."""


@frozen
class Record:
    """One line of a transcript.

    Attributes:
        timestamp: The time in seconds since 1970 (UTC).
        thread_id: The thread.
        type: The type of the event.
        payload: The rest.
        offset: The start of the line, in bytes.
        end: Its end, in bytes.
    """

    timestamp: float
    thread_id: str
    type: str
    payload: Mapping[str, Any]
    offset: int = 0
    end: int = 0


# Writing


def stamp(at_us: int) -> str:
    """Return a time in microseconds since 1970 exactly as seconds. It must be 1 s or more."""
    digits = str(at_us)  # faster than arithmetic
    return f"{digits[:-6]}.{digits[-6:]}"


def head_of(thread_id: str) -> str:
    """Return the text between a line's timestamp and its event's type."""
    return f',"thread_id":{quoted(thread_id)},"event_type":'


def _plain(value: object) -> object:
    """Convert a value of a type that the encoder doesn't know."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} can't stand in a transcript")


_encode: Final = make_encoder(default=_plain)


def encode_payload(payload: Mapping[str, Any]) -> str:
    """Encode a payload as ASCII JSON; numbers that JSON lacks become texts, such as `"nan"`.

    One that is nested too deep, too large for a line, or has a number that no reader accepts is a
    StateError; a value that JSON can't hold is a TypeError.
    """
    try:
        text = _encode(payload)
    except (ValueError, RecursionError):
        text = _encode_odd(payload)
    if len(text) > MAX_LINE_BYTES - 4096:
        raise StateError(
            f"A record of {len(text)} bytes is too large for a transcript.",
            next_step="Keep large data in files, and pass their paths.",
        )
    return text


def _encode_odd(payload: Mapping[str, Any]) -> str:
    try:
        return _encode(_finite(payload))
    except RecursionError:
        raise StateError(
            "A record is nested too deep for a transcript.",
            next_step="Have the tool or the model write flatter data.",
        ) from None
    except ValueError:  # more digits than Python writes or reads
        raise StateError(
            "A record holds a number too long for a transcript.",
            next_step="Have the tool or the model write it as text.",
        ) from None


def _finite(value: object) -> object:
    """Replace NaN and infinity by texts: a model's arguments may have them, but JSON doesn't."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


# Reading


@frozen
class Line:
    """A line in a file: its number, from 1, its start and its end in bytes.

    Without a line end it isn't whole. Its content is None if it is longer than `MAX_LINE_BYTES`.
    """

    number: int
    offset: int
    end: int
    content: bytes | None
    is_whole: bool


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a plain file. A link, a FIFO or a device is refused without waiting."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it isn't a plain file")
    return descriptor


def lines_of(file: BinaryIO, offset: int, to_offset: int) -> Iterator[Line]:
    """Yield the lines of a file from its position, which is `offset`, on, in bounded memory."""
    number = 0
    while offset < to_offset:
        number += 1
        content: bytes | None = file.readline(min(MAX_LINE_BYTES, to_offset - offset))
        if not content:
            return
        end = offset + len(content)
        is_whole = content.endswith(b"\n")
        if not is_whole and end < to_offset:  # it is too long: skip to its end
            content = None
            while not is_whole and end < to_offset:
                piece = file.readline(min(MAX_LINE_BYTES, to_offset - end))
                if not piece:
                    break
                end += len(piece)
                is_whole = piece.endswith(b"\n")
        yield Line(number, offset, end, content, is_whole)
        offset = end


def parse_line(line: Line) -> Record | None:
    """Return a line as a record; None if it isn't one, or has no line end."""
    content = line.content
    if content is None or not (content.startswith(b"{") and content.endswith(b"}\n")):
        return None
    try:
        document = json.loads(content.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    timestamp, thread_id = document.get("timestamp"), document.get("thread_id")
    event_type, payload = document.get("event_type"), document.get("payload")
    if not (
        isinstance(timestamp, float)
        and math.isfinite(timestamp)
        and isinstance(thread_id, str)
        and isinstance(event_type, str)
        and isinstance(payload, dict)
    ):
        return None
    return Record(timestamp, thread_id, event_type, payload, line.offset, line.end)


CHECKPOINT: Final = "checkpoint"
"""The type of a checkpoint's record, and the kind of its signature."""

_DIGITS: Final = 64
_FAR_FUTURE_S: Final = 1e10  # larger numbers have no exact microseconds
_FIELDS: Final = frozenset({"turn", "offset", "digest", "previous", "_signature"})


@frozen
class Head:
    """The head of a chain of checkpoints.

    Attributes:
        offset: The offset of the last checkpoint's line, in bytes.
        digest: The digest of that checkpoint (hex).
    """

    offset: int
    digest: str


@frozen(slots=False)
class Checkpoint:
    """The contents of a checkpoint, which closes a turn.

    Attributes:
        offset: The offset of its line, in bytes.
        digest: SHA-256 (hex) of `previous` and of the segment.
        previous: The digest of the checkpoint before; empty for the first one.
        unattested: The number of records at the start of the segment that a crash left without a
            checkpoint.
    """

    turn: int
    offset: int
    digest: str
    previous: str
    unattested: int = 0


def segment(previous: str) -> "_Hash":
    """Return a running digest that continues the one before (hex; empty for the first)."""
    return hashlib.sha256(bytes.fromhex(previous))


class CheckpointLines:
    """Writes and reads the checkpoints of one thread."""

    def __init__(self, thread_id: str) -> None:
        self._thread = quoted(thread_id)
        self._head = f'{head_of(thread_id)}{quoted(CHECKPOINT)},"payload":'

    def write(self, checkpoint: Checkpoint, at_us: int, key: SigningKey) -> bytes:
        """Return the signed line of a checkpoint, made at a time in microseconds since 1970."""
        signature = record_signature(CHECKPOINT, self._canonical(checkpoint, at_us), key)
        return self._line(checkpoint, at_us, signature).encode("ascii")

    def read(self, record: Record, line: bytes, key: PublicKey) -> Checkpoint | None:
        """Read a checkpoint's line, given as a record and as bytes with its line end.

        Returns None if a byte of the line isn't as this key's owner wrote it.
        """
        payload = record.payload
        if not _FIELDS <= payload.keys() <= _FIELDS | {"unattested"}:
            return None
        turn, offset, unattested = payload["turn"], payload["offset"], payload.get("unattested", 0)
        digest, previous, signature = payload["digest"], payload["previous"], payload["_signature"]
        if not (
            type(turn) is int
            and type(offset) is int
            and type(unattested) is int
            and _is_digest(digest)
            and (previous == "" or _is_digest(previous))
            and isinstance(signature, str)
            and 1 <= record.timestamp < _FAR_FUTURE_S
        ):
            return None
        checkpoint = Checkpoint(turn, offset, digest, previous, unattested)
        at_us = round(record.timestamp * 1e6)
        if line != self._line(checkpoint, at_us, signature).encode("ascii", errors="replace"):
            return None
        signed = {**json.loads(self._canonical(checkpoint, at_us)), "_signature": signature}
        return checkpoint if holds(CHECKPOINT, signed, key) else None

    def _canonical(self, checkpoint: Checkpoint, at_us: int) -> bytes:
        """Return `canonical_json` of the signed record, inlined, because a turn waits for it."""
        more = f',"unattested":{checkpoint.unattested}' if checkpoint.unattested else ""
        return (
            f'{{"digest":"{checkpoint.digest}","offset":{checkpoint.offset},"previous":"{checkpoint.previous}",'
            f'"thread_id":{self._thread},"timestamp_us":{at_us},"turn":{checkpoint.turn}{more}}}'
        ).encode()

    def _line(self, checkpoint: Checkpoint, at_us: int, signature: str) -> str:
        more = f'"unattested":{checkpoint.unattested},' if checkpoint.unattested else ""
        return (
            f'{{"timestamp":{stamp(at_us)}{self._head}{{"turn":{checkpoint.turn},'
            f'"offset":{checkpoint.offset},"digest":"{checkpoint.digest}","previous":"{checkpoint.previous}",{more}'
            f'"_signature":"{signature}"}}}}\n'
        )


def _is_digest(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) == _DIGITS
        and all(char in "0123456789abcdef" for char in value)
    )
