"""Hostile parameters through the first forms of the runtimes and those that are documented.

Source: docs/design/runtimes.md#first-forms.

What a parameter holds arrives whole, or is refused; it is never run.
"""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ryecore import SyncRye
from ryecore.errors import ConfigError, InputError, PlaceholderInScript, UnresolvedPlaceholder
from ryecore.items.documents import parse_document
from tests.matrix import in_turn
from tests.workspace import BASH, Workspace

EXAMPLES = Path(__file__).parent / "examples"
HOSTILE = (
    "$(touch x)",
    "`touch x`",
    "';touch x;'",
    '";touch x;"',
    "\ntouch x\n",
    "x\nEOF\ntouch x\n",
    "${IFS}touch${IFS}x",
    "--flags",
    "-f/dev/stdin",
    "-c touch x",
    "--init-file=x",
    "a[$(touch x)]",
    "$'\\x24(touch x)'",
    "]] ; touch x; [[ -v a",
    "{project_path}",
    "{params_json}",
    "${HOME}",
    "%(touch x)",
    "<(touch x)",
    "!touch x",
    "__import__('os').system('touch x')",
    'BEGIN { system("touch x") }',
    "",
)
NAMED = {"type": "object", "properties": {"name": {"type": "string"}}}
ECHO = "import json, sys; print(json.dumps([sys.argv[1:], sys.stdin.read()]))"

RECORDED = ("node", "ruby", "state_graph")
"""Runtimes whose interpreter is replaced by a program that prints what it was started with."""


@pytest.fixture
def examples(workspace: Workspace) -> Workspace:
    """A workspace with every example, as acme/NAME."""
    recorder = workspace.root / "recorder"
    recorder.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{ECHO}\n")
    recorder.chmod(0o755)
    for path in EXAMPLES.glob("*.yaml"):
        declared = parse_document(path.read_bytes(), path)
        workspace.yaml(f"acme/{path.stem}", **declared)
    workspace.environ |= {
        "RYE_NODE": str(recorder),
        "RYE_RUBY": str(recorder),
        "LILLUX_WATCH": str(recorder),
        "RYE_GRAPH": str(recorder),
    }
    return workspace


def assert_nothing_ran(workspace: Workspace) -> None:
    """Look for the file x, which a hostile value would make."""
    assert not list(workspace.root.rglob("x"))


def each(
    rye: SyncRye,
    workspace: Workspace,
    ref: str,
    read: Any,
    name: str = "name",
    values: Sequence[str] = HOSTILE,
) -> None:
    """Call a tool with hostile values, and compare what has arrived."""
    for value in values:
        done = rye.execute(ref, {name: value})
        assert done.success, (ref, value, done.error)
        assert read(done.data) == value, (ref, value)
        assert_nothing_ran(workspace)


def test_on_standard_input(examples: Workspace) -> None:
    """The first forms of the runtimes, and those that ship."""
    body = "def execute(params, project_path): return params"
    script = "import json, sys; print(json.dumps(json.load(sys.stdin)))"
    shell = "cat"
    pythons = [
        examples.python("a/f", body, executor_id="acme/python_function", config_schema=NAMED),
        examples.python("a/s", script, executor_id="acme/python_script", config_schema=NAMED),
        examples.python("a/g", body, config_schema=NAMED),
    ]
    echo = examples.shell("a/b", shell, config_schema=NAMED)
    with examples.sync(warm_memory_mib=0) as rye:
        each(rye, examples, echo, lambda data: data["name"])
        for value, ref in in_turn(HOSTILE, pythons):
            each(rye, examples, ref, lambda data: data["name"], values=[value])


@pytest.mark.parametrize("runtime", ["node", "ruby"])
def test_on_standard_input_of_a_recorded_interpreter(examples: Workspace, runtime: str) -> None:
    ref = examples.shell(f"a/{runtime}", "", executor_id=f"acme/{runtime}", config_schema=NAMED)
    with examples.sync() as rye:
        each(rye, examples, ref, lambda data: json.loads(data[1])["name"])


def test_as_one_argument_of_json(examples: Workspace) -> None:
    """The first form of the walker takes its parameters in an argument behind its program."""
    path = EXAMPLES / "state_graph.yaml"
    declared: dict[str, Any] = parse_document(path.read_bytes(), path)
    declared["env_config"]["interpreter"] = {"type": "command", "var": "RYE_GRAPH",
                                             "resolve_cmd": ["true"]}  # fmt: skip
    examples.yaml("acme/state_graph", **declared | {
        "config": {**declared["config"], "command": "${RYE_GRAPH}"}})  # fmt: skip
    ref = examples.yaml("a/graph", executor_id="acme/state_graph", config_schema=NAMED)
    with examples.sync() as rye:
        each(rye, examples, ref, lambda data: json.loads(data[0][3])["name"])


@pytest.mark.parametrize("runtime", ["acme/bash", BASH])
def test_behind_a_tools_own_script(examples: Workspace, runtime: str) -> None:
    """Whatever the script does with "$2", within double quotes."""
    script = (
        'printf "<%s" "$2" | cat; cat <<EOF >/dev/null\n$2\nEOF\n'
        'x="$2"; [[ -n "$x" && "$x" == "$2" ]]; case "$2" in nothing) exit 3;; esac'
    )
    ref = examples.yaml(
        "a/own",
        executor_id=runtime,
        config_schema=NAMED,
        config={"command": script + "; true", "script_args": ["{name}"]},
    )
    with examples.sync() as rye:
        each(rye, examples, ref, lambda data: data["stdout"][1:])


@pytest.mark.skipif(not shutil.which("awk"), reason="there is no awk")
def test_as_an_argument_of_awk(examples: Workspace) -> None:
    header = '# __executor_id__ = "acme/awk"\n'
    header += '# CONFIG_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}\n'
    examples.write("tools/a/total.sh", header + 'BEGIN { printf "<%s", ARGV[1] }\n')
    with examples.sync() as rye:
        each(rye, examples, "tool:a/total", lambda data: data["stdout"][1:], "path")


@pytest.mark.parametrize(
    ("runtime", "tool", "refused"),
    [
        ("bash", {}, UnresolvedPlaceholder),
        ("bash", {"config_schema": NAMED}, UnresolvedPlaceholder),
        ("bash", {"config": {"command": None}}, UnresolvedPlaceholder),
        ("bash", {"config": {"command": "echo {name}"}, "config_schema": NAMED},
         PlaceholderInScript),
        ("mcp_http", {"config": {"server": "a/s", "tool_name": "t"}}, UnresolvedPlaceholder),
        ("mcp_stdio", {"config": {"server": "a/s", "tool_name": "t"}}, UnresolvedPlaceholder),
        ("rust", {}, UnresolvedPlaceholder),
        ("awk", {}, ConfigError),  # it would run the declaration itself
    ],
)  # fmt: skip
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_tool_that_leaves_a_placeholder_open_is_refused(
    examples: Workspace,
    runtime: str,
    tool: Mapping[str, Any],
    refused: type[Exception],
    dry_run: bool,
) -> None:
    ref = examples.yaml("a/open", executor_id=f"acme/{runtime}", **tool)
    given = {"a": "$(touch x)", "name": "$(touch x)"}
    with examples.sync() as rye, pytest.raises(refused) as caught:
        rye.execute(ref, given, dry_run=dry_run)
    assert getattr(caught.value, "next_step", "")
    assert_nothing_ran(examples)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_yaml_tool_of_the_bash_runtime_without_a_command_is_refused(
    workspace: Workspace, dry_run: bool
) -> None:
    """Its own file would be run as a script."""
    for tool in ({}, {"config": {"command": None}}, {"config_schema": NAMED}):
        ref = workspace.yaml("a/none", executor_id=BASH, description="$(touch x)", **tool)
        with pytest.raises(ConfigError, match="declares a tool"):
            workspace.execute(ref, {"name": "$(touch x)"}, dry_run=dry_run)
    assert_nothing_ran(workspace)


def test_a_command_that_begins_as_an_option_is_a_command(workspace: Workspace) -> None:
    """Else bash would take the next argument, the tool's own path, for the script."""
    declared = {"type": "object", "properties": {"command": {"type": "string"}}}
    ref = workspace.yaml("a/sh", executor_id=BASH, config_schema=declared)
    done = workspace.execute(ref, {"command": "-x"})
    assert not done.success
    assert "-x: command not found" in str(done.error)


def test_a_nul_is_refused_as_an_argument(examples: Workspace) -> None:
    ref = examples.yaml(
        "a/nul",
        executor_id=BASH,
        config_schema=NAMED,
        config={"command": 'printf %s "$2"', "script_args": ["{name}"]},
    )
    with pytest.raises(InputError, match="NUL"):
        examples.execute(ref, {"name": "a\0b"})
