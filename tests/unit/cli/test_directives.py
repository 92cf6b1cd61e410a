"""`rye execute` on a directive, as a real process."""

import json

import pytest

from tests.unit.cli.conftest import run_on_terminal

DIRECTIVE = """\
# Greet

```xml
<directive name="greet">
  <inputs>
    <input name="who" required="true"/>
    <input name="times" type="integer" default="1"/>
  </inputs>
</directive>
```

Greet {input:who}, {input:times} times.
"""


@pytest.fixture
def greet(workspace):
    workspace.write("directives/acme/greet.md", DIRECTIVE)
    return "directive:acme/greet"


def test_piped_directions_are_printed_alone_and_as_they_are(greet, run):
    done = run("execute", greet, "who=a\u00a0b", "times=3")
    assert (done.code, done.out, done.err) == (0, "Greet a\u00a0b, 3 times.\n", "")


def test_text_stays_text_where_the_directive_declares_a_string(greet, run):
    assert run("execute", greet, "who=007").out == "Greet 007, 1 times.\n"


def test_on_a_terminal_the_directions_cannot_steer_it(greet, workspace):
    shown = run_on_terminal(workspace, "execute", greet, "who=\x1b]0;x\x07", NO_COLOR="1")
    assert "✓ directive:acme/greet" in shown
    assert "\\x1b]0;x" in shown
    assert "\x1b" not in shown


def test_json_is_the_response_object(greet, run):
    document = run("execute", greet, "who=Ada", "--json").json
    assert document["your_directions"] == "Greet Ada, 1 times."
    assert (document["status"], document["type"]) == ("success", "directive")


def test_missing_inputs_exit_with_2_and_name_them(greet, run):
    done = run("execute", greet)
    assert done.code == 2
    assert "Missing required inputs: who" in done.err
    document = run("execute", greet, "--json").json
    assert document["declared_inputs"][0] == {"name": "who", "type": "string", "required": True}


def test_a_dry_run_shows_model_limits_and_permissions(greet, run):
    done = run(
        "execute", greet, "who=a", "--dry-run", "--model", "acme/large",
        "--limit", "turns=8", "--limit", "spend=0.25",
    )  # fmt: skip
    assert done.code == 0
    for text in ("acme/large", "turns 8", "spend $0.25", "nothing"):
        assert text in done.out


@pytest.mark.parametrize("limit", ["turns", "=8", "turns=x", "laps=8"])
def test_a_limit_that_is_none_is_refused(greet, run, limit):
    done = run("execute", greet, "who=a", "--limit", limit)
    assert done.code == 2
    assert "limit" in done.err


def test_one_limit_named_twice_is_refused(greet, run):
    done = run("execute", greet, "who=a", "--limit", "turns=1", "--limit", "turns=2")
    assert done.code == 2


def test_the_trace_is_shown_with_the_directions(greet, run):
    done = run("execute", greet, "who=a", "--trace")
    assert "Greet a, 1 times." in done.out
    assert "verify_integrity" in done.out
    assert json.loads(run("execute", greet, "who=a", "--trace", "--json").out)["trace"]
