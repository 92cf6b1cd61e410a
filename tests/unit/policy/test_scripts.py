"""Programs among the parameters of a call, in which no expression stands."""

import re

import pytest

from ryecore.errors import PlaceholderInScript
from ryecore.policy.scripts import check_scripts, spliced_scripts

PATTERN = re.compile(r"\$\{[^}]*\}")
QUERY = {"properties": {"query": {"type": "string", "x-rye-script": "sql"}}}
NESTED = {
    "properties": {
        "steps": {"items": {"properties": {"run": {"x-rye-script": True}}}},
        "all": {"x-rye-script": "bash", "type": "array"},
        "command": {"x-rye-script": False},
    }
}


@pytest.mark.parametrize(
    ("parameters", "schema", "place"),
    [
        ({"command": "echo '${e}' >> err.txt"}, None, ("command",)),
        ({"command": "${a}${b}"}, {}, ("command",)),
        ({"Script": "x ${a}"}, None, ("Script",)),
        ({"job": {"cmd": "x ${a}"}}, None, ("job", "cmd")),
        ({"query": "select ${a}"}, QUERY, ("query",)),
        ({"steps": [{"run": "a"}, {"run": "b ${a}"}]}, NESTED, ("steps", 1, "run")),
        ({"all": ["a", "b ${a}"]}, NESTED, ("all", 1)),
        ({"argv": ["bash", "-c", "echo ${a}"]}, None, ("argv", 2)),
        ({"argv": ["timeout", "5", "python3", "-cprint(${a})"]}, None, ("argv", 3)),
        ({"argv": ["node", "--eval=${a}"]}, None, ("argv", 1)),
        ({"argv": ["git", "-c", "alias.x=!${a}", "x"]}, None, ("argv", 2)),
        ({"shell_command": "x ${a}"}, None, ("shell_command",)),
        ({"postInstallScript": "x ${a}"}, None, ("postInstallScript",)),
        ({"cmdline": "x ${a}"}, None, ("cmdline",)),
        ({"command_line": "x ${a}"}, None, ("command_line",)),
        ({"code": "print(${a})"}, None, ("code",)),
        ({"python_code": "print(${a})"}, None, ("python_code",)),
        ({"sql": "select ${a}"}, None, ("sql",)),
        ({"job": {"commands": ["a", "b ${a}"]}}, None, ("job", "commands", 1)),
        ({"before_scripts": ["b ${a}"]}, None, ("before_scripts", 0)),
    ],
)
def test_an_expression_within_a_program_is_found(parameters, schema, place):
    assert [one.place for one in spliced_scripts(parameters, schema, PATTERN)] == [place]
    with pytest.raises(PlaceholderInScript, match="must not be part of a program") as refused:
        check_scripts("The hook 'h'", parameters, schema, PATTERN)
    assert "args" in refused.value.next_step


@pytest.mark.parametrize(
    ("parameters", "schema"),
    [
        ({"command": "echo hello $HOME"}, None),
        ({"command": "${state.command}"}, None),
        ({"command": " ${state.command}\n"}, None),
        ({"command": 'echo "$1"', "args": ["${a}", "x ${b}"], "env": {"E": "${c}"}}, None),
        ({"command": "say ${a}"}, NESTED),
        ({"message": "it was ${a}"}, None),
        ({"exit_code": "${a}1", "script_path": "${a}/x", "commander": "${a}b"}, None),
        ({"scripts": ["${a}"], "sql": "${a}"}, None),
        ({"query": "${a}"}, QUERY),
        ({"argv": ["bash", "-c", 'echo "$1"', "_", "x ${a}"]}, None),
        ({"argv": ["tool", "-c", "x ${a}"]}, None),
    ],
)
def test_beside_a_program_and_as_a_whole_an_expression_is_allowed(parameters, schema):
    assert not spliced_scripts(parameters, schema, PATTERN)
