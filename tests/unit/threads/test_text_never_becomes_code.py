"""What a model wrote, through hooks, graphs, directives and prompts: passed whole, or refused."""

from pathlib import Path
from typing import Any

import pytest

from ryecore.errors import GraphInvalid, MetadataError, PlaceholderInScript
from ryecore.testing import call, say
from tests.house import BASH, House
from tests.stage import Stage, directive
from tests.unit.threads.hooking import hooks, ran

pytestmark = pytest.mark.anyio

HOSTILE = "'; touch x; echo '$(touch x)`touch x`"
SPLICED = (
    "echo '${error.message}' >> err.txt",
    "cat <<E\n${error.message}\nE",
    "${error.message};",
)
NOTED = 'printf %s "$1$NOTE" > noted'


def on_error(params: dict[str, Any], item: str = "rye/bash") -> dict[str, Any]:
    action = {"primary": "execute", "kind": "tool", "item_id": item, "params": params}
    return {"id": "h", "event": "error", "action": action}


def assert_nothing_ran(house: House) -> None:
    assert not [path for path in house.root.rglob("x") if path.is_file()]


@pytest.mark.parametrize("item", ["rye/bash", "acme/sh", "acme/python"])
@pytest.mark.parametrize("script", SPLICED)
async def test_a_hook_with_a_value_within_a_script_is_refused_before_the_thread_runs(
    tmp_path: Path, script: str, item: str
) -> None:
    stage = Stage(tmp_path, say("ok"))
    declared = {"type": "object", "properties": {"command": {"type": "string"}}}
    stage.house.yaml("acme/sh", executor_id=BASH, config_schema=declared)
    stage.house.python(
        "acme/python",
        "import os\ndef execute(params, project_path): os.system(params['command'])",
    )
    hooks(stage, on_error({"command": script}, item))
    with pytest.raises(PlaceholderInScript, match="The hook 'h' on error") as refused:
        await stage.run(stage.write("acme/x"))
    assert "args" in refused.value.next_step
    assert not stage.model.requests
    assert_nothing_ran(stage.house)


@pytest.mark.parametrize(
    "passed", [{"args": ["${error.message}"]}, {"env": {"NOTE": "${error.message}"}}]
)
async def test_a_hook_passes_a_models_words_beside_its_script(
    tmp_path: Path, passed: dict[str, Any]
) -> None:
    stage = Stage(tmp_path, call("rye_execute", {"item_id": HOSTILE}), call("explode"), say("ok"))
    hooks(stage, on_error({"command": NOTED, **passed}))
    done = await stage.run(stage.write("acme/x"))
    assert ran(stage, done.thread_id)[0] == ("h", "error", True)
    assert (stage.house.project / "noted").read_text()
    assert_nothing_ran(stage.house)


GRAPH = {
    "executor_id": "rye/core/runtimes/state-graph/runtime",
    "permissions": ["rye.execute.*"],
    "config_schema": {"type": "object", "properties": {"said": {"type": "string"}}},
}


def graph(house: House, params: dict[str, Any]) -> str:
    action = {"item_id": "tool:rye/bash", "params": params}
    nodes = {"note": {"type": "action", "action": action}}
    config = {"start": "note", "nodes": nodes, "state": {"y": 1}}
    return house.yaml("acme/flow", **GRAPH, config=config)


async def test_a_graph_with_a_value_within_a_script_is_refused(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.open() as rye:
        for script in ("echo ${inputs.said}", "echo '${inputs.said | json}'", "x ${state.y || 1}"):
            ref = graph(house, {"command": script})
            with pytest.raises(GraphInvalid, match="must not be part of a program"):
                await rye.graphs.run(ref, {"said": HOSTILE})
            report = await rye.graphs.validate(ref)
            assert any("must not be part of a program" in one.message for one in report.errors)
    assert_nothing_ran(house)


@pytest.mark.parametrize(
    ("params", "noted"),
    [
        ({"command": NOTED, "args": ["${inputs.said}"]}, HOSTILE),
        ({"command": NOTED, "args": ["<${inputs.said}>"]}, f"<{HOSTILE}>"),
        ({"command": NOTED, "env": {"NOTE": "${inputs.said}"}}, HOSTILE),
    ],
)
async def test_a_graph_passes_a_value_beside_its_script(
    tmp_path: Path, params: dict[str, Any], noted: str
) -> None:
    house = House(tmp_path)
    async with house.open() as rye:
        done = await rye.graphs.run(graph(house, params), {"said": HOSTILE})
    assert done.success, done.error
    assert (house.project / "noted").read_text() == noted
    assert_nothing_ran(house)


async def test_a_graphs_author_may_say_that_a_value_is_the_script(tmp_path: Path) -> None:
    house = House(tmp_path)
    async with house.open() as rye:
        ref = graph(house, {"command": "${inputs.said}"})
        done = await rye.graphs.run(ref, {"said": "printf mine > noted"})
    assert done.success, done.error
    assert (house.project / "noted").read_text() == "mine"


@pytest.mark.parametrize(
    ("script", "is_refused"),
    [
        ("echo {input:said}", True),
        ("echo ${inputs.said}", True),
        ("grep {input:said:none} f", True),
        ("{input:said}", False),
        ("echo", False),
    ],
)
async def test_a_directives_action_with_an_input_within_a_script_is_refused(
    tmp_path: Path, script: str, is_refused: bool
) -> None:
    house = House(tmp_path)
    action = (
        '<process><step><action primary="execute" item_type="tool" item_id="rye/bash">'
        f'<param name="command">{script}</param></action></step></process>'
    )
    text = directive("x").replace("</directive>", f"{action}</directive>")
    house.write("directives/acme/x.md", text)
    ref = "directive:acme/x"
    if is_refused:
        async with house.open() as rye:
            with pytest.raises(MetadataError, match="must not be part of a program"):
                await rye.execute(ref)
    else:
        async with house.open() as rye:
            assert (await rye.execute(ref)).success
