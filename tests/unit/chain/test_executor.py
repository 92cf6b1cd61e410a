"""Executing a tool: parameters, working folder, timeouts, results."""

import json
import math
import time
from pathlib import Path

import pytest

from ryecore import CallContext
from ryecore.errors import (
    InputError,
    InvalidParameters,
    SpawnFailed,
    ToolFailed,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "default": 3},
        "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "default": True}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}
HOSTILE = {
    "command": "rm -rf ~",
    "args": ["--evil"],
    "cwd": "/",
    "env": {"PATH": "/evil"},
    "timeout": 0.001,
    "input_data": "{params_json}",
    "server": "evil",
    "project_path": "/evil",
    "tool_path": "/evil.py",
    "text": "${HOME} {project_path} {params_json} $(id) `id` 'x' \"y\"",
}


# Parameters


def test_parameters_are_checked_before_anything_runs_and_every_failure_is_listed(workspace):
    ref = workspace.shell("a/t", "touch ran", config_schema=SCHEMA)
    with pytest.raises(InvalidParameters) as refusal:
        workspace.execute(ref, {"count": 0, "deep": {"flag": "x"}, "more": 1})
    failures = refusal.value.failures
    assert len(failures) == 4
    assert any(failure.startswith("count: ") for failure in failures)
    assert any(failure.startswith("deep.flag: ") for failure in failures)
    assert any("path" in failure for failure in failures)
    assert any("more" in failure for failure in failures)
    assert refusal.value.to_dict()["failures"] == list(failures)
    assert "path (string, required)" in refusal.value.next_step
    assert not (workspace.project / "ran").exists()


def test_a_refusal_names_what_an_open_schema_does_not(workspace):
    open_schema = {**SCHEMA, "additionalProperties": True}
    ref = workspace.shell("a/t", "cat", config_schema=open_schema)
    with pytest.raises(InvalidParameters) as refusal:
        workspace.execute(ref, {"pth": "x"})
    assert refusal.value.next_step.endswith(". It doesn't name 'pth'.")
    assert workspace.execute(ref, {"path": "x", "pth": "x"}).success


def test_defaults_are_applied(workspace):
    ref = workspace.shell("a/t", "cat", config_schema=SCHEMA)
    assert workspace.execute(ref, {"path": "x", "deep": {}}).data == {
        "path": "x",
        "count": 3,
        "deep": {"flag": True},
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, b"x", {1, 2}, "\ud800", Path("/x")])
@pytest.mark.parametrize("schema", [None, {"type": "object"}])
def test_parameters_that_are_no_json_are_refused(workspace, value, schema):
    ref = workspace.shell("a/t", "touch ran", **({"config_schema": schema} if schema else {}))
    with pytest.raises(InputError, match="JSON"):
        workspace.execute(ref, {"x": value})
    assert not (workspace.project / "ran").exists()


@pytest.mark.parametrize("parameters", [[], "x", 3, {1: 2}])
def test_parameters_that_are_no_mapping_are_refused(workspace, parameters):
    with pytest.raises(
        InputError, match=r"^Parameters must (be a mapping, not|have text keys, not)"
    ):
        workspace.execute(workspace.shell("a/t", "true"), parameters)


def test_the_callers_mapping_is_not_changed(workspace):
    given = {"path": "x", "deep": {}}
    workspace.execute(workspace.shell("a/t", "cat", config_schema=SCHEMA), given)
    assert given == {"path": "x", "deep": {}}


def test_a_python_tool_gets_hostile_parameters_untouched_and_nothing_else_changes(workspace):
    ref = workspace.python("a/t", "def execute(p, project):\n    import os\n    return [p, project, os.getcwd()]")  # fmt: skip # noqa: E501
    parameters, project, cwd = workspace.execute(ref, HOSTILE).data
    assert parameters == HOSTILE
    assert project == cwd == str(workspace.project)


def test_a_shell_tool_gets_hostile_parameters_untouched_and_nothing_else_changes(workspace):
    ref = workspace.shell("a/t", 'cat > got; pwd > where; echo "$1" > first; echo "$#" > many')
    done = workspace.execute(ref, HOSTILE)
    assert done.success
    assert json.loads((workspace.project / "got").read_text()) == HOSTILE
    assert (workspace.project / "where").read_text().strip() == str(workspace.project)
    assert (workspace.project / "first").read_text().strip() == str(workspace.project)
    assert (workspace.project / "many").read_text().strip() == "1"


def test_a_python_script_gets_the_project_as_an_argument_and_parameters_on_stdin(workspace):
    body = "import sys, json\nprint(json.dumps([sys.argv[1:], json.load(sys.stdin)]))"
    ref = workspace.python("a/t", body, executor_id="rye/core/runtimes/python/script")
    assert workspace.execute(ref, HOSTILE).data == [
        ["--project-path", str(workspace.project)],
        HOSTILE,
    ]


def test_an_asynchronous_function_is_awaited_and_what_it_prints_is_no_data(workspace):
    body = "async def execute(p, project):\n    print('noise')\n    return {'ok': p['a']}"
    done = workspace.execute(workspace.python("a/t", body), {"a": 1})
    assert done.data == {"ok": 1}


def test_a_function_that_returns_nothing_is_an_empty_object(workspace):
    assert (
        workspace.execute(workspace.python("a/t", "def execute(p, project):\n    pass")).data == {}
    )


def test_a_python_tool_without_execute_says_so_with_the_authors_path(workspace):
    done = workspace.execute(workspace.python("a/t", "x = 1"))
    assert not done.success
    assert str(workspace.path("tools/a/t.py")) in done.error


def test_a_python_tool_cannot_import_from_the_working_folder(workspace):
    (workspace.project / "planted.py").write_text("VALUE = 'evil'")
    (workspace.project / "json.py").write_text("raise SystemExit('evil')")
    body = "def execute(p, project):\n    import planted\n    return planted.VALUE"
    done = workspace.execute(workspace.python("a/t", body))
    assert not done.success
    assert "No module named 'planted'" in done.error


def test_a_yaml_tool_on_bash_runs_its_signed_command(workspace):
    ref = workspace.yaml(
        "a/t",
        executor_id="rye/core/runtimes/bash/bash",
        config={"command": 'read -r all; echo "$all" ; for f in 1 2; do echo ${f}; done'},
    )
    assert workspace.execute(ref, {"a": 1}).data["stdout"] == '{"a": 1}\n1\n2\n'


def test_a_yaml_tools_signed_command_is_not_the_callers_to_change(workspace):
    ref = workspace.yaml(
        "a/t",
        executor_id="rye/core/runtimes/bash/bash",
        config={"command": "echo signed"},
        config_schema={"type": "object", "properties": {"command": {"type": "string"}}},
    )
    assert workspace.execute(ref, {"command": "echo caller"}).data["stdout"] == "signed\n"


def test_fifty_megabytes_of_parameters_arrive(workspace):
    ref = workspace.shell("a/t", "wc -c")
    done = workspace.execute(ref, {"x": "x" * 50_000_000})
    assert done.data > 50_000_000


# Working folder, timeout, deadline


def test_the_working_folder_is_the_project(workspace):
    assert workspace.execute(workspace.shell("a/t", "pwd")).data["stdout"].strip() == str(
        workspace.project
    )


def test_the_callers_timeout_beats_every_other(workspace):
    workspace.write("config/execution/execution.yaml", {"tools": {"a/t": {"timeout": 100}}})
    ref = workspace.shell("a/t", "echo begun; read -r _ < <(sleep 600)", config={"timeout": 100})
    done = workspace.execute(ref, timeout_s=0.2)
    assert not done.success
    assert "within 0.2 s" in done.error
    assert done.data["stdout"] == "begun\n"


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan, math.inf, True, "5"])
def test_a_timeout_that_cannot_be_kept_is_refused(workspace, timeout_s):
    with pytest.raises(InputError, match="timeout"):
        workspace.execute(workspace.shell("a/t", "true"), timeout_s=timeout_s)


def test_a_deadline_bounds_the_timeout_and_one_that_has_passed_is_refused(workspace):
    ref = workspace.shell("a/t", "true")
    near = CallContext(deadline=time.monotonic() + 10)
    assert workspace.execute(ref, dry_run=True, ctx=near).plan.timeout_s <= 10
    with pytest.raises(InputError, match="deadline"):
        workspace.execute(ref, ctx=CallContext(deadline=time.monotonic() - 1))


# Results


def test_a_tool_that_fails_is_a_result_and_raises_on_request(workspace):
    done = workspace.execute(
        workspace.shell("a/t", "echo '{\"partial\": 1}'; echo why >&2; exit 3")
    )
    assert (done.status, done.error, done.data) == ("error", "why", {"partial": 1})
    with pytest.raises(ToolFailed, match="why") as failure:
        done.raise_for_status()
    assert failure.value.data == {"partial": 1}
    assert failure.value.item_id == "tool:a/t"


def test_a_tool_that_ran_well_raises_nothing(workspace):
    done = workspace.execute(workspace.shell("a/t", "true"))
    assert done.raise_for_status() is done


def test_a_script_whose_interpreter_is_missing_is_refused_with_the_next_step(workspace):
    workspace.yaml("a/runtime", config={"command": "{tool_path}"})
    ref = "tool:a/t"
    workspace.write("tools/a/t.sh", "#!/nowhere/sh\n# __executor_id__ = 'a/runtime'\n")
    with pytest.raises(SpawnFailed) as refusal:
        workspace.execute(ref, trace=True)
    assert "interpreter" in refusal.value.next_step
    assert refusal.value.trace[-1]["step"] == "execute"
    assert refusal.value.trace[-1]["failed"]
