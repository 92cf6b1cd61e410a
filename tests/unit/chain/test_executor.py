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


def test_parameters_are_checked_before_anything_runs_and_every_failure_is_listed(house):
    ref = house.shell("a/t", "touch ran", config_schema=SCHEMA)
    with pytest.raises(InvalidParameters) as refusal:
        house.execute(ref, {"count": 0, "deep": {"flag": "x"}, "more": 1})
    failures = refusal.value.failures
    assert len(failures) == 4
    assert any(failure.startswith("count: ") for failure in failures)
    assert any(failure.startswith("deep.flag: ") for failure in failures)
    assert any("path" in failure for failure in failures)
    assert any("more" in failure for failure in failures)
    assert refusal.value.to_dict()["failures"] == list(failures)
    assert "path (string, required)" in refusal.value.next_step
    assert not (house.project / "ran").exists()


def test_defaults_are_applied(house):
    ref = house.shell("a/t", "cat", config_schema=SCHEMA)
    assert house.execute(ref, {"path": "x", "deep": {}}).data == {
        "path": "x",
        "count": 3,
        "deep": {"flag": True},
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, b"x", {1, 2}, "\ud800", Path("/x")])
@pytest.mark.parametrize("schema", [None, {"type": "object"}])
def test_parameters_that_are_no_json_are_refused(house, value, schema):
    ref = house.shell("a/t", "touch ran", **({"config_schema": schema} if schema else {}))
    with pytest.raises(InputError, match="JSON"):
        house.execute(ref, {"x": value})
    assert not (house.project / "ran").exists()


@pytest.mark.parametrize("parameters", [[], "x", 3, {1: 2}])
def test_parameters_that_are_no_mapping_are_refused(house, parameters):
    with pytest.raises(InputError, match="mapping with text keys"):
        house.execute(house.shell("a/t", "true"), parameters)


def test_the_callers_mapping_is_not_changed(house):
    given = {"path": "x", "deep": {}}
    house.execute(house.shell("a/t", "cat", config_schema=SCHEMA), given)
    assert given == {"path": "x", "deep": {}}


def test_a_python_tool_gets_hostile_parameters_untouched_and_nothing_else_changes(house):
    ref = house.python("a/t", "def execute(p, project):\n    import os\n    return [p, project, os.getcwd()]")  # fmt: skip # noqa: E501
    parameters, project, cwd = house.execute(ref, HOSTILE).data
    assert parameters == HOSTILE
    assert project == cwd == str(house.project)


def test_a_shell_tool_gets_hostile_parameters_untouched_and_nothing_else_changes(house):
    ref = house.shell("a/t", 'cat > got; pwd > where; echo "$1" > first; echo "$#" > many')
    done = house.execute(ref, HOSTILE)
    assert done.success
    assert json.loads((house.project / "got").read_text()) == HOSTILE
    assert (house.project / "where").read_text().strip() == str(house.project)
    assert (house.project / "first").read_text().strip() == str(house.project)
    assert (house.project / "many").read_text().strip() == "1"


def test_a_python_script_gets_the_project_as_an_argument_and_parameters_on_stdin(house):
    body = "import sys, json\nprint(json.dumps([sys.argv[1:], json.load(sys.stdin)]))"
    ref = house.python("a/t", body, executor_id="rye/core/runtimes/python/script")
    assert house.execute(ref, HOSTILE).data == [["--project-path", str(house.project)], HOSTILE]


def test_an_asynchronous_function_is_awaited_and_what_it_prints_is_no_data(house):
    body = "async def execute(p, project):\n    print('noise')\n    return {'ok': p['a']}"
    done = house.execute(house.python("a/t", body), {"a": 1})
    assert done.data == {"ok": 1}


def test_a_function_that_returns_nothing_is_an_empty_object(house):
    assert house.execute(house.python("a/t", "def execute(p, project):\n    pass")).data == {}


def test_a_python_tool_without_execute_says_so_with_the_authors_path(house):
    done = house.execute(house.python("a/t", "x = 1"))
    assert not done.success
    assert str(house.path("tools/a/t.py")) in done.error


def test_a_python_tool_cannot_import_from_the_working_folder(house):
    (house.project / "planted.py").write_text("VALUE = 'evil'")
    (house.project / "json.py").write_text("raise SystemExit('evil')")
    body = "def execute(p, project):\n    import planted\n    return planted.VALUE"
    done = house.execute(house.python("a/t", body))
    assert not done.success
    assert "No module named 'planted'" in done.error


def test_a_yaml_tool_on_bash_runs_its_signed_command(house):
    ref = house.yaml(
        "a/t",
        executor_id="rye/core/runtimes/bash/bash",
        config={"command": 'read -r all; echo "$all" ; for f in 1 2; do echo ${f}; done'},
    )
    assert house.execute(ref, {"a": 1}).data["stdout"] == '{"a": 1}\n1\n2\n'


def test_a_yaml_tools_signed_command_is_not_the_callers_to_change(house):
    ref = house.yaml(
        "a/t",
        executor_id="rye/core/runtimes/bash/bash",
        config={"command": "echo signed"},
        config_schema={"type": "object", "properties": {"command": {"type": "string"}}},
    )
    assert house.execute(ref, {"command": "echo caller"}).data["stdout"] == "signed\n"


def test_fifty_megabytes_of_parameters_arrive(house):
    ref = house.shell("a/t", "wc -c")
    done = house.execute(ref, {"x": "x" * 50_000_000})
    assert done.data > 50_000_000


# Working folder, timeout, deadline


def test_the_working_folder_is_the_project(house):
    assert house.execute(house.shell("a/t", "pwd")).data["stdout"].strip() == str(house.project)


def test_the_callers_timeout_beats_every_other(house):
    house.write("config/execution/execution.yaml", {"tools": {"a/t": {"timeout": 100}}})
    ref = house.shell("a/t", "echo begun; read -r _ < <(sleep 600)", config={"timeout": 100})
    done = house.execute(ref, timeout_s=0.2)
    assert not done.success
    assert "within 0.2 s" in done.error
    assert done.data["stdout"] == "begun\n"


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan, math.inf, True, "5"])
def test_a_timeout_that_cannot_be_kept_is_refused(house, timeout_s):
    with pytest.raises(InputError, match="timeout"):
        house.execute(house.shell("a/t", "true"), timeout_s=timeout_s)


def test_a_deadline_bounds_the_timeout_and_one_that_has_passed_is_refused(house):
    ref = house.shell("a/t", "true")
    near = CallContext(deadline=time.monotonic() + 10)
    assert house.execute(ref, dry_run=True, ctx=near).plan.timeout_s <= 10
    with pytest.raises(InputError, match="deadline"):
        house.execute(ref, ctx=CallContext(deadline=time.monotonic() - 1))


# Results


def test_a_tool_that_fails_is_a_result_and_raises_on_request(house):
    done = house.execute(house.shell("a/t", "echo '{\"partial\": 1}'; echo why >&2; exit 3"))
    assert (done.status, done.error, done.data) == ("error", "why", {"partial": 1})
    with pytest.raises(ToolFailed, match="why") as failure:
        done.raise_for_status()
    assert failure.value.data == {"partial": 1}
    assert failure.value.item_id == "tool:a/t"


def test_a_tool_that_ran_well_raises_nothing(house):
    done = house.execute(house.shell("a/t", "true"))
    assert done.raise_for_status() is done


def test_a_script_whose_interpreter_is_missing_is_refused_with_the_next_step(house):
    house.yaml("a/runtime", config={"command": "{tool_path}"})
    ref = "tool:a/t"
    house.write("tools/a/t.sh", "#!/nowhere/sh\n# __executor_id__ = 'a/runtime'\n")
    with pytest.raises(SpawnFailed) as refusal:
        house.execute(ref, trace=True)
    assert "interpreter" in refusal.value.next_step
    assert refusal.value.trace[-1]["step"] == "execute"
    assert refusal.value.trace[-1]["failed"]
