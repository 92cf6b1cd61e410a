"""The records that a log's writer has buffered, and its chain of checkpoints: no input or output.

Source: docs/design/threads.md#storage; decisions 38 and 47.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ryecore.convert.json_text import quoted
from ryecore.lillux.keys import SigningKey
from ryecore.state.record_log import Recovery
from ryecore.state.transcript_check import RecordChain
from ryecore.state.transcript_format import (
    Checkpoint,
    CheckpointLines,
    Head,
    encode_payload,
    head_of,
    segment,
    stamp,
)

if TYPE_CHECKING:
    from hashlib import _Hash

__all__ = ["Chain", "RecordBuffer"]

_KEPT_NS: Final = 50_000_000
_KEPT_CHARS: Final = 4096
_DELTA: Final = "token_delta"


class Chain(NamedTuple):
    """The chain after a write.

    Attributes:
        running: The running digest of the segment.
        previous: The digest of the last checkpoint.
        unattested: The number of the segment's records that a recovery found.
    """

    running: "_Hash"
    previous: str
    unattested: int


class _Signed(NamedTuple):
    """The buffered lines up to a checkpoint among them: their number, their bytes, the chain."""

    lines: int
    size: int
    chain: Chain


class RecordBuffer:
    """The buffered lines of one log, and where its chain is."""

    def __init__(self, thread_id: str, key: SigningKey) -> None:
        self._thread_id = thread_id
        self._key = key
        self._checkpoints = CheckpointLines(thread_id)
        self._head = head_of(thread_id)
        self._lines: list[str] = []
        self._pieces: list[str] = []
        self._kept_chars = 0
        self._kept_since_ns = 0
        self._offset = 0
        self._chain = Chain(segment(""), "", 0)
        self._signed: _Signed | None = None

    @property
    def offset(self) -> int:
        """The number of written bytes."""
        return self._offset

    def append(self, event_type: str, payload: Mapping[str, Any]) -> None:
        """Buffer a record for the next commit. Its payload, JSON-ready, is read now."""
        if self._pieces:
            self._keep_delta()
        at_us = time.time_ns() // 1000
        self._lines.append(
            f'{{"timestamp":{stamp(at_us)}{self._head}{quoted(event_type)},'
            f'"payload":{encode_payload(payload)}}}\n'
        )

    def _add_delta(self, text: str) -> bool:
        """Buffer a piece of streamed text, and return whether it is time to write the pieces."""
        pieces = self._pieces
        if not pieces:
            self._kept_since_ns = time.monotonic_ns()
            self._kept_chars = 0
        pieces.append(text)
        self._kept_chars += len(text)
        return (
            self._kept_chars >= _KEPT_CHARS or time.monotonic_ns() - self._kept_since_ns >= _KEPT_NS
        )

    def _keep_delta(self) -> None:
        text = "".join(self._pieces)
        self._pieces.clear()
        self.append(_DELTA, {"text": text})

    def _closed_by(self, data: bytes, turn: int) -> tuple[bytes, Chain, Head]:
        """Return the signed checkpoint after some lines, the chain after it, and its head."""
        return self._sign_after(self._offset, self._chain, data, turn)

    def _sign_after(
        self, offset: int, chain: Chain, data: bytes, turn: int
    ) -> tuple[bytes, Chain, Head]:
        running, previous, unattested = chain
        digest = running.copy()
        digest.update(data)
        checkpoint = Checkpoint(turn, offset + len(data), digest.hexdigest(), previous, unattested)
        line = self._checkpoints.write(checkpoint, time.time_ns() // 1000, self._key)
        following = segment(checkpoint.digest)
        following.update(line)
        return (
            line,
            Chain(following, checkpoint.digest, 0),
            Head(checkpoint.offset, checkpoint.digest),
        )

    def _sign_kept(self, turn: int) -> Head:
        """Add a signed checkpoint to the buffered lines; others may append meanwhile."""
        count = len(self._lines)
        first, size, chain = self._signed or _Signed(0, 0, self._chain)
        data = "".join(self._lines[first:count]).encode("ascii")
        line, following, head = self._sign_after(self._offset + size, chain, data, turn)
        self._lines.insert(count, line.decode("ascii"))
        self._signed = _Signed(count + 1, size + len(data) + len(line), following)
        return head

    def _chain_after_kept(self, count: int, data: bytes) -> Chain:
        """Return the chain after so many buffered lines, whose bytes are `data`."""
        if self._signed is None or self._signed.lines > count:
            return self._chain_after(data)
        running, previous, unattested = self._signed.chain
        digest = running.copy()
        digest.update(data[self._signed.size :])
        return Chain(digest, previous, unattested)

    def _drop_kept(self, count: int, size: int, chain: Chain) -> None:
        """Drop buffered lines that were written, which leads to a chain."""
        signed = self._signed
        if signed is not None:
            left = _Signed(signed.lines - count, signed.size - size, signed.chain)
            self._signed = left if left.lines > 0 else None
        del self._lines[:count]
        self._offset += size
        self._chain = chain

    def _chain_after(self, data: bytes) -> Chain:
        """Return the chain after some lines without a checkpoint."""
        running, previous, unattested = self._chain
        digest = running.copy()
        digest.update(data)
        return Chain(digest, previous, unattested)

    def _continue(self, chain: RecordChain, last_type: str) -> Recovery:
        """Continue behind the last whole record of a log that was read, and return its state."""
        tail = chain.tail()
        turn, previous = (0, "") if chain.last is None else (chain.last.turn, chain.last.digest)
        self._offset, self._chain = tail.end, Chain(tail.digest, previous, tail.records)
        return Recovery(chain.head, turn, last_type, tail.records, chain.dropped())
