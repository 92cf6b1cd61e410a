"""What the plans of one chain have in common is made once, and each is what it would be alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ryecore.chain.plan import PlanInputs, build_plan
from ryecore.errors import RyeError, UnresolvedPlaceholder
from ryecore.policy import CallContext
from tests.workspace import Workspace

PARAMETERS: list[dict[str, Any]] = [{}, {"n": 1}, {"text": "{tool_path} ${HOME} é"}, {"n": [None]}]

SCHEMA = """
CONFIG_SCHEMA = {"type": "object", "properties": {"n": {"default": 7}, "command": {}}}
"""


def tools(workspace: Workspace) -> list[str]:
    asked = {"type": "object", "properties": {"text": {"type": "string"}}}
    stdin = "{params_json}"
    return [
        workspace.python(
            "acme/python", SCHEMA + "def execute(params, project_path): return params"
        ),
        workspace.yaml("acme/argv", config={"command": "/bin/echo", "args": [stdin], "timeout": 9}),
        workspace.yaml(
            "acme/nested",
            config={
                "command": "/bin/echo",
                "args": ["{all}"],
                "all": f"<{stdin}>",
                "input_data": stdin,
            },
        ),
        workspace.yaml(
            "acme/again",
            config={"command": "/bin/echo", "args": ["{input_data}"], "input_data": stdin},
        ),
        workspace.yaml(
            "acme/named",
            config_schema=asked,
            config={"command": "/bin/echo", "args": ["{text}"], "input_data": stdin},
        ),
        workspace.yaml(
            "acme/some",
            config={"command": "/bin/cat", "args": ["{nobody}"], "input_data": stdin},
        ),
    ]


@pytest.mark.anyio
async def test_each_plan_is_as_if_it_were_made_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    refs = tools(workspace)
    async with workspace.open() as rye:
        for ref in refs:
            prepared = await rye._parts.execute.inspect(rye._parts.execute._ref(ref), CallContext())
            planner = prepared.planner
            for parameters in PARAMETERS:
                for timeout_s in (None, 2.5):
                    unknown: tuple[set[str], set[str]] = (set(), set())
                    plan = _outcome(
                        planner.plan, parameters, timeout_s, unknown[0], {"RYE_CALL_ID": "1"}
                    )
                    alone = _outcome(_alone, planner, parameters, timeout_s, unknown[1])
                    assert plan == alone, (ref, parameters)
                    assert unknown[0] == unknown[1]
            with pytest.raises(RyeError):
                planner.plan({"n": {1, 2}}, None, set(), {})


def _outcome(make: Callable[..., Any], *arguments: Any) -> Any:
    """What a planner makes, or the text of its refusal."""
    try:
        return make(*arguments)
    except UnresolvedPlaceholder as refused:
        return str(refused)


def _alone(planner: Any, parameters: Any, timeout_s: float | None, unknown: set[str]) -> Any:
    one = planner._inputs
    inputs = PlanInputs(
        parameters, one.context, one.env, one.cwd, one.resolved_config, timeout_s, warm=one.warm
    )
    return build_plan(planner._chain, inputs, planner._deps, unknown)


@pytest.mark.anyio
async def test_parameters_reach_each_call(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    ref = workspace.python("acme/echo", "def execute(params, project_path): return params")
    async with workspace.open(warm_memory_mib=0) as rye:
        for parameters in PARAMETERS:
            assert (await rye.execute(ref, parameters)).data == parameters, json.dumps(parameters)
