"""`rye map`: files of rows, what is refused, and what is printed."""

import json

import pytest

from tests.unit.cli.conftest import Run
from tests.workspace import Workspace


@pytest.fixture
def ref(workspace: Workspace) -> str:
    schema = {
        "type": "object",
        "properties": {"n": {"type": ["integer", "string"]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    return workspace.python(
        "acme/half",
        "def execute(params, project):\n    return 12 // int(params['n'])",
        config_schema=schema,
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.jsonl", '{"n": 3}\n\n{"n": 4}\n'),
        ("rows", '{"n": 3}\n{"n": 4}'),
        ("rows.json", '[{"n": 3}, {"n": 4}]'),
        ("rows.csv", "n\n3\n4\n"),
        ("rows.csv", "\ufeffn\r\n3\r\n4\r\n"),
    ],
)
def test_rows_are_read_from_files(
    run: Run, workspace: Workspace, ref: str, name: str, text: str
) -> None:
    (workspace.project / name).write_text(text, "utf-8", newline="")
    done = run("map", ref, name, "--json")
    assert done.code == 0
    assert [one["output"] for one in done.json["results"]] == [4, 3]


def test_rows_come_from_standard_input_and_are_shown_later(run: Run, ref: str) -> None:
    done = run("map", ref, "-", stdin='{"n": 0}\n{"n": 2}\n')
    assert done.code == 1
    assert "1 completed, 1 failed" in done.out
    assert "✗ row 0  ZeroDivisionError" in done.out
    again = run(
        "map", "--show", json.loads(run("graph", "list", "--json").out)["runs"][0]["thread_id"]
    )
    assert again.code == 0
    assert again.out == done.out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rows.jsonl", "", "There are no rows."),
        ("rows.jsonl", '{"n": 3}\n{"n": 4', "rows.jsonl, line 2 isn't JSON"),
        ("rows.jsonl", '{"n": 3}\n7\n', "row 1: A row must be a mapping, not int"),
        ("rows.jsonl", '{"n": 3}\n{"n": 2, "m": 1}\n{"m": 1}', "2 of 3 rows do not fit tool:"),
        ("rows.jsonl", '{"n": NaN}', "isn't JSON"),
        ("rows.json", '{"n": 3}', "rows.json holds no list of objects"),
        ("rows.json", "[", "rows.json isn't JSON"),
        ("rows.csv", "n\n3,4\n", "row 0 has not as many fields as the header"),
        ("rows.csv", 'n\n"3', "rows.csv isn't CSV"),
        ("rows.csv", "", "There are no rows."),
    ],
)  # fmt: skip
def test_what_are_no_rows_is_refused(
    run: Run, workspace: Workspace, ref: str, name: str, text: str, said: str
) -> None:
    (workspace.project / name).write_text(text)
    done = run("map", ref, name)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_a_file_that_cannot_be_read_is_refused(run: Run, workspace: Workspace, ref: str) -> None:
    (workspace.project / "rows.jsonl").write_bytes(b"\xff\xfe\x00")
    for name, said in (("rows.jsonl", "isn't UTF-8"), ("none.csv", "No such file"), (".", "Is a")):
        done = run("map", ref, name)
        assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "A map needs an item and a file of rows"),
        (["tool:acme/half"], "A map needs an item and a file of rows"),
        (["tool:acme/half", "-", "--resume", "x"], "names a map that has begun already"),
        (["--show", "x", "--resume", "x"], "names a map that has begun already"),
        (["--show", "x", "--rerun"], "--rerun goes with --resume"),
        (["--show", "x"], "x"),
        (["tool:acme/half", "-", "--concurrency", "0"], "not a whole number from 1 to 1,000"),
        (["tool:acme/none", "-"], "acme/none"),
        (["tool:acme/half", "-", "--limit", "spend=much"], "spend is 'much', not a number"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    run: Run, ref: str, arguments: list[str], said: str
) -> None:
    done = run("map", *arguments, stdin='{"n": 1}\n')
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
