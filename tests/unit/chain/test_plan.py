"""From a chain and parameters to a plan."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.chain.plan import PlanInputs, build_plan, with_defaults
from ryecore.errors import ConfigError, InputError
from tests.unit.chain.elements import element, valid

RUNTIME = {"command": "/usr/bin/run", "args": ["{tool_path}"], "input_data": "{params_json}"}
BASH_CONFIG = {
    "command": "/bin/bash",
    "args": ["-c", "{command}", "{tool_path}", "{project_path}"],
    "args_without": {"command": ["{tool_path}", "{project_path}"]},
    "input_data": "{params_json}",
}
COMMAND_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(["${HOME}", "{project_path}", "{params_json}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    [
        "command",
        "args",
        "cwd",
        "env",
        "timeout",
        "input_data",
        "server",
        "project_path",
        "tool_path",
    ]
) | st.text("abc", min_size=1, max_size=3)


def plan(*elements, parameters=None, unknown=None, **inputs):
    given_inputs = PlanInputs(
        parameters=parameters or {},
        context={"tool_path": "/t", "project_path": "/p"},
        env={"HOME": "/h"},
        cwd="/p",
        **inputs,
    )
    return build_plan(valid(*elements), given_inputs, "none", unknown)


def runtime(**changes: object):
    return element("a/runtime", config={**RUNTIME, **changes})


def test_the_runtimes_templates_are_filled_in():
    made = plan(element("a/t"), runtime(args=["-x", "{tool_path}", "--at={project_path}"]))
    assert (made.command, made.args, made.cwd) == ("/usr/bin/run", ("-x", "/t", "--at=/p"), "/p")


@given(st.dictionaries(KEYS, JSON_VALUES, max_size=5))
def test_parameters_reach_standard_input_untouched_and_change_nothing_else(parameters):
    plain = plan(element("a/t"), runtime())
    made = plan(element("a/t"), runtime(), parameters=parameters)
    assert json.loads(made.stdin) == parameters
    assert (made.command, made.args, made.cwd, made.timeout_s, made.env) == (
        plain.command,
        plain.args,
        plain.cwd,
        plain.timeout_s,
        plain.env,
    )


def test_the_tools_config_wins_over_its_runtimes():
    made = plan(element("a/t", config={"args": ["mine"], "timeout": 7}), runtime(timeout=9))
    assert (made.args, made.timeout_s) == (("mine",), 7)


@pytest.mark.parametrize(
    ("callers", "tools", "runtimes", "expected"),
    [(1, 2, 3, 1), (None, 2, 3, 2), (None, None, 3, 3), (None, None, None, 300)],
)
def test_the_timeout_is_the_callers_then_the_tools_then_the_runtimes_then_300(
    callers, tools, runtimes, expected
):
    made = plan(
        element("a/t", config={"timeout": tools} if tools else {}),
        runtime(**({"timeout": runtimes} if runtimes else {})),
        timeout_s=callers,
    )
    assert made.timeout_s == expected


@pytest.mark.parametrize("timeout", [0, -1, "soon", True, None])
def test_a_timeout_that_is_no_positive_number_is_refused(timeout):
    with pytest.raises(ConfigError, match="timeout"):
        plan(element("a/t"), runtime(timeout=timeout))


@pytest.mark.parametrize("name", ["timeout", "max_output_bytes"])
def test_a_bound_that_no_process_can_have_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        plan(element("a/t"), runtime(**{name: 1e30}))


def test_an_unknown_placeholder_of_standard_input_stays_and_is_reported():
    unknown: set[str] = set()
    made = plan(element("a/t"), runtime(input_data="x {nobody}"), unknown=unknown)
    assert made.stdin == b"x {nobody}"
    assert unknown == {"nobody"}


def test_a_placeholder_alone_that_is_a_list_becomes_several_arguments():
    made = plan(
        element("a/t", config={"extra": ["a b", 2, None]}), runtime(args=["-v", "{extra}", "end"])
    )
    assert made.args == ("-v", "a b", "2", "", "end")


def test_a_parameter_that_runtime_and_tool_declare_is_put_in_once_and_never_quoted():
    tool = element("a/t", config_schema=COMMAND_SCHEMA)
    bash = element("a/bash", config=BASH_CONFIG, config_schema=COMMAND_SCHEMA)
    made = plan(tool, bash, parameters={"command": "echo ${HOME} {project_path} 'a b'"})
    assert made.args == ("-c", "echo ${HOME} {project_path} 'a b'", "/t", "/p")


def test_a_parameter_that_the_tool_does_not_declare_is_no_placeholder():
    bash = element("a/bash", config=BASH_CONFIG, config_schema=COMMAND_SCHEMA)
    made = plan(element("a/t", extension=".sh"), bash, parameters={"command": "rm -rf ~"})
    assert made.args == ("/t", "/p")
    assert json.loads(made.stdin) == {"command": "rm -rf ~"}


def test_a_placeholder_that_signed_config_sets_cannot_be_overridden_by_a_parameter():
    tool = element("a/t", config={"command": "echo signed"}, config_schema=COMMAND_SCHEMA)
    bash = element("a/bash", config=BASH_CONFIG, config_schema=COMMAND_SCHEMA)
    made = plan(tool, bash, parameters={"command": "echo caller"})
    assert made.args[:2] == ("-c", "echo signed")
    assert made.command == "/bin/bash"


def test_a_chain_without_a_command_is_refused():
    with pytest.raises(ConfigError, match="names no command"):
        plan(element("a/t"))


def test_a_command_that_becomes_empty_is_refused():
    with pytest.raises(ConfigError, match=r"\$\{RYE_NOBODY\}"):
        plan(element("a/t"), runtime(command="${RYE_NOBODY}"))


def test_args_that_are_no_list_are_refused():
    with pytest.raises(ConfigError, match="not a list"):
        plan(element("a/t"), runtime(args="-x"))


def test_a_nul_in_an_argument_is_refused_and_in_standard_input_it_is_not():
    tool = element("a/t", config_schema=COMMAND_SCHEMA)
    bash = element("a/bash", config=BASH_CONFIG, config_schema=COMMAND_SCHEMA)
    with pytest.raises(InputError, match="NUL"):
        plan(tool, bash, parameters={"command": "a\0b"})
    given = {"command": "true", "x": "a\0b"}
    assert json.loads(plan(tool, bash, parameters=given).stdin) == given


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), b"bytes", object(), {1, 2}, "\ud800", {("a",): 1}]
)
def test_what_is_no_json_is_refused(value):
    with pytest.raises(InputError, match="can't be written as JSON"):
        plan(element("a/t"), runtime(), parameters={"x": value})


def test_a_value_that_is_nested_without_end_is_refused():
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InputError, match="JSON"):
        plan(element("a/t"), runtime(), parameters={"x": endless})


def test_the_resolved_config_is_added_for_the_tool():
    made = plan(element("a/t"), runtime(), parameters={"a": 1}, resolved_config={"b": "{a}"})
    assert json.loads(made.stdin) == {"a": 1, "resolved_config": {"b": "{a}"}}


def test_without_input_data_nothing_is_on_standard_input():
    config = {"command": "/bin/true"}
    assert plan(element("a/t"), element("a/r", config=config)).stdin == b""


def test_the_runtime_may_name_the_working_folder():
    assert plan(element("a/t"), runtime(cwd="{project_path}/sub")).cwd == "/p/sub"


def test_a_plan_shows_names_of_variables_and_no_values_or_parameters():
    made = plan(element("a/t"), runtime(), parameters={"secret": "hunter2"})
    assert "hunter2" not in repr(made) + json.dumps(made.to_dict())
    assert "/h" not in repr(made)
    assert made.to_dict()["env"] == ["HOME"]


def test_defaults_are_filled_in_also_below_and_neither_side_is_changed():
    schema = {
        "properties": {
            "a": {"default": 1},
            "b": {"properties": {"c": {"default": [2]}}},
            "d": True,
        }
    }
    parameters = {"b": {}, "e": None}
    assert with_defaults(schema, parameters) == {"a": 1, "b": {"c": [2]}, "e": None}
    assert parameters == {"b": {}, "e": None}


def test_a_default_never_replaces_a_given_null():
    assert with_defaults({"properties": {"a": {"default": 1}}}, {"a": None}) == {"a": None}
