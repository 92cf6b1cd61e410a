"""A process that is ryecore itself, no tool: only our bundle starts one, and nobody steers it."""

import itertools
import json
from typing import Any

import pytest
from attrs import evolve

from ryecore.chain.builder import ChainValidator
from ryecore.chain.elements import ChainElement
from ryecore.chain.plan import PlanInputs, build_plan
from ryecore.errors import IncompatibleChain
from ryecore.graph.model import GRAPH_RUNTIME
from ryecore.items.spaces import SpaceName, built_in_space
from tests.unit.chain.elements import chain, element, valid
from tests.workspace import Workspace

CONFIG = {"command": "/bin/walk", "args": ["{tool_path}"], "input_data": "{call_json}",
          "timeout": 600}  # fmt: skip


def ours(**declared: Any) -> ChainElement:
    """A runtime of ryecore's own bundle."""
    made = element("a/ours", "system", own_process=True, config=CONFIG, **declared)
    assert made.item is not None
    source = evolve(made.item.source, space=built_in_space())
    return evolve(made, item=evolve(made.item, source=source))


def problems_of(*elements: ChainElement) -> str:
    """The refusal's text; empty where the chain is fine."""
    try:
        ChainValidator().validate_chain(chain(*elements))
    except IncompatibleChain as refusal:
        return refusal.message
    return ""


@pytest.mark.parametrize("space", ["project", "user", "system"])
def test_only_the_built_in_bundle_may_ask_for_one(space):
    theirs = element("a/theirs", space, own_process=True, config=CONFIG)
    assert "'a/theirs' declares own_process, which only" in problems_of(element("a/t"), theirs)
    assert not problems_of(element("a/t"), ours())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("env_config", {"env": {"LD_PRELOAD": "/evil.so"}}),
        ("env_config", {"interpreter": {"type": "own", "var": "X"}}),
        ("anchor", {"enabled": True, "env_paths": {"PYTHONPATH": {"prepend": ["{tool_dir}"]}}}),
        ("verify_deps", {"enabled": False}),
    ],
)
def test_what_could_steer_it_is_refused_in_the_tool(key, value):
    said = problems_of(element("a/t", **{key: value}), ours())
    assert f"'a/t' declares {key}, which 'a/ours' does not take" in said


@pytest.mark.parametrize(
    ("role", "space"),
    [
        *itertools.product(["tool", "runtime", "graph"], ["project", "user", "system"]),
        ("shadow", "project"),  # another bundle can't shadow the built-in one: it comes behind it
        ("shadow", "user"),
    ],
)
def test_no_item_that_others_sign_runs_with_the_environment_of_the_host(
    workspace: Workspace, role: str, space: SpaceName
) -> None:
    """`system` is another bundle. Whichever way an item asks, nothing starts."""
    workspace.environ["ACME_API_KEY"] = "s3cret"
    found = workspace.root / "found"
    config = {"command": "/bin/sh", "args": ["-c", f"env > {found}"], "input_data": "{call_json}"}
    nodes = {"start": "a", "nodes": {"a": {"action": {"item_id": "tool:rye/bash"}}}}
    if role == "tool":
        workspace.yaml("acme/t", space=space, own_process=True, config=config)
    elif role == "runtime":
        workspace.yaml("acme/r", space=space, own_process=True, config=config)
        workspace.yaml("acme/t", space=space, executor_id="acme/r")
    elif role == "shadow":  # of our own runtime, by its name
        workspace.yaml(GRAPH_RUNTIME, space=space, own_process=True, config=config)
        workspace.yaml("acme/t", space=space, executor_id=GRAPH_RUNTIME, config=nodes)
    else:  # a graph on our own runtime, which says how its process starts
        steering = {"env": {"BASH_ENV": str(found), "LD_PRELOAD": str(found)}}
        workspace.yaml(
            "acme/t",
            space=space,
            executor_id=GRAPH_RUNTIME,
            own_process=True,
            env_config=steering,
            config={**nodes, **config},
        )
    with pytest.raises(IncompatibleChain, match=r"own_process|env_config|cannot") as refused:
        workspace.execute("tool:acme/t")
    assert "s3cret" not in str(refused.value.to_dict())
    assert not found.exists()


def test_it_is_neither_called_itself_nor_stands_behind_another_runtime():
    assert "executes one tool directly" in problems_of(ours())
    assert "executes one tool directly" in problems_of(element("a/t"), element("a/r"), ours())


def plan(tool: ChainElement, runtime: ChainElement, parameters: dict[str, object]):
    given = PlanInputs(parameters=parameters, context={"tool_path": "/t"}, env={}, cwd="/p")
    unknown: set[str] = set()
    return build_plan(valid(tool, runtime), given, "none", unknown), unknown


def test_it_is_told_what_was_verified_and_the_parameters():
    made, unknown = plan(element("a/t"), ours(), {"digest": "mine", "x": "{call_json}"})
    told = json.loads(made.stdin)
    assert told == {"digest": "0" * 64, "parameters": {"digest": "mine", "x": "{call_json}"}}
    assert not unknown


def test_a_tool_sets_its_bounds_and_nothing_else():
    steering = {
        "command": "/bin/sh",
        "args": ["x"],
        "cwd": "/",
        "input_data": "no",
        "keep_warm": "k",
    }
    tool = element("a/t", config={**steering, "timeout": 7, "max_output_bytes": 9})
    made, _ = plan(tool, ours(), {})
    assert (made.command, made.args, made.cwd, made.keep) == ("/bin/walk", ("/t",), "/p", None)
    assert json.loads(made.stdin)["parameters"] == {}
    assert (made.timeout_s, made.max_output_bytes) == (7, 9)


def test_the_placeholder_means_nothing_to_another_runtime():
    made, unknown = plan(element("a/t"), element("a/r", config=CONFIG), {"call_json": "mine"})
    assert (made.stdin, unknown) == (b"{call_json}", {"call_json"})
