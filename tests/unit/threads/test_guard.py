"""How much of a result a thread's model sees."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import StoreError, ToolArgsInvalidError
from ryecore.llm.media import MemoryMediaStore
from ryecore.llm.parts import MediaPart, TextPart, ToolCallPart, ToolResultPart
from ryecore.state.store import ThreadStore
from ryecore.threads.calls.guard import (
    ArtifactStore,
    GuardLimits,
    ResultGuard,
    artifact_reader,
    cut_down,
    strip_envelope,
)
from ryecore.tools import MemoryResultStore, ToolContext, ToolDef, ToolRegistry
from ryecore.tools.store import FolderResultStore, ResultStore

HANDLE = f"result://{'0' * 64}"


class Seat:
    """A thread's tools under its guard."""

    def __init__(
        self,
        folder: Path,
        *earlier: Path,
        limits: GuardLimits | None = None,
        results: ResultStore | None = None,
    ) -> None:
        store = ThreadStore.open(folder.parent / "project/.ai", folder.parent / "user/.ai")
        self.folder = store.folder_of(folder.name)
        also = [one.name for one in earlier]
        self.guard = ResultGuard(results or ArtifactStore(store, folder.name, also), limits)
        self.value: object = None

        async def give() -> object:
            """Give it."""
            return self.value

        self.registry = ToolRegistry([
            ToolDef.from_function(give, untrusted=False), artifact_reader(),
        ])  # fmt: skip
        self.context = ToolContext(present=self.guard, media=MemoryMediaStore())
        self.calls = 0

    async def part(self, value: object) -> ToolResultPart:
        self.value = value
        return await self.call("give")

    async def shown(self, value: object) -> str:
        return (await self.part(value)).text

    async def call(self, name: str, **given: Any) -> ToolResultPart:
        self.calls += 1
        call = ToolCallPart(f"call-{self.calls}", name, json.dumps(given))
        return (await self.registry.dispatch(call, self.context)).part

    async def read(self, handle: str, **given: Any) -> str:
        return (await self.call("read_artifact", handle=handle, **given)).text


def handle_in(text: str) -> str:
    return str(re.findall(r"result://[0-9a-f]{64}", text)[0])


pytestmark = pytest.mark.anyio


async def test_a_short_result_is_shown_whole_and_nothing_is_written(tmp_path: Path) -> None:
    seat = Seat(tmp_path / "artifacts")

    assert await seat.shown({"n": 1}) == '{"n": 1}'
    assert await seat.shown("x" * 2_400) == "x" * 2_400
    assert not seat.folder.exists()


async def test_a_long_one_is_cut_and_can_be_read_in_slices(tmp_path: Path) -> None:
    seat = Seat(tmp_path / "artifacts")
    rows = [{"id": number, "text": "x" * 50} for number in range(1_000)]

    shown = await seat.shown({"status": "success", "rows": rows})

    assert len(shown) <= 2_400
    found = json.loads(shown)
    assert (found["status"], found["rows_count"]) == ("success", 1_000)
    assert found["rows_preview"] == rows[:3]
    assert "read_artifact" in found["_artifact_note"]
    whole, start = "", 0
    while True:
        head, _, piece = (await seat.read(found["_artifact_ref"], start=start)).partition("\n")
        whole, start = whole + piece, start + len(piece)
        if head.endswith(f"to {start} of {start}]"):
            break
    assert json.loads(whole)["rows"] == rows


async def test_long_text_keeps_its_head_and_its_tail(tmp_path: Path) -> None:
    text = f"begin {'ü' * 5_000} end"

    shown = await Seat(tmp_path / "a").shown(text)

    assert len(shown) <= 2_400
    assert shown.startswith("begin ")
    assert shown.endswith(" end")
    assert handle_in(shown)


async def test_less_is_shown_where_the_context_is_nearly_full(tmp_path: Path) -> None:
    seat = Seat(tmp_path / "a")
    seat.guard.context_share = 0.75
    assert len(await seat.shown("a" * 2_000)) == 2_000
    seat.guard.context_share = 0.76

    shown = await seat.shown("b" * 5_000)

    assert len(shown) <= 1_200
    assert (await seat.read(handle_in(shown))).startswith("[characters 0 to 1200 of 5000]")


async def test_what_comes_again_is_not_repeated(tmp_path: Path) -> None:
    seat = Seat(tmp_path / "a")
    big, middle = {"rows": list(range(2_000))}, "m" * 1_000
    first = await seat.shown(big)
    await seat.shown(middle)

    again, text = json.loads(await seat.shown(big)), await seat.shown(middle)

    assert again["_artifact_note"] == "Identical to the result of call call-1."
    assert again["_artifact_ref"] == json.loads(first)["_artifact_ref"]
    assert text.startswith("Identical to the result of call call-2.")
    assert (await seat.read(handle_in(text))).endswith(middle)
    assert await seat.shown("ok") == await seat.shown("ok") == "ok"
    assert await Seat(tmp_path / "b").shown(middle) == middle


async def test_a_slice_of_an_artifact_is_no_result_to_be_cut(tmp_path: Path) -> None:
    seat = Seat(tmp_path / "a")
    handle = handle_in(await seat.shown("x" * 20_000))

    assert len(await seat.read(handle)) > 8_000
    assert await seat.read(handle) == await seat.read(handle)


async def test_a_thread_reads_its_own_artifacts_and_those_of_what_it_continues(
    tmp_path: Path,
) -> None:
    one, other = Seat(tmp_path / "one"), Seat(tmp_path / "other")
    handle = handle_in(await one.shown("x" * 5_000))
    await other.shown("y" * 5_000)

    for asked in (handle, handle.replace("result://", ""), "result://../../one", "", "/etc/passwd"):
        with pytest.raises(ToolArgsInvalidError):
            await other.read(asked)
    assert (await Seat(tmp_path / "next", tmp_path / "one").read(handle)).endswith("x")
    assert not Seat(tmp_path / "next").folder.exists()


async def test_a_result_that_can_not_be_kept_is_still_a_result(
    small_disk: Path, tmp_path: Path
) -> None:
    seat = Seat(tmp_path / "a", results=FolderResultStore(small_disk / "a"))
    value = ["%08d" % number for number in range(20_000)]  # noqa: UP031 - over the disk's size

    shown = json.loads(await seat.shown(value))

    assert shown["items_count"] == 20_000
    assert "could not be stored" in shown["_artifact_note"]
    assert "_artifact_ref" not in shown
    assert json.loads(await seat.shown(value)) == shown


async def test_media_and_trust_are_kept(tmp_path: Path) -> None:
    seat = Seat(tmp_path / "a")

    part = await seat.part({"image": b"\x89PNG\r\n\x1a\nx", "words": ["w" * 100] * 100})

    text, media = part.content
    assert isinstance(text, TextPart)
    assert isinstance(media, MediaPart)
    assert json.loads(text.text)["words_count"] == 100
    assert (part.untrusted, part.is_error) == (False, False)


def test_limits_that_are_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="600"):
        GuardLimits(chars=100)


def test_an_artifact_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        ArtifactStore(ThreadStore.open(tmp_path / ".ai", tmp_path / "user"), "a").read(HANDLE)


def test_a_response_is_shown_without_what_only_people_need() -> None:
    document = {
        "status": "success", "chain": ["a"], "metadata": {"duration_ms": 1}, "path": "/home/x",
        "content": "# rye:signed:2026:x\nbody\n", "data": {"path": "kept.csv", "metadata": 1},
    }  # fmt: skip

    assert strip_envelope(document) == {
        "status": "success", "content": "body\n", "data": {"path": "kept.csv", "metadata": 1},
    }  # fmt: skip


def test_what_tells_how_it_went_is_kept_before_all_else() -> None:
    value = {f"field{number}": "x" * 300 for number in range(100)} | {
        "status": "error", "error": "e" * 400, "warnings": ["w"],
    }  # fmt: skip

    shown = json.loads(cut_down(json.dumps(value), 2_400, HANDLE))

    assert list(shown)[:3] == ["status", "error", "warnings"]
    assert shown["warnings"] == ["w"]
    assert shown["_more_keys"] > 0


SMALL = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.text(max_size=10).map(lambda one: one * 100),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(), inner, max_size=8),
    max_leaves=8,
)  # fmt: skip
VALUE = st.one_of(
    SMALL,
    SMALL.map(lambda one: [one] * 200),
    SMALL.map(lambda one: {"rows": [{"a": one}] * 50, "status": one}),
    SMALL.map(lambda one: {f"{'k' * number}": one for number in range(120)}),
    SMALL.map(lambda one: [[[[[[one] * 5] * 5]]]]),
)


@given(VALUE, st.integers(600, 3_000), st.sampled_from([HANDLE, None]))
def test_json_stays_json_within_its_bound(value: object, size: int, handle: str | None) -> None:
    text = json.dumps(value, ensure_ascii=False)
    shown = cut_down(text, size, handle)

    assert len(shown) <= size
    found = json.loads(shown)
    if shown != text:
        assert found.get("_artifact_ref") == handle
    else:
        assert len(text) <= size


@given(st.text().map(lambda one: f"{{{one}" * 500), st.integers(600, 3_000))
def test_any_other_text_is_cut_within_its_bound(text: str, size: int) -> None:
    assert len(cut_down(text, size, HANDLE)) <= size


def test_what_looks_like_json_and_is_not_is_cut_as_text() -> None:
    for text in ("[" * 50_000, '{"a": NaN, "b": "' + "x" * 5_000 + '"}', "[1" + "0" * 9_000 + "]"):
        assert "characters are left out" in cut_down(text, 1_000, HANDLE)


async def test_the_store_may_be_any(tmp_path: Path) -> None:
    guard = ResultGuard(MemoryResultStore())

    shown, handle = await guard("give", "call-1", "x" * 3_000)

    assert handle is not None
    assert handle in shown
