"""Where whole results are kept, and how a model reads them."""

import hashlib
from pathlib import Path

import pytest

from ryecore.errors import StoreError, ToolArgsInvalidError
from ryecore.state.object_places import open_objects
from ryecore.tools import (
    FolderResultStore,
    MemoryResultStore,
    ObjectResultStore,
    ResultStore,
    read_result_tool,
)
from tests.unit.tools.calls import called, refused

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ResultStore:
    if request.param == "objects":
        return ObjectResultStore(open_objects(str(tmp_path / "o")).below("results"))
    return MemoryResultStore() if request.param == "memory" else FolderResultStore(tmp_path / "r")


def test_content_is_kept_by_its_digest(store: ResultStore) -> None:
    handle = store.put(b"tides")

    assert handle == f"result://{hashlib.sha256(b'tides').hexdigest()}"
    assert store.put(b"tides") == handle
    assert store.read(handle) == b"tides"


@pytest.mark.parametrize("handle", ["", "result://", "media://" + "0" * 64, "result://../../etc/passwd",
                                    "result://" + "0" * 64, "/etc/passwd"])  # fmt: skip
def test_what_is_not_kept_is_not_read(store: ResultStore, handle: str) -> None:
    with pytest.raises(StoreError):
        store.read(handle)


def test_memory_lets_go_of_what_was_used_longest_ago() -> None:
    store = MemoryResultStore(max_bytes=10)
    first, second = store.put(b"11111"), store.put(b"22222")
    store.read(first)

    third = store.put(b"333")

    assert store.read(first) == b"11111"
    assert store.read(third) == b"333"
    with pytest.raises(StoreError, match="or no longer"):
        store.read(second)
    with pytest.raises(StoreError, match="more than this store can hold"):
        store.put(b"x" * 11)
    assert store.put(b"11111") == first


async def test_a_model_reads_a_kept_result_slice_by_slice(store: ResultStore) -> None:
    text = "".join(f"{number:04}ü" for number in range(1000))
    tool = read_result_tool(store, max_chars=2000)
    handle = store.put(text.encode())

    first = await called(tool, {"handle": handle})
    then = await called(tool, {"handle": handle, "start": 2000, "length": 10})
    last = await called(tool, {"handle": handle, "start": 4990, "length": 99_999})

    assert first.part.text == f"[characters 0 to 2000 of 5000]\n{text[:2000]}"
    assert then.part.text == f"[characters 2000 to 2010 of 5000]\n{text[2000:2010]}"
    assert last.part.text == f"[characters 4990 to 5000 of 5000]\n{text[4990:]}"
    assert tool.parallel_safe
    assert tool.spec.parameters["properties"]["handle"]["description"]


async def test_a_slice_that_is_none_can_be_corrected(store: ResultStore) -> None:
    tool = read_result_tool(store)
    handle = store.put(b"tides")

    for wrong in (
        {"handle": "result://" + "0" * 64},
        {"handle": handle, "start": 6},
        {"handle": handle, "start": -1},
        {"handle": handle, "length": 0},
    ):
        error = await refused(ToolArgsInvalidError, tool, wrong)
        assert "the tool read_result" in str(error)


async def test_how_much_is_read_at_once_may_be_less_for_now(store: ResultStore) -> None:
    bounds = iter([100, 9_999])
    tool = read_result_tool(store, max_chars=500, bound=lambda: next(bounds))
    handle = store.put(b"x" * 1_000)

    assert len((await called(tool, {"handle": handle})).part.text.partition("\n")[2]) == 100
    assert len((await called(tool, {"handle": handle})).part.text.partition("\n")[2]) == 500
