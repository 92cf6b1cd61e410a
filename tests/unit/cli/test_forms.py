"""rye execute: a tool that asks a person at the terminal."""

import json
import os
import pty
from typing import Any

import pytest

from ryecore.cli.forms import choices_of, read_field
from tests.unit.chain.test_channel import HELPER
from tests.unit.cli.conftest import Run, read_all, start
from tests.workspace import Workspace

TITLED = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Your name\x1b[2J", "maxLength": 5},
        "age": {"type": "integer", "default": 30},
        "sure": {"type": "boolean"},
        "kind": {"type": "string", "enum": ["tea", "coffee"]},
        "more": {"type": "array", "items": {"anyOf": TITLED}},
        "note": {"type": "string"},
    },
    "required": ["name"],
}


def asking(workspace: Workspace, kind: str = "elicit") -> None:
    body = f"""{HELPER}
def execute(params, project_path):
    return ask("{kind}", message="Who are you?\\x1b[31m", requestedSchema={FORM!r})
"""
    workspace.python("a/asks", body, may_ask=[kind])


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "integer"}, "-3", -3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "Y", True),
        ({"type": "boolean"}, "no", False),
        ({"enum": ["a", "b"]}, "b", "b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "b, a", ["b", "a"]),
        ({"type": "array", "items": {"anyOf": TITLED}}, "a", ["a"]),
    ],
)
def test_what_is_typed_becomes_a_value_of_the_fields_type(
    field: dict[str, Any], typed: str, value: object
) -> None:
    assert read_field(field, typed) == value


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        ({"type": "integer"}, "2.5"),
        ({"type": "number"}, "nan"),
        ({"type": "boolean"}, "maybe"),
        ({"type": "string", "oneOf": TITLED}, "A"),
        ({"type": "array", "items": {"enum": ["a"]}}, "a,b"),
    ],
)
def test_what_does_not_fit_is_asked_again(field: dict[str, Any], typed: str) -> None:
    with pytest.raises(ValueError, match="Type"):
        read_field(field, typed)


def test_choices_are_found_in_each_form() -> None:
    assert choices_of({"enum": ["a", 1]}) == ["a", "1"]
    assert choices_of({"oneOf": TITLED}) == ["a", "b"]
    assert choices_of({"type": "string"}) == []


def answer(workspace: Workspace, *answers: str) -> tuple[str, Any]:
    """What a person sees who answers each prompt as it comes, and the result's data."""
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stderr": theirs}
    command = start(workspace, "execute", "a/asks", "--json", env={"TERM": "dumb"}, **streams)
    os.close(theirs)
    shown, left = "", [*answers]
    while left:
        shown += os.read(ours, 65536).decode()
        if shown.endswith(": "):
            os.write(ours, left.pop(0).encode())
    assert command.stdout is not None
    document = json.loads(command.stdout.read())
    assert command.wait() == 0
    shown += read_all(ours)
    os.close(ours)
    return shown, document["data"]["result"]


def test_a_person_fills_in_the_form_and_a_wrong_answer_is_asked_again(
    workspace: Workspace,
) -> None:
    asking(workspace)
    first = ["Ada Lovelace\n", "\n", "maybe\n", "y\n", "tea\n", "a,b\n", "\n"]
    second = ["Ada\n", "31\n", "n\n", "\n", "\n", "hi\n"]
    shown, result = answer(workspace, *first, *second)
    assert "tool:a/asks asks:" in shown
    assert "Your name" in shown
    assert "Type y or n." in shown
    assert "name:" in shown  # what doesn't fit
    assert "\x1b[2J" not in shown
    assert result == {
        "action": "accept",
        "content": {"name": "Ada", "age": 31, "sure": False, "note": "hi"},
    }


def test_the_end_of_the_input_declines(workspace: Workspace) -> None:
    asking(workspace)
    assert answer(workspace, "Ada\n", "\x04")[1] == {"action": "decline"}


@pytest.mark.parametrize(
    ("kind", "why"), [("elicit", "Nobody is at a terminal"), ("roots", "asks a person alone")]
)
def test_what_nobody_can_answer_is_an_error_answer(
    workspace: Workspace, run: Run, kind: str, why: str
) -> None:
    asking(workspace, kind)
    assert why in run("execute", "a/asks", "--json").json["data"]["error"]
