"""A class of `ryecore.frozen` is as one of attrs, whose methods cost more to make."""

import builtins
import copy
import pickle
import re
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import evolve, field
from attrs.exceptions import FrozenInstanceError

import ryecore
from ryecore.frozen import frozen


@frozen
class Point:
    """A point."""

    x: int
    y: int = 0
    note: str = field(default="", eq=False, repr=False)


@frozen
class Point3(Point):
    """A point in space."""

    z: int = field(default=0, kw_only=True)


@frozen
class Single:
    """One value."""

    of: Any = None


@frozen
class Nothing:
    """No values."""


@frozen
class Own:
    """A class with its own methods."""

    x: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return "own"


@frozen(eq=False, repr=False)
class Plain:
    """A class that is compared by identity."""

    x: int = 0


PAIRS = (
    (Point(1, 2), Point(1, 2), Point(1, 3)),
    (Point(1, 2, "a"), Point(1, 2, "b"), Point3(1, 2)),
    (Point3(1, z=3), Point3(1, z=3), Point3(1, z=4)),
    (Single((1,)), Single((1,)), Single(1)),
    (Nothing(), Nothing(), Single()),
    (Own(1), Own(2), Single(1)),
)


@pytest.mark.parametrize(("one", "same", "other"), PAIRS, ids=lambda one: type(one).__name__)
def test_equal_values_are_equal_and_one_key(one: object, same: object, other: object) -> None:
    assert one == same
    assert one != other
    assert not one == other  # noqa: SIM201 - each operator has a method of its own
    assert hash(one) == hash(same)
    assert len({one, same, other}) == 2


def test_it_shows_what_attrs_shows() -> None:
    for ours in (Point(1, 2, "hidden"), Point3(1, z=3), Single("text"), Nothing()):
        theirs = attrs.make_class(
            type(ours).__name__,
            {one.name: field(repr=one.repr) for one in attrs.fields(type(ours))},
        )
        values = {one.name: getattr(ours, one.name) for one in attrs.fields(type(ours))}

        assert repr(ours) == repr(theirs(**values))
    assert repr(Own(1)) == "own"
    assert repr(Plain()).startswith("<")


def test_a_value_that_holds_itself_is_shown() -> None:
    values: list[object] = []
    values.append(Single(values))

    assert repr(values[0]) == "Single(of=[...])"


def test_identity_compares_where_asked() -> None:
    one = Plain()

    assert one == one
    assert one != Plain()
    assert len({one, Plain()}) == 2


def test_what_cant_be_hashed_says_so() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Single([]))


def test_it_is_frozen_and_copied_as_any() -> None:
    one = Point3(1, 2, "a", z=3)

    with pytest.raises(FrozenInstanceError):
        one.x = 2  # type: ignore[misc]
    assert not hasattr(one, "__dict__")
    assert evolve(one, z=4) == Point3(1, 2, z=4)
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    match one:
        case Point3(x, y):
            assert (x, y) == (1, 2)


@pytest.mark.parametrize(
    "options",
    [{"repr": lambda _: "***"}, {"eq": str.lower}, {"hash": False}],
    ids=lambda options: next(iter(options)),
)
def test_a_field_that_would_be_shown_or_compared_otherwise_is_refused(
    options: dict[str, Any],
) -> None:
    with pytest.raises(TypeError, match="has an eq, repr or hash of its own"):

        @frozen
        class Secret:
            text: str = field(**options)


def test_an_exception_is_refused() -> None:
    with pytest.raises(TypeError, match="is an exception"):

        @frozen
        class Failure(Exception):
            text: str


def test_every_frozen_class_is_made_by_it() -> None:
    root = Path(ryecore.__file__).parent
    users = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith("from attrs import ") and "frozen" in line.replace(",", " ").split()
    ]

    assert users == []


def test_no_converter_is_a_built_in_type() -> None:
    # attrs reads its signature through `tokenize`, which takes each process 5 ms.
    root = Path(ryecore.__file__).parent
    users = [
        f"{path.relative_to(root)}: {found[0]}"
        for path in root.rglob("*.py")
        for found in re.finditer(r"\bconverter=(\w+)", path.read_text())
        if hasattr(builtins, found[1])
    ]

    assert users == []
