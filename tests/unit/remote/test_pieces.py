"""Pieces: what is written is read again, and everything else is refused."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ryecore.remote.protocol.models import MAX_BODY_BYTES
from ryecore.remote.protocol.pieces import (
    MAX_HEAD_BYTES,
    MAX_OBJECT_BYTES,
    Piece,
    encode_pieces,
    read_pieces,
)
from tests.matrix import IS_SOAK

EMPTY = hashlib.sha256(b"").hexdigest()
HASH = hashlib.sha256(b"content").hexdigest()


def line(**changes: object) -> bytes:
    head = {"sha256": HASH, "size_bytes": 7, "offset": 0, "length": 7} | changes
    return json.dumps(head, separators=(",", ":")).encode() + b"\n"


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    content = draw(st.binary(max_size=100))
    offset = draw(st.integers(0, 2**52)) if content else 0
    more = draw(st.integers(0, 2**52 - 200)) if content else 0
    return Piece(
        draw(st.binary(min_size=32, max_size=32)).hex(),
        offset + len(content) + more,
        offset,
        content,
    )


@given(st.lists(pieces(), max_size=8))
def test_what_is_written_is_read_again(written: list[Piece]) -> None:
    body = encode_pieces(written)
    assert list(read_pieces(body)) == written
    assert encode_pieces(read_pieces(body)) == body


def test_a_piece_is_a_line_of_json_and_its_bytes() -> None:
    body = encode_pieces([Piece(HASH, 7, 0, b"content"), Piece(EMPTY, 0, 0, b"")])
    head, rest = body.split(b"\n", 1)
    assert json.loads(head) == {"sha256": HASH, "size_bytes": 7, "offset": 0, "length": 7}
    assert rest.startswith(b"content{")
    largest = Piece(HASH, MAX_OBJECT_BYTES, MAX_OBJECT_BYTES - 1, b"x")
    assert list(read_pieces(encode_pieces([largest]))) == [largest]
    assert len(encode_pieces([largest])) < MAX_HEAD_BYTES


def test_the_bytes_of_a_piece_are_not_copied() -> None:
    body = line() + b"content"
    (piece,) = read_pieces(body)
    assert isinstance(piece.content, memoryview)
    assert piece.content.obj is body


@pytest.mark.parametrize(
    "body",
    [
        line() + b"conten",
        line(length=8, size_bytes=7) + b"content!",
        line(offset=1) + b"content",
        line(length=0),
        line(size_bytes=MAX_OBJECT_BYTES + 1) + b"content",
        line(size_bytes=10**40) + b"content",
        line(size_bytes=-7) + b"content",
        line(offset=-1) + b"content",
        line(length="7") + b"content",
        line(length=7.0) + b"content",
        line(length=True, size_bytes=1) + b"c",
        line(sha256=HASH.upper()) + b"content",
        line(sha256=HASH[1:]) + b"content",
        line(sha256="../../../etc/passwd") + b"content",
        line(more=1) + b"content",
        line().replace(b":7,", b":07,") + b"content",
        line().replace(b',"length":7', b',"length":1,"length":7') + b"content",
        line().replace(b"\n", b"\r\n") + b"content",
        line().strip(),
        b"\n",
        b" " + line() + b"content",
        line() + b"content\n",
        b"{" * 100_000,
        b"[]\n",
        b"\xff\xfe",
        line().replace(b'"offset":0', b'"offset":\xd9\xa3') + b"content",
    ],
)
def test_what_is_malformed_is_refused_before_anything_is_read(body: bytes) -> None:
    for whole in (body, line() + b"content" + body):
        with pytest.raises(ValueError, match=r"piece|Piece"):
            read_pieces(whole)


def test_a_body_has_a_bound() -> None:
    room = MAX_BODY_BYTES - len(line(size_bytes=MAX_BODY_BYTES, length=1_000_000))
    full = encode_pieces([Piece(HASH, MAX_BODY_BYTES, 0, bytes(room))])
    assert len(list(read_pieces(full))) == 1
    with pytest.raises(ValueError, match="at most"):
        read_pieces(full + line() + b"content")


VALID = encode_pieces([Piece(HASH, 7, 0, b"content"), Piece(EMPTY, 0, 0, b"")] * 3)


@settings(max_examples=5000 if IS_SOAK else 200)
@given(
    data=st.data(),
    inserted=st.one_of(st.binary(max_size=40), st.sampled_from([b"0", b"9" * 30, b"\n", b"{"])),
)
def test_whatever_comes_is_read_or_refused(data: st.DataObject, inserted: bytes) -> None:
    """Nothing but ValueError is raised, and what is read has no other spelling."""
    start = data.draw(st.integers(0, len(VALID)))
    end = data.draw(st.integers(start, len(VALID)))
    for body in (inserted, VALID[:start] + inserted + VALID[end:]):
        try:
            found = list(read_pieces(body))
        except ValueError:
            continue
        assert encode_pieces(found) == body
        assert all(one.offset + len(one.content) <= one.size_bytes for one in found)
