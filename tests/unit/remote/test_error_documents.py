"""Errors travel as documents, and are made again as the same class."""

import json
from itertools import product
from pathlib import Path

import pytest

import ryecore.errors
from ryecore.convert.strict import ConversionError
from ryecore.errors import InvalidParameters, ItemNotFound, RyeError
from ryecore.remote.protocol.error_documents import read_error, write_error
from ryecore.remote.results import errors_at_home

CLASSES = sorted(
    {
        one
        for one in (getattr(ryecore.errors, name) for name in dir(ryecore.errors))
        if isinstance(one, type) and issubclass(one, RyeError)
    },
    key=lambda one: one.__name__,
)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_of_each_class_is_made_again(kind: type[RyeError]) -> None:
    error = kind("It failed.", next_step="Do better.")
    again = read_error(write_error(error))
    assert type(again) is kind
    assert (again.message, again.next_step) == ("It failed.", "Do better.")


def test_its_facts_come_along_as_far_as_they_are_plain() -> None:
    error = ItemNotFound(
        "It is missing.", next_step="Look.", searched=("a", "b"), similar=("c",)
    ).during("tool:x", chain=("x", "y"))
    again = read_error(write_error(error))
    assert isinstance(again, ItemNotFound)
    assert (again.searched, again.similar, again.chain) == (("a", "b"), ("c",), ("x", "y"))
    lost = read_error(write_error(InvalidParameters("x", problems=(object(),), path=Path("/a"))))
    assert isinstance(lost, InvalidParameters)


def test_what_a_stranger_names_becomes_no_other_attribute() -> None:
    document = {
        "error": "x" * 10_000,
        "error_class": "ItemNotFound",
        "facts": {"message": "other", "to_dict": 1, "__class__": "y", "similar": ["z" * 5000]},
    }
    error = read_error(document)
    assert len(str(error)) < 6000
    assert error.to_dict()["error_type"] == "not_found"
    assert isinstance(error, ItemNotFound)
    assert len(error.similar[0]) < 3000
    assert type(read_error({"error": "x", "error_class": "str", "error_type": "y"})) is RyeError
    with pytest.raises(ConversionError):
        read_error({"error": 1})


@pytest.mark.parametrize("kind", CLASSES)
def test_a_fact_of_another_type_breaks_no_error(kind: type[RyeError]) -> None:
    """What a stranger writes is shown to a person, and to a model, without a traceback."""
    names = {name for one in kind.__mro__ for name in vars(one).get("__annotations__", {})}
    values = (None, "x", 3, -1.5, True, ["a"], [1], [], {"k": 1}, "\x1b[31m", 10**400)
    for value, message in product(values, ("It failed.", "")):
        error = read_error(
            {
                "error": "e",
                "error_class": kind.__name__,
                "message": message,
                "facts": dict.fromkeys(names, value),
            }
        )
        assert type(error) is kind
        assert str(error)
        assert json.dumps(error.during("tool:x").to_dict())
        assert write_error(error)
        for name in names - set(RyeError.__annotations__):
            assert hasattr(error, name)


@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("/project/.ai/tools/a.py", "/at/home/.ai/tools/a.py"),
        ("/project", "/at/home"),
        ("/project/.ai/stateful.py", "/at/home/.ai/stateful.py"),
        ("/project/.ai/state/threads/threads.db", None),
        ("/project/.ai/cache", None),
    ],
)
def test_an_error_names_what_was_copied_at_home_and_what_is_the_node_s_there(
    there: str, here: str | None
) -> None:
    folder = f"/spaces/{'a' * 64}-0"
    error = write_error(RyeError(f"{folder}{there} can't be written: the disk is full."))
    found = errors_at_home(error, {"project": Path("/at/home"), "user": Path("/me")})
    expected = f"{folder}{there}" if here is None else here
    assert found["message"] == f"{expected} can't be written: the disk is full."
