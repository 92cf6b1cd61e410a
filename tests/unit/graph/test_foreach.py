"""A foreach that meets what nothing passes over: the error itself comes out, and the others end."""

import anyio
import pytest

from ryecore.agent.outcome import NodeOutcome
from ryecore.graph.walk.foreach import for_each
from tests.graphs import ALL_OF_ACME, graph
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.mark.parametrize("at_once", [1, 3])
async def test_what_a_call_raises_is_raised_by_itself_and_ends_the_others(at_once: int) -> None:
    called: list[int] = []

    async def call(index: int, member: object) -> NodeOutcome:
        called.append(index)
        if index == 0:
            raise LookupError("nothing is as it was")
        await anyio.sleep_forever()
        return NodeOutcome("completed")

    with anyio.fail_after(10), pytest.raises(LookupError, match="nothing is as it was"):
        await for_each(range(5), call, at_once=at_once, stops_at_error=False)
    assert len(called) <= at_once


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_tool_that_was_altered_ends_the_run_whatever_the_graph_does_about_errors(
    workspace: Workspace, parallel: bool
) -> None:
    workspace.python("acme/double", "def execute(params, project):\n    return params['n'] * 2")
    altered = workspace.path("tools/acme/double.py")
    altered.write_text(altered.read_text().replace("* 2", "* 3"))
    nodes = {
        "each": {
            "type": "foreach",
            "over": [1, 2, 3],
            "as": "n",
            "parallel": parallel,
            "action": {"item_id": "tool:acme/double", "params": {"n": "${n}"}},
            "next": "done",
            "on_error": "done",
        },
        "done": {"type": "return", "output": "passed over"},
    }
    ref = graph(workspace, nodes, permissions=(ALL_OF_ACME,), on_error="continue")
    async with workspace.open() as rye:
        done = await rye.graphs.run(ref)
    assert (done.ended, done.output) == ("error", None)
    assert done.failed is not None
    assert (done.failed.node, done.failed.code) == ("each", "integrity")
    assert "was changed after the key" in done.failed.message
