"""Types as schemas, and the values back as types."""

import dataclasses
import enum
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID

import attrs
import pytest
import typing_extensions
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ryecore.lillux.schema import SchemaValidator
from ryecore.tools.annotations import form_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    """A point.

    Attributes:
        x: How far right.
    """

    x: int
    y: float = 0.5
    tags: list[str] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=7, init=False)


@attrs.frozen
class Route:
    points: tuple[Point, ...]
    colour: Colour = Colour.RED
    _note: str | None = None


class Query(TypedDict):
    text: str
    limit: NotRequired[int]
    at: NotRequired[Point]


class Node:
    def __init__(self) -> None: ...


@dataclasses.dataclass
class Tree:
    children: "list[Tree]"


@dataclasses.dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("it is odd")


class Seat(BaseModel):
    row: int


class Branch(BaseModel):
    below: "list[Branch]"


class Called(BaseModel):
    back: Callable[[], None]


Number = NewType("Number", int)

T = TypeVar("T")
B = TypeVar("B", bound=int)

POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "description": "How far right."},
        "y": {"type": "number", "default": 0.5},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["x"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list, {"type": "array"}),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - both ways are written
        (Union[int, str, None], {"type": ["integer", "string", "null"]}),  # noqa: UP007 - the same
        (int | None, {"type": ["integer", "null"]}),
        (list[int] | None, {"anyOf": [{"type": "array", "items": {"type": "integer"}},
                                      {"type": "null"}]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "b", None], {"enum": [1, "b", None]}),
        (Literal[True, 1], {"enum": [True, 1]}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, str], {"type": "array", "minItems": 2, "maxItems": 2,
                           "prefixItems": [{"type": "integer"}, {"type": "string"}]}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, Any], {"type": "object", "additionalProperties": {}}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (Annotated[int, 3], {"type": "integer"}),
        (Point, POINT),
        (B, {"type": "integer"}),
        (Path, {"type": "string"}),
        (Decimal, {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}),
        (Number, {"type": "integer"}),
        (Seat, {"type": "object", "properties": {"row": {"type": "integer", "title": "Row"}},
                "required": ["row"], "title": "Seat", "additionalProperties": False}),
    ],
)  # fmt: skip
def test_a_type_has_a_schema(annotation: Any, schema: dict[str, Any]) -> None:
    form = form_of(annotation, "f(x)")

    assert form.schema == schema
    SchemaValidator(json.dumps(form.schema))


@pytest.mark.parametrize(
    ("annotation", "value", "made"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (list[int], [1.0, 2], [1, 2]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[float, ...], [1], (1.0,)),
        (set[str], ["a"], {"a"}),
        (frozenset[str], ["a"], frozenset({"a"})),
        (Colour, "red", Colour.RED),
        (Level, 2, Level.HIGH),
        (Literal[Colour.RED], "red", Colour.RED),
        (dict[str, Colour], {"a": "red"}, {"a": Colour.RED}),
        (Point, {"x": 1, "y": 2}, Point(1, 2.0)),
        (Route, {"points": [{"x": 1}], "colour": "blue", "note": "n"},
         Route((Point(1),), Colour.BLUE, "n")),
        (Query, {"text": "a", "at": {"x": 1}}, {"text": "a", "at": Point(1)}),
        (Point | str, {"x": 1}, Point(1)),
        (Point | str, "x", "x"),
        (Point | Even, {"n": 2}, Even(2)),
        (Colour | None, None, None),
        (Decimal, "-1.50", Decimal("-1.50")),
        (Seat, {"row": 3}, Seat(row=3)),
        (list[Seat | None], [None, {"row": 3}], [None, Seat(row=3)]),
        (list[Point | None], [None, {"x": 1}], [None, Point(1)]),
        (Annotated[Colour, "Which."], "red", Colour.RED),
        (Path, "a/b", Path("a/b")),
        (date, "2026-01-02", date(2026, 1, 2)),
        (datetime, "2026-01-02T03:04:05Z", datetime.fromisoformat("2026-01-02T03:04:05Z")),
        (UUID, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    ],
)  # fmt: skip
def test_a_value_that_fits_becomes_the_type(annotation: Any, value: Any, made: Any) -> None:
    form = form_of(annotation, "f(x)")

    assert SchemaValidator(json.dumps(form.schema)).failures(json.dumps(value)) == ()
    assert form.convert is not None
    found = form.convert(value)
    assert found == made
    assert type(found) is type(made)


def test_fields_of_attrs_and_typed_dicts_have_the_names_that_are_written() -> None:
    route = form_of(Route, "f(x)").schema
    query = form_of(Query, "f(x)").schema

    assert set(route["properties"]) == {"points", "colour", "note"}
    assert route["properties"]["colour"]["default"] == "red"
    assert route["required"] == ["points"]
    assert query["required"] == ["text"]
    assert query["properties"]["at"] == POINT


class Written(TypedDict, total=False):
    """Its annotations are texts, as in a module with `from __future__ import annotations`."""

    a: "Required[int]"
    b: "Annotated[Required[str], 'the b']"
    c: "float"


class Extended(typing_extensions.TypedDict):
    a: "typing_extensions.NotRequired[int]"
    b: typing_extensions.ReadOnly[str]


@pytest.mark.parametrize(("kind", "required"), [(Written, ["a", "b"]), (Extended, ["b"])])
def test_the_required_keys_of_a_typed_dict_count_however_it_is_written(
    kind: Any, required: list[str]
) -> None:
    schema = form_of(kind, "f(x)").schema

    assert schema["required"] == required
    assert schema["properties"]["a"] == {"type": "integer"}
    assert schema["properties"]["b"]["type"] == "string"


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (set[Query], "f(x): a set can't hold Query, which has no hash"),
        (frozenset[list[int]], "a set can't hold list[int]"),
        (Node, "f(x): a model can't be shown the type Node"),
        (bytes, "type bytes"),
        (dict[int, str], "dict[int, str]"),
        (list[Node], "type Node"),
        (Node | None, "type Node"),
        (T, "~T"),
        (type[int], "type[int]"),
        (Tree, "f(x).children: Tree holds itself"),
        (Branch, "f(x): Branch holds itself"),
        (Called, "f(x): Called has no JSON Schema"),
        (Literal[b"x"], "a choice must be between"),  # type: ignore[valid-type]
        (complex, "type complex"),
        ("int", "the type int"),
        (3, "the type 3"),
    ],
)
def test_a_type_that_no_model_can_be_shown_is_named_with_its_place(
    annotation: Any, said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        form_of(annotation, "f(x)")
    assert str(caught.value).startswith("f(x)")
    assert said in str(caught.value)


def test_a_type_that_refuses_a_value_says_so() -> None:
    for annotation in (Even, Even | None, list[Even]):
        convert = form_of(annotation, "f(x)").convert
        assert convert is not None
        with pytest.raises(ValueError, match="it is odd"):
            convert([{"n": 1}] if annotation == list[Even] else {"n": 1})


SIMPLE = {
    str: st.text(),
    int: st.integers(-(2**53), 2**53),
    bool: st.booleans(),
    type(None): st.none(),
    Colour: st.sampled_from(Colour),
}
TYPES = st.recursive(
    st.sampled_from(list(SIMPLE)),
    lambda inner: (
        inner.map(lambda one: list[one])
        | inner.map(lambda one: dict[str, one])
        | inner.map(lambda one: tuple[one, ...])
        | st.tuples(inner, inner).map(lambda two: tuple[two])
    ),
    max_leaves=4,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    if kind in SIMPLE:
        return SIMPLE[kind]
    arguments = kind.__args__
    if kind.__origin__ is dict:
        return st.dictionaries(st.text(), values(arguments[1]), max_size=3)
    if kind.__origin__ is list:
        return st.lists(values(arguments[0]), max_size=3)
    if arguments[-1] is ...:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    return st.tuples(*map(values, arguments))


@given(TYPES.flatmap(lambda kind: st.tuples(st.just(kind), values(kind))))
def test_what_was_written_as_json_comes_back(pair: tuple[Any, Any]) -> None:
    kind, value = pair
    form = form_of(kind, "f(x)")
    text = json.dumps(value, default=lambda one: one.value)

    assert SchemaValidator(json.dumps(form.schema)).failures(text) == ()
    read = json.loads(text)
    assert (read if form.convert is None else form.convert(read)) == value
