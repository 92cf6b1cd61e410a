"""Pieces: parts of objects, as the body of `POST /objects` holds them.

A piece is a line of JSON that says which part of which object follows, and the bytes of that part.

Source: docs/design/remote.md#objects-and-pieces.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ryecore.frozen import frozen
from ryecore.remote.protocol.models import MAX_BODY_BYTES

__all__ = ["MAX_HEAD_BYTES", "MAX_OBJECT_BYTES", "Piece", "encode_pieces", "read_pieces"]

MAX_OBJECT_BYTES: Final = 2**53
"""The largest object: JSON's numbers are exact up to here (RFC 8259, 6)."""

_HEAD: Final = re.compile(
    rb'\{"sha256":"([0-9a-f]{64})","size_bytes":(0|[1-9][0-9]{0,15}),'
    rb'"offset":(0|[1-9][0-9]{0,15}),"length":(0|[1-9][0-9]{0,15})\}\n'
)
MAX_HEAD_BYTES: Final = len('{"sha256":"","size_bytes":,"offset":,"length":}\n') + 64 + 3 * 16
"""The longest line in front of a piece's bytes."""


@frozen
class Piece:
    """A part of an object.

    Attributes:
        sha256: The SHA-256 of the whole object, as hexadecimal digits.
        size_bytes: The length of the whole object.
        offset: Where the part begins in it.
        content: The bytes of the part: at least one, unless the object is empty.
    """

    sha256: str
    size_bytes: int
    offset: int
    content: memoryview | bytes


def encode_pieces(pieces: Iterable[Piece]) -> bytes:
    """Return pieces as a body."""
    parts: list[memoryview | bytes] = []
    for one in pieces:
        head = (
            f'{{"sha256":"{one.sha256}","size_bytes":{one.size_bytes}'
            f',"offset":{one.offset},"length":{len(one.content)}}}\n'
        )
        parts += (head.encode("ascii"), one.content)
    return b"".join(parts)


def read_pieces(body: bytes) -> Iterator[Piece]:
    """Read a body of pieces.

    The whole body is checked before the first piece is returned. The pieces refer to the body
    without a copy. That an object's content has its hash is checked where it is stored.

    Raises:
        ValueError: It isn't a sequence of pieces, or is longer than 8 MiB.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"A body of pieces has at most {MAX_BODY_BYTES:,} bytes.")
    view, position, pieces = memoryview(body), 0, list[Piece]()
    while position < len(body):
        head = _HEAD.match(body, position, position + MAX_HEAD_BYTES)
        if head is None:
            raise ValueError(f"No piece begins at byte {position:,} of the body.")
        size_bytes, offset, length = int(head[2]), int(head[3]), int(head[4])
        end = head.end() + length
        if size_bytes > MAX_OBJECT_BYTES or offset + length > size_bytes:
            raise ValueError(f"The piece at byte {position:,} ends behind the end of its object.")
        if not length and size_bytes:
            raise ValueError(f"The piece at byte {position:,} has no bytes.")
        if end > len(body):
            raise ValueError(f"The piece at byte {position:,} is cut off.")
        pieces.append(Piece(head[1].decode("ascii"), size_bytes, offset, view[head.end() : end]))
        position = end
    return iter(pieces)
