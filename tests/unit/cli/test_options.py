"""KEY=VALUE arguments."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ryecore.cli.commands import rye
from ryecore.cli.options import read_pairs
from ryecore.errors import InputError
from tests.unit.cli.conftest import Run

SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "integer"},
        "any": {},
        "true": True,
        "maybe": {"type": ["string", "null"]},
    }
}


@given(st.text())
def test_a_value_of_a_text_parameter_is_taken_as_it_is(value):
    assert read_pairs([f"text={value}"], SCHEMA) == {"text": value}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    )
)
def test_what_reads_as_json_is_json_where_the_schema_does_not_say_text(value):
    assert read_pairs([f"any={json.dumps(value)}"], SCHEMA) == {"any": value}


@pytest.mark.parametrize("value", ["plain text", "", "1.2.3", "{broken", "NaN", "Infinity", "[" * 100_000])  # fmt: skip # noqa: E501
@pytest.mark.parametrize("schema", [SCHEMA, None, {}])
def test_anything_else_is_text(value, schema):
    assert read_pairs([f"any={value}"], schema) == {"any": value}


def test_the_first_equals_sign_divides_and_the_last_pair_of_a_key_wins():
    assert read_pairs(["a==b=c", "a=d=e", "number=3"], SCHEMA) == {"a": "d=e", "number": 3}


@pytest.mark.parametrize("pair", ["novalue", "=value", ""])
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(InputError, match="KEY=VALUE"):
        read_pairs([pair], None)


def test_a_command_that_is_an_option_is_named(workspace, run):
    assert "Write: rye --version" in run("version").err
    assert "Write: rye keys trust FILE --revoke" in run("keys", "revoke", "x").err
    refused = run("execute", workspace.shell("acme/t", "true"), "--limit", "turns=2").err
    assert "--limit is for directives" in refused
    assert "limits:" not in refused


def test_what_is_signed_and_can_not_be_read_is_warned_of(workspace, run):
    for name, text in {
        "tools/acme/bad.yaml": "a: [",
        "directives/acme/bad.md": "# Nothing\n",
    }.items():
        workspace.path(name).parent.mkdir(parents=True, exist_ok=True)
        workspace.path(name).write_text(text)
    for ref in ("tool:acme/bad", "directive:acme/bad"):
        done = run("sign", ref)
        assert (done.code, done.out.count("signed, but won't run: ")) == (0, 1)
    assert "won't run" not in run("sign", workspace.shell("acme/good", "true")).out


@pytest.mark.parametrize(
    "command", [("execute", "tool:a"), ("fetch", "tool:a"), ("sign", "tool:a")]
)
def test_a_missing_item_outside_of_a_project_names_the_project(run: Run, workspace, command):
    outside = workspace.project / "outside"
    outside.mkdir()
    refused = run(*command, "--project", str(outside))
    assert f"next: {outside} is not a project: " in refused.err
    assert "rye init" in refused.err
    workspace.shell("b", "true")
    assert "not a project" not in run(*command).err


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("graph watch x", "rye threads watch"),
        ("watch x", "rye threads watch"),
        ("threads step x", "rye graph step"),
        ("keys sign x", "rye sign"),
    ],
)
def test_a_command_of_another_group_is_named(written: str, instead: str) -> None:
    done = CliRunner().invoke(rye, written.split())
    assert done.exit_code == 2
    assert f"Write: {instead}\n" in done.output


def test_a_misspelt_command_is_guessed_and_an_unknown_one_is_refused() -> None:
    assert "Did you mean" in CliRunner().invoke(rye, ["execut"]).output
    unknown = CliRunner().invoke(rye, ["graph", "frobnicate"])
    assert "No such command" in unknown.output
