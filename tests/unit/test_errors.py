import copy
import importlib
import inspect
import json
import pickle
import pkgutil
import re
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from ryecore import errors
from ryecore.errors import (
    AmbiguousItem,
    ExecutorNotFound,
    InvalidItemId,
    InvalidParameters,
    ItemNotFound,
    RyeError,
    UntrustedKey,
)

CLASSES = {
    name: value
    for module in pkgutil.iter_modules(errors.__path__, "ryecore.errors.")
    for name, value in vars(importlib.import_module(module.name)).items()
    if inspect.isclass(value) and issubclass(value, RyeError)
}


def drawn_tree() -> dict[str, str]:
    """Each class in the drawing at the top of the module, with the one above it."""
    above, parents = [], {}
    for line in str(errors.__doc__).splitlines():
        found = re.match(r"^((?:[│ ]   |[├└]── )*)([A-Z]\w+)", line)
        if found and found[2] in CLASSES:
            depth = len(found[1]) // 4
            parents[found[2]] = above[depth - 1] if depth else ""
            above[depth:] = [found[2]]
    return parents


def test_the_tree_at_the_top_is_the_tree_that_there_is() -> None:
    there_is = {
        name: cls.__bases__[0].__name__ if cls is not RyeError else ""
        for name, cls in CLASSES.items()
    }
    assert drawn_tree() == there_is


def test_every_error_is_public() -> None:
    assert sorted(errors.__all__) == sorted(CLASSES)


def test_each_branch_has_a_type_of_its_own_for_models() -> None:
    branches = [cls for cls in CLASSES.values() if cls.__bases__[0] is RyeError]
    assert len({cls.error_type for cls in branches}) == len(branches)
    assert all(cls.__doc__ for cls in CLASSES.values())


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [(InvalidItemId, ValueError), (ExecutorNotFound, ValueError), (ItemNotFound, LookupError)],
)
def test_some_are_also_what_python_calls_them(
    cls: type[RyeError], builtin: type[Exception]
) -> None:
    with pytest.raises(builtin):
        raise cls("x")


def example(cls: type[RyeError]) -> RyeError:
    error = cls("It broke.", next_step="Mend it.", path=Path("/x"), candidates=("a", "b"), line=3)
    return error.during("tool:acme/x", chain=["acme/x"], trace=[{"step": "x"}], duration_ms=1.5)


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_every_error_carries_its_facts_and_says_what_to_do(cls: type[RyeError]) -> None:
    error = example(cls)
    assert str(error) == "It broke. Mend it."
    assert error.args == ("It broke.",)
    assert error.facts == {"path": Path("/x"), "candidates": ("a", "b"), "line": 3}
    assert (error.path, error.candidates, error.line) == (Path("/x"), ("a", "b"), 3)  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_every_error_travels_whole(cls: type[RyeError]) -> None:
    error = example(cls)
    for arrived in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(arrived) is cls
        assert str(arrived) == str(error)
        assert vars(arrived) == vars(error)
        assert arrived.to_dict() == error.to_dict()


def test_without_a_next_step_there_is_no_gap() -> None:
    assert str(RyeError("It broke.")) == "It broke."


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_facts_that_were_not_given_are_absent_or_empty_and_never_somebody_elses(
    cls: type[RyeError],
) -> None:
    cls("one", searched=("a",), candidates=("b",), failures=("c",))
    error = cls("other")
    for name in ("searched", "candidates", "failures"):
        assert getattr(error, name, ()) == ()
    assert error.item_id is None
    assert error.chain == ()


def test_what_was_known_first_stays() -> None:
    error = ItemNotFound("x").during("tool:a", duration_ms=0.0)
    again = error.during("tool:b", chain=["c"], trace=[{"step": "d"}], duration_ms=5)
    assert again is error
    assert error.item_id == "tool:a"
    assert error.duration_ms == 0.0
    assert error.chain == ("c",)
    assert error.trace == ({"step": "d"},)


def test_the_error_object_has_what_is_known_and_no_more() -> None:
    assert RyeError("It broke.", next_step="Mend it.").to_dict() == {
        "status": "error",
        "error": "It broke. Mend it.",
        "error_type": "error",
        "next_step": "Mend it.",
    }
    assert "next_step" not in RyeError("It broke.").to_dict()
    assert example(AmbiguousItem).to_dict() == {
        "status": "error",
        "error": "It broke. Mend it.",
        "error_type": "ambiguous",
        "next_step": "Mend it.",
        "item_id": "tool:acme/x",
        "chain": ["acme/x"],
        "metadata": {"duration_ms": 2},
        "trace": [{"step": "x"}],
    }


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES)
def test_the_error_object_is_json(cls: type[RyeError]) -> None:
    document = example(cls).to_dict()
    assert json.loads(json.dumps(document)) == document


def test_every_failing_parameter_is_listed() -> None:
    error = InvalidParameters("They don't fit.", failures=("a: missing", "b: no number"))
    assert error.to_dict()["failures"] == ["a: missing", "b: no number"]


def test_a_key_error_shows_the_key() -> None:
    error = UntrustedKey("x", path=Path("/x"), fingerprint="0" * 16)
    assert error.fingerprint == "0" * 16
    assert error.error_type == "integrity"


def test_a_notebook_shows_the_lines_of_its_cells_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shell = InteractiveShell()
    shell.run_cell("from ryecore import SyncRye")
    shell.run_cell(
        "def look():\n    with SyncRye.open('.') as rye:\n        rye.verify('tool:a/b')"
    )
    shell.run_cell("look()")
    said = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert [line.strip() for line in said.splitlines() if line.startswith("    ")] == [
        "look()",
        "rye.verify('tool:a/b')",
    ]
    assert "ItemNotFound: tool:a/b was not found" in said
