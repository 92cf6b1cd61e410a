"""What a tool gave, as a model sees it."""

import dataclasses
import enum
import json
import time
from collections import OrderedDict, deque, namedtuple
from datetime import date, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import HostCapabilityMissing, StoreError, ToolExecutionError
from ryecore.llm.media import MemoryMediaStore
from ryecore.llm.parts import MediaPart, TextPart
from ryecore.tools import MemoryResultStore, ToolContext, ToolDef, ToolLimits, ToolOutcome
from ryecore.tools.results import as_text, preview
from tests.unit.tools.calls import called, refused
from tests.unit.tools.test_arguments import JSON

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


def giving(value: object) -> ToolDef:
    async def run(arguments: object, ctx: ToolContext) -> object:
        return value

    return ToolDef(name="give", description="", parameters={}, run=run)


async def given_(value: object, **options: Any) -> ToolOutcome:
    return await called(giving(value), **options)


@dataclasses.dataclass
class Point:
    x: int
    y: "Point | None" = None


@attrs.frozen
class Box:
    inside: Any
    _private: int = 1


class Colour(enum.Enum):
    RED = "red"


class Model:
    """Looks like a model of pydantic's."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"mode": mode}


Pair = namedtuple("Pair", "a b")


@given(JSON)
def test_what_is_json_is_given_as_json(value: Any) -> None:
    text = as_text("x", value, ToolLimits())

    assert text is not None
    assert text == value if isinstance(value, str) else json.loads(text) == value


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_sent(text: str) -> None:
    for value in (text, [text]):
        found = as_text("x", value, ToolLimits())
        assert found is not None
        found.encode()
        if "\ufffd" not in found:
            assert (found if value is text else json.loads(found)[0]) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a\ud800b", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (2**80, str(2**80)),
        ((1, "ü"), '[1, "ü"]'),
        (Point(1, Point(2)), '{"x": 1, "y": {"x": 2, "y": null}}'),
        (Box([Colour.RED]), '{"inside": ["red"], "_private": 1}'),
        ({Colour.RED.value: {3, 1, 2}}, '{"red": [1, 2, 3]}'),
        ({1: 2, None: 3}, '{"1": 2, "null": 3}'),
        (Pair(1, 2), "[1, 2]"),
        (MappingProxyType({"a": 1}), '{"a": 1}'),
        (OrderedDict(a=1), '{"a": 1}'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (datetime(2026, 1, 2, 3, 4), '"2026-01-02T03:04:00"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Path("a/b"), '"a/b"'),
        (Model(), '{"mode": "json"}'),
    ],
)
async def test_a_value_is_shown_as(value: object, shown: str) -> None:
    done = await given_(value)

    assert done.part.content == (TextPart(shown),)
    assert done.value is value
    assert done.handle is None
    assert not done.part.is_error


class Odd:
    """No JSON at all."""


class Broken:
    @property
    def model_dump(self) -> Any:
        raise KeyError("s3cret")


def circle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def deep() -> list[Any]:
    inner: list[Any] = []
    for _ in range(100_000):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Odd(), "a value of type Odd"),
        ({"a": [Odd()]}, "a value of type Odd"),
        (Odd, "a value of type type"),
        (deque([1]), "a value of type deque"),
        (iter([1]), "a value of type list_iterator"),
        (lambda: 1, "a value of type function"),
        (3j, "a value of type complex"),
        ({(1, 2): 3}, "keys must be str"),
        (float("nan"), "a value that JSON can't hold"),
        ([{"a": float("inf")}], "a value that JSON can't hold"),
        ([10**5000], "a value that JSON can't hold"),
        (circle(), "more than|no JSON"),
        (deep(), "nested too deeply"),
        (Broken(), "can't be read (KeyError)"),
    ],
)
async def test_what_is_no_json_is_a_failure_that_says_what_it_is(value: object, said: str) -> None:
    events: list[Any] = []

    error = await refused(ToolExecutionError, giving(value), events=events)

    assert any(one in str(error) for one in said.split("|")), str(error)
    assert len(str(error)) < 500
    assert [type(event).__name__ for event in events] == ["ToolCalled", "ToolReturned"]
    assert events[1].success is False


async def test_one_list_that_is_held_over_and_over_is_refused_in_time() -> None:
    bomb: Any = ["x"] * 10
    for _ in range(12):
        bomb = [bomb] * 10
    started = time.process_time()

    error = await refused(ToolExecutionError, giving(bomb))

    assert "more than" in str(error)
    assert time.process_time() - started < 5


async def test_fifty_megabytes_are_kept_whole_and_shown_in_part() -> None:
    store = MemoryResultStore()
    whole = "0123456789" * 5_000_000

    done = await given_(whole, ctx=ToolContext(results=store))

    assert done.handle is not None
    assert store.read(done.handle) == whole.encode()
    assert done.value is whole
    text = done.part.text
    assert text.startswith("0123456789")
    assert text.endswith("0123456789")
    assert done.handle in text
    assert "49,984,000 of 50,000,000 characters are left out" in text
    assert 16_000 < len(text) < 16_300


async def test_more_than_the_limit_is_refused() -> None:
    limits = ToolLimits(max_result_bytes=1000, max_result_values=100)

    for value in ("x" * 1001, ["x" * 600] * 2, list(range(200)), {"a": [[]] * 101}):
        await refused(ToolExecutionError, giving(value), limits=limits)
    await refused(
        ToolExecutionError,
        giving(b"x" * 1001),
        ctx=ToolContext(media=MemoryMediaStore()),
        limits=limits,
    )
    assert (await given_(["x" * 100] * 9, limits=limits)).value


class FullStore:
    def put(self, content: bytes) -> str:
        raise StoreError("No space left on /home/ada/results.")

    def read(self, handle: str) -> bytes:
        raise StoreError("never")


async def test_a_result_that_can_not_be_kept_is_a_result_still() -> None:
    for store in (None, FullStore(), MemoryResultStore(10)):
        done = await given_({"a": "x" * 50_000}, ctx=ToolContext(results=store))
        assert done.handle is None
        assert "they were not kept" in done.part.text
        assert "/home" not in done.part.text
        assert done.value == {"a": "x" * 50_000}


@given(st.text(min_size=20), st.integers(1, 19))
def test_a_preview_is_head_and_tail(text: str, size: int) -> None:
    shown = preview(text, size, "result://x")

    head, tail = size - size // 4, size // 4
    assert shown.startswith(text[:head] + "\n[…")
    assert shown.endswith("…]\n" + text[len(text) - tail :])
    assert f"{len(text) - size:,} of {len(text):,}" in shown


async def test_bytes_become_media() -> None:
    media = MemoryMediaStore()

    done = await given_(PNG, ctx=ToolContext(media=media))

    (part,) = done.part.content
    assert isinstance(part, MediaPart)
    assert (part.media_type, part.size_bytes) == ("image/png", len(PNG))
    assert media.read(part) == PNG


async def test_media_inside_are_named_in_the_text_and_given_behind_it() -> None:
    media = MemoryMediaStore()
    kept = media.put(b"RIFF1234WAVEx", "audio/wav", "a.wav")
    events: list[Any] = []

    done = await given_(
        {"pictures": [PNG, bytearray(b"%PDF-1")], "sound": kept, "n": 1},
        ctx=ToolContext(media=media),
        events=events,
    )

    text, *parts = done.part.content
    assert isinstance(text, TextPart)
    document = json.loads(text.text)
    assert [one.media_type for one in parts] == ["image/png", "application/pdf", "audio/wav"]  # type: ignore[union-attr]
    assert document["pictures"][0]["media"] == parts[0].handle  # type: ignore[union-attr]
    assert document["n"] == 1
    assert "[image/png, 28 bytes]" in events[1].output_summary


async def test_bytes_need_a_store() -> None:
    error = await refused(HostCapabilityMissing, giving({"a": PNG}))
    assert error.capability == "media"
    kept = MemoryMediaStore().put(PNG, "image/png")
    assert (await given_(kept)).part.content == (kept,)


async def test_a_medium_that_can_not_be_kept_is_a_failure() -> None:
    class Full(MemoryMediaStore):
        def put(self, content: bytes, media_type: str, name: str = "") -> MediaPart:
            raise StoreError("No space left on /home/ada.")

    error = await refused(ToolExecutionError, giving(PNG), ctx=ToolContext(media=Full()))
    assert str(error) == "The bytes that the tool give returned could not be stored."


async def test_a_result_is_marked_as_what_it_is() -> None:
    assert (await given_("x")).part.untrusted is True
    tool = ToolDef.from_function(say, untrusted=False)
    done = await called(tool)
    assert done.part.untrusted is False
    assert (done.part.call_id, done.part.name) == ("call-1", "say")


async def say() -> str:
    """Say."""
    return "x"
