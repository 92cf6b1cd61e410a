"""Pieces in any order and of any size: what is stored has its hash, and is counted."""

import hashlib
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ryecore.node.content import CallerContent
from ryecore.node.files import cost_of
from ryecore.node.problems import NodeProblem
from ryecore.remote.protocol.pieces import Piece
from tests.matrix import IS_SOAK

OBJECTS = (b"", b"a", b"content", bytes(range(256)) * 4)
HASHES = tuple(hashlib.sha256(one).hexdigest() for one in OBJECTS)


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    """A piece of an object: mostly right, else with another offset, size or content."""
    number = draw(st.integers(0, len(OBJECTS) - 1))
    content = OBJECTS[number]
    offset = draw(st.sampled_from([0, 0, 1, 3, len(content) // 2, len(content)]))
    end = draw(st.sampled_from([len(content), offset + 1, len(content) // 2]))
    size = draw(st.sampled_from([len(content)] * 4 + [0, 1, 5, 2000]))
    part = content[offset:end] if draw(st.integers(0, 4)) else b"x" * max(end - offset, 0)
    return Piece(HASHES[number], size, offset, part)


@settings(max_examples=1500 if IS_SOAK else 60)
@given(bodies=st.lists(st.lists(pieces(), max_size=5), max_size=8), data=st.data())
def test_whatever_is_sent_objects_have_their_hash_and_bytes_are_counted(
    bodies: list[list[Piece]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        max_bytes = data.draw(st.sampled_from([10, 4096, 10_000, 40_000]))
        content = CallerContent(folder, max_bytes=max_bytes, max_object_bytes=1500)
        for body in bodies:
            with suppress(NodeProblem):
                answer = content.store(body)
                assert all(content.size_of(one) is not None for one in answer.stored)
            kept = [path for path in folder.rglob("*") if path.is_file()]
            on_disk = sum(cost_of(path.stat().st_size) for path in kept)
            assert content.quota.used_bytes == on_disk <= max_bytes
            again = CallerContent(folder, max_bytes=max_bytes)
            assert again.quota.used_bytes == on_disk
        for path in (folder / "objects").rglob("*"):
            if path.is_file():
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                assert digest in HASHES
                assert digest == path.name or path.parent.name + path.name == digest
        for sha256, whole in zip(HASHES, OBJECTS, strict=True):
            if content.size_of(sha256) is not None:
                with content.open(sha256) as file:
                    assert file.read() == whole
