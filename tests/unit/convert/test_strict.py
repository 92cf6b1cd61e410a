"""Values are taken as the type that they have, and each problem is named where it is."""

import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from ryecore.convert.fields import camel_keys, omitted_at_default, usd
from ryecore.convert.money import read_usd, to_usd, write_usd
from ryecore.convert.strict import RECORDS, WIRE, ConversionError, Format


@frozen
class Circle:
    type: ClassVar[Literal["circle"]] = "circle"

    radius: float


@frozen
class Square:
    type: ClassVar[Literal["square"]] = "square"

    side: int


@frozen
class Drawing:
    name: str
    shapes: tuple[Circle | Square, ...]
    folder: Path
    tags: frozenset[str] = frozenset()
    extra: Mapping[str, Any] = field(factory=dict)
    spend_microcents: int = field(default=0, metadata=usd("spend"))
    level: Literal["low", "high"] = "low"
    bold: bool = False
    best: Circle | Square | None = None
    note: str | None = field(default=None, metadata=omitted_at_default())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
shapes = st.builds(Circle, st.floats(allow_nan=False, allow_infinity=False)) | st.builds(
    Square, st.integers()
)
drawings = st.builds(
    Drawing,
    name=st.text(),
    shapes=st.lists(shapes).map(tuple),
    folder=st.text("abc/").map(Path),
    tags=st.frozensets(st.text()),
    extra=st.dictionaries(st.text(), json_values),
    spend_microcents=st.integers(0, 10**13),
    level=st.sampled_from(("low", "high")),
    bold=st.booleans(),
    best=st.none() | shapes,
    note=st.none() | st.text(),
)


@given(drawings)
def test_what_is_written_is_read_again(drawing: Drawing) -> None:
    assert WIRE.read(WIRE.write(drawing), Drawing) == drawing
    assert RECORDS.read(RECORDS.write(drawing), Drawing) == drawing


def test_a_document_has_the_keys_that_its_fields_name() -> None:
    drawing = Drawing(
        "x", (Square(2),), Path("/tmp"), frozenset("ba"), spend_microcents=150_000_000
    )
    assert WIRE.write(drawing) == {
        "name": "x",
        "shapes": [{"type": "square", "side": 2}],
        "folder": "/tmp",
        "tags": ["a", "b"],
        "extra": {},
        "spend": 1.5,
        "level": "low",
        "bold": False,
        "best": None,
    }


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"name": 1}, ("name",), "must be text, not 1"),
        ({"name": None}, ("name",), "must be text, not null"),
        ({"bold": 1}, ("bold",), "must be true or false, not 1"),
        ({"bold": "true"}, ("bold",), "must be true or false, not 'true'"),
        ({"shapes": "ab"}, ("shapes",), "must be a list, not 'ab'"),
        ({"shapes": {}}, ("shapes",), "must be a list, not an object"),
        (
            {"shapes": [{"type": "square", "side": 1}, {"type": "square", "side": "1"}]},
            ("shapes", 1, "side"),
            "must be a whole number, not '1'",
        ),
        (
            {"shapes": [{"type": "square", "side": True}]},
            ("shapes", 0, "side"),
            "must be a whole number, not true",
        ),
        (
            {"shapes": [{"type": "square", "side": 1.0}]},
            ("shapes", 0, "side"),
            "must be a whole number, not 1.0",
        ),
        (
            {"shapes": [{"type": "circle", "radius": True}]},
            ("shapes", 0, "radius"),
            "must be a number, not true",
        ),
        ({"shapes": [{"type": "circle"}]}, ("shapes", 0, "radius"), "is missing"),
        (
            {"shapes": [{"type": ["circle"]}]},
            ("shapes", 0),
            "must have one of the types circle, square, not a list",
        ),
        ({"best": 4}, ("best",), "must be an object, not 4"),
        ({"tags": "ab"}, ("tags",), "must be a list, not 'ab'"),
        ({"tags": [1]}, ("tags", 0), "must be text, not 1"),
        ({"extra": []}, ("extra",), "must be an object, not a list"),
        ({"spend": "1"}, ("spend",), "must be a number, not '1'"),
        ({"level": "middle"}, ("level",), "must be one of low, high, not 'middle'"),
        ({"folder": 3}, ("folder",), "must be text, not 3"),
    ],
)
def test_no_value_is_made_of_another_type(
    change: Mapping[str, Any], path: tuple[str | int, ...], message: str
) -> None:
    document = WIRE.write(Drawing("x", (), Path("/tmp"))) | change
    with pytest.raises(ConversionError) as caught:
        WIRE.read(document, Drawing)
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == (path, message)


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ConversionError) as caught:
        WIRE.read({"name": 1, "folder": "/", "shapes": [3], "nmae": 2}, Drawing)
    assert {one.path for one in caught.value.problems} == {("name",), ("shapes", 0), ("nmae",)}
    (unknown,) = [one for one in caught.value.problems if one.unknown_key]
    assert "name" in unknown.known_keys
    assert "spend" in unknown.known_keys


def test_records_of_another_version_may_have_more_keys() -> None:
    document = {"type": "square", "side": 1, "colour": "red"}
    assert RECORDS.read(document, Square) == Square(1)
    with pytest.raises(ConversionError):
        WIRE.read(document, Square)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400])
@pytest.mark.parametrize("document_format", [WIRE, RECORDS])
def test_a_number_is_finite(document_format: Format, number: float) -> None:
    for change in ({"spend": number}, {"best": {"type": "circle", "radius": number}}):
        document = WIRE.write(Drawing("x", (), Path("/tmp"))) | change
        with pytest.raises(
            ConversionError, match=r"must be a finite number, not|is too large a number"
        ):
            document_format.read(document, Drawing)


@pytest.mark.parametrize("document", [None, 1, "x", [], True])
def test_a_class_is_made_of_an_object_alone(document: object) -> None:
    with pytest.raises(ConversionError, match=r"^it must be an object, not "):
        WIRE.read(document, Drawing)


@frozen(field_transformer=camel_keys)
class Event:
    node_id: str
    attempt_number: int | None = field(default=None, metadata=omitted_at_default())


def test_keys_in_camel_case() -> None:
    assert WIRE.write(Event("a")) == {"nodeId": "a"}
    assert WIRE.write(Event("a", 2)) == {"nodeId": "a", "attemptNumber": 2}


@given(st.integers(0, 10**15))
def test_money_comes_back_to_the_microcent(microcents: int) -> None:
    assert read_usd(write_usd(microcents)) == microcents
    assert to_usd(microcents) * 10**8 == microcents


def test_importing_ryecore_does_not_import_cattrs() -> None:
    check = (
        "import sys, ryecore; from ryecore import Rye; raise SystemExit('cattrs' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
