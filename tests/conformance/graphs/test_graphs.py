"""A graph comes to the same whether the host walks it or a child process does."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

import anyio
import pytest

from ryecore import Rye
from ryecore.chain.primitives import EFFECT_UNKNOWN
from ryecore.errors import RyeError
from tests.conformance.graphs.cases import CASES, Case
from tests.detached import PATIENCE_S, until_printed
from tests.graphs import graph
from tests.matrix import in_turn
from tests.thread_deps import DEPS, deps, furnish
from tests.workspace import Workspace

# How a fresh interpreter walks, `tests/integration/test_graph_child.py` shows.
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

Way = Literal["here", "child"]

ADD = "def execute(params, project):\n  return {'sum': params['a'] + params['b']}"
POSITIVE = """def execute(params, project):
  if params['n'] < 0:
    return {'success': False, 'error': f"{params['n']} is below zero"}
  return params"""
FLAKY = """from pathlib import Path
def execute(params, project):
  tried = Path(params['place'], 'tried')
  count = len(tried.read_text()) + 1 if tried.exists() else 1
  tried.write_text('x' * count)
  if count <= params['fails']:
    return {'success': False, 'error': f'try {count} failed'}
  return {'tries': count}"""


def furnished(workspace: Workspace) -> Workspace:
    """A workspace with the tools that the cases call."""
    furnish(workspace)
    workspace.python("acme/add", ADD)
    workspace.python("acme/positive", POSITIVE)
    workspace.python("acme/flaky", FLAKY)
    workspace.shell("acme/echo", "cat")
    workspace.shell("acme/bad", "echo 'oh no' >&2; exit 3")
    workspace.python(
        "acme/sleep", "import time\ndef execute(params, project): time.sleep(params['s'])"
    )
    unsigned = "# __executor_id__ = 'rye/core/runtimes/bash/bash'\ntrue"
    workspace.write("tools/acme/unsigned.sh", unsigned, sign=False)
    inner = {
        "add": {"action": {"item_id": "tool:acme/add",
                           "params": {"a": "${inputs.n}", "b": "${inputs.n}"}},
                "assign": {"twice": "${result.sum}"}, "next": "done"},
        "done": {"type": "return", "output": {"doubled": "${state.twice}"}},
    }  # fmt: skip
    graph(workspace, inner, "acme/inner", state={"twice": 0})
    return workspace


async def walked(
    rye: Rye, way: Way, ref: str, inputs: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """What comes of a graph: its status, its document.

    What the host is told by an exception, a child says in its document.
    """
    try:
        done = await (rye.graphs.run(ref, inputs) if way == "here" else rye.execute(ref, inputs))
    except RyeError as error:
        return "refused", {"success": False, "error": str(error)}
    assert isinstance(done.data, Mapping)
    assert (done.status == "success") == done.data["success"]
    assert done.error == done.data.get("error")
    is_refused = "steps" not in done.data
    return "refused" if is_refused else str(done.data["status"]), done.data


def compared(document: Mapping[str, Any], place: str) -> Any:
    """A document without what differs from run to run."""
    kept = {key: value for key, value in document.items() if key != "graph_run_id"}
    text = json.dumps(kept, sort_keys=True).replace(place, "PLACE")
    text = re.sub(r"(longer than its [0-9.]+ s): [^\"]*", r"\1", text)
    return json.loads(re.sub(r"(acme/\w+/\w+)-\d+(-\w{8})?", r"\1-RUN", text))


@pytest.mark.parametrize(
    ("case", "anyio_backend"),
    [
        pytest.param(case, loop, id=f"{case.name} {loop}")
        for case, loop in in_turn(CASES, ["asyncio", "trio"])
    ],
)
async def test_it_comes_to_the_same_both_ways(workspace: Workspace, case: Case) -> None:
    ref = graph(furnished(workspace), case.nodes, **{**case.declared, **case.config})
    found: dict[str, Any] = {}
    ways: tuple[Way, ...] = ("here", "child")
    async with workspace.open(**deps(), deps_factory=DEPS) as rye:
        for way in ways:
            place = workspace.root / way
            place.mkdir()
            own = {} if "inputs" in case.declared else {"place": str(place)}
            inputs = {**case.inputs, **own}
            status, document = await walked(rye, way, ref, inputs)
            assert status == case.status, (way, document)
            if case.status == "refused":
                assert case.error in document["error"]
                continue
            expect(case, document)
            found[way] = compared(document, str(place))
    assert found.get("here") == found.get("child")


def expect(case: Case, document: Mapping[str, Any]) -> None:
    """What a case says of the document."""
    if document["success"]:
        assert document["output"] == case.output
    else:
        assert case.error in document["error"]
        assert document["node"] == (case.node or document["node"])
    assert case.steps in (None, document["steps"])
    assert document.get("errors_suppressed", 0) == case.suppressed


async def test_what_one_way_remembers_the_other_knows(workspace: Workspace) -> None:
    nodes = {
        "once": {"action": {"item_id": "tool:acme/flaky",
                            "params": {"place": "${inputs.place}", "fails": 0}},
                 "cache_result": True, "assign": {"got": "${result}"}, "next": "done"},
        "done": {"type": "return", "output": "${state.got}"},
    }  # fmt: skip
    ref = graph(furnished(workspace), nodes, state={"got": None})
    async with workspace.open() as rye:
        for way in ("child", "here", "child"):
            _, document = await walked(rye, way, ref, {"place": str(workspace.root)})
            assert document["output"] == {"tries": 1}
    assert (workspace.root / "tried").read_text() == "x"


@pytest.mark.parametrize("way", ["here", "child"])
async def test_a_cancel_is_honoured_inside_a_long_foreach(workspace: Workspace, way: Way) -> None:
    mark = workspace.root / "mark"
    workspace.shell("acme/hang", f"echo $$ begun >> {mark}\nexec sleep 300")
    nodes = {
        "each": {"type": "foreach", "over": "${inputs.list}", "parallel": True,
                 "action": {"item_id": "tool:acme/hang"}, "next": "done"},
        "done": {"type": "return", "output": "never"},
    }  # fmt: skip
    ref, run_id, found = graph(workspace, nodes), "", list[Any]()
    async with workspace.open() as rye:

        async def run() -> None:
            found.append(await walked(rye, way, ref, {"list": list(range(1000))}))

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await until_printed(mark, "begun\n")
                run_id = (await rye.threads.list())[0].thread_id
                await rye.threads.cancel(run_id)
        report = await rye.threads.show(run_id)
    status, document = found[0]
    assert (status, report.status) == ("cancelled", "cancelled")
    assert compared(document, str(workspace.root)) == {
        "success": False, "status": "cancelled",
        "error": f"The run was cancelled.\n{EFFECT_UNKNOWN}", "effect_unknown": True,
        "error_code": "cancelled", "node": "each", "state": {}, "steps": 0,
    }  # fmt: skip
    assert len(mark.read_text().splitlines()) <= 10
