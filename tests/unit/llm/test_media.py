"""Stores of media, in memory, in a folder and in a store of objects."""

from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import StoreError
from ryecore.llm import FolderMediaStore, MediaStore, MemoryMediaStore, ObjectMediaStore
from ryecore.state.object_places import open_objects


@pytest.fixture(params=["memory", "folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MediaStore:
    if request.param == "objects":
        return ObjectMediaStore(open_objects(str(tmp_path / "o")).below("media"))
    return MemoryMediaStore() if request.param == "memory" else FolderMediaStore(tmp_path / "m")


def test_media_are_kept_by_their_digest(store: MediaStore) -> None:
    part = store.put(b"\x89PNG", "image/png", "sea.png")

    assert (part.media_type, part.size_bytes, part.name) == ("image/png", 4, "sea.png")
    assert store.put(b"\x89PNG", "image/png", "sea.png") == part
    assert store.read(part) == b"\x89PNG"


def test_what_is_not_kept_is_not_read(store: MediaStore) -> None:
    part = store.put(b"x", "image/png")
    for handle in ("media://" + "0" * 64, "result://" + "0" * 64, "media://../x"):
        with pytest.raises(StoreError):
            store.read(evolve(part, handle=handle))


def test_media_are_read_by_another_process(tmp_path: Path) -> None:
    part = ObjectMediaStore(open_objects(str(tmp_path))).put(b"x", "image/png")

    assert ObjectMediaStore(open_objects(str(tmp_path))).read(part) == b"x"
