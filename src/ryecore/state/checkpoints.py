"""Checkpoints: what chains a transcript's bytes, and their one way to stand in a line. Pure.

A checkpoint closes a segment. Its digest is the SHA-256 of the digest before it and of the bytes
since the line of the checkpoint before it, that line included; so each byte of the file is under
a digest, and nothing is ever hashed twice. What a digest can't cover yet, the last checkpoint's
own line, is under its signature, and has one spelling only.

Source: docs/design/threads.md#storage; decision 47.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Final

from attrs import frozen

from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.state.records import holds, record_signature
from ryecore.state.transcript_lines import Record, head_of, stamp

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = ["CHECKPOINT", "Checkpoint", "CheckpointLines", "Head", "segment"]

CHECKPOINT: Final = "checkpoint"
"""The type of its record, and the kind that its signature is of."""

_DIGITS: Final = 64
_FAR_FUTURE_S: Final = 1e10  # what is larger has no exact microseconds
_FIELDS: Final = frozenset({"turn", "offset", "digest", "previous", "_signature"})


@frozen
class Head:
    """Where a chain of checkpoints stands.

    Attributes:
        offset: How many bytes stand before the last checkpoint's line.
        digest: The digest of that checkpoint (hex).
    """

    offset: int
    digest: str


@frozen
class Checkpoint:
    """What a checkpoint says.

    Attributes:
        turn: The turn that it closes.
        offset: How many bytes stand before its line.
        digest: SHA-256 (hex) of `previous` and of the segment.
        previous: The digest before it; empty at the first one.
        unattested: How many records at the segment's begin a crash had left without a checkpoint.
    """

    turn: int
    offset: int
    digest: str
    previous: str
    unattested: int = 0


def segment(previous: str) -> "_Hash":
    """A running digest that goes on from the one before it (hex; empty for the first)."""
    return hashlib.sha256(bytes.fromhex(previous))


class CheckpointLines:
    """Writes and reads the checkpoints of one thread.

    Args:
        thread_id: The thread.
    """

    def __init__(self, thread_id: str) -> None:
        self._thread = json.dumps(thread_id)
        self._head = head_of(thread_id, CHECKPOINT)

    def write(self, said: Checkpoint, at_us: int, key: SigningKey) -> bytes:
        """The signed line of a checkpoint.

        Args:
            said: What it says.
            at_us: When, in microseconds since 1970.
            key: The run key.
        """
        signature = record_signature(CHECKPOINT, self._canonical(said, at_us), key)
        return self._line(said, at_us, signature).encode("ascii")

    def read(self, record: Record, line: bytes, key: PublicKey) -> Checkpoint | None:
        """Read a checkpoint's line.

        Args:
            record: The line as a record.
            line: Its bytes, with its line end.
            key: The key that must have signed it.

        Returns:
            What it says; None where a byte of the line isn't as it was written.
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
        said = Checkpoint(turn, offset, digest, previous, unattested)
        at_us = round(record.timestamp * 1e6)
        if line != self._line(said, at_us, signature).encode("ascii", errors="replace"):
            return None
        signed = {**json.loads(self._canonical(said, at_us)), "_signature": signature}
        return said if holds(CHECKPOINT, signed, key) else None

    def _canonical(self, said: Checkpoint, at_us: int) -> bytes:
        """`canonical_json` of what is signed, written out: a turn waits for it."""
        more = f',"unattested":{said.unattested}' if said.unattested else ""
        return (
            f'{{"digest":"{said.digest}","offset":{said.offset},"previous":"{said.previous}",'
            f'"thread_id":{self._thread},"timestamp_us":{at_us},"turn":{said.turn}{more}}}'
        ).encode()

    def _line(self, said: Checkpoint, at_us: int, signature: str) -> str:
        more = f'"unattested":{said.unattested},' if said.unattested else ""
        return (
            f'{{"timestamp":{stamp(at_us)}{self._head}{{"turn":{said.turn},'
            f'"offset":{said.offset},"digest":"{said.digest}","previous":"{said.previous}",{more}'
            f'"_signature":"{signature}"}}}}\n'
        )


def _is_digest(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) == _DIGITS
        and all(char in "0123456789abcdef" for char in value)
    )
