"""Tools that report and ask, called by models in threads, by graphs, and in JavaScript."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ryecore import CallContext
from ryecore.errors import IncompatibleChain
from ryecore.results import ToolLog, ToolProgress, ToolQuestion
from ryecore.testing import call, say
from tests.graphs import graph
from tests.scripted_host import ScriptedHost
from tests.unit.chain.test_channel import HELPER
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

ASKS = f"""{HELPER}
def execute(params, project_path):
    say(log="it begins")
    return ask("elicit", "name", message="Who?")
"""


class Caller:
    def __init__(self) -> None:
        self.reports: list[ToolProgress | ToolLog] = []
        self.questions: list[ToolQuestion] = []

    async def ask(self, question: ToolQuestion, /) -> Mapping[str, object]:
        self.questions.append(question)
        return {"action": "accept", "content": {"name": "Ada"}}

    @property
    def context(self) -> CallContext:
        return CallContext(report_sink=self.reports.append, ask=self.ask)


TOOL = "<execute><tool>acme/asks</tool></execute>"
ASK = '<ask><elicit>acme/*</elicit></ask><acknowledge risk="elevated">It asks.</acknowledge>'


@pytest.mark.parametrize("permissions", [TOOL + ASK, TOOL], ids=["granted", "not granted"])
async def test_a_tool_of_a_thread_asks_the_threads_caller(tmp_path: Path, permissions: str) -> None:
    host, caller = ScriptedHost(tmp_path, call("acme_asks", {}), say("Done.")), Caller()
    host.workspace.python("acme/asks", ASKS, reports=True, may_ask=["elicit"], description="Asks.")
    ref = host.write("acme/talk", permissions=permissions)
    done = await host.run(ref, ctx=caller.context)
    assert done.success
    assert [one.data for one in caller.reports if isinstance(one, ToolLog)] == ["it begins"]
    shown = str(host.model.requests[-1].messages)
    if ASK in permissions:
        assert "Ada" in shown
        assert [one.item_id for one in caller.questions] == ["tool:acme/asks"]
    else:
        assert "lacks the capability rye.ask.elicit.acme.asks" in shown
        assert caller.questions == []


async def test_a_tool_of_a_graph_asks_the_graphs_caller(workspace: Workspace) -> None:
    caller = Caller()
    workspace.python("acme/asks", ASKS, reports=True, may_ask=["elicit"])
    nodes = {
        "ask": {"action": {"item_id": "tool:acme/asks"}, "assign": {"said": "${result.result}"},
                "next": "done"},
        "done": {"type": "return", "output": "${state.said}"},
    }  # fmt: skip
    granted = ("rye.execute.tool.acme.asks", "rye.ask.elicit.acme.asks")
    ref = graph(workspace, nodes, permissions=granted)
    async with workspace.open() as rye:
        done = await rye.graphs.run(ref, {}, ctx=caller.context)
    assert done.success, done.error
    assert "Ada" in str(done.to_dict())
    assert [one.kind for one in caller.questions] == ["elicit"]
    assert len(caller.reports) == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed here")
async def test_a_tool_in_javascript_reports_and_asks(workspace: Workspace) -> None:
    caller = Caller()
    workspace.write("tools/acme/package.json", "{}")
    workspace.write(
        "tools/acme/asks.js",
        """const __executor_id__ = "rye/core/runtimes/node/node";
const __reports__ = true;
const __may_ask__ = ["elicit"];
const fs = require("node:fs");
const say = (line) => fs.appendFileSync(process.env.RYE_CHANNEL, JSON.stringify(line) + "\\n");
say({progress: 1, total: 2});
say({ask: "elicit", id: 1, params: {message: "Who?"}});
const answers = fs.openSync(process.env.RYE_ANSWERS);
const bytes = Buffer.alloc(65536);
console.log(bytes.toString("utf8", 0, fs.readSync(answers, bytes)));
""",
    )
    async with workspace.open() as rye:
        done = await rye.execute("tool:acme/asks", ctx=caller.context)
    data: Any = done.data
    assert data["result"]["content"] == {"name": "Ada"}
    assert [type(one) for one in caller.reports] == [ToolProgress]


async def test_a_process_that_is_kept_for_later_calls_has_no_channel(workspace: Workspace) -> None:
    ref = workspace.shell("acme/kept", "true", reports=True, config={"keep_warm": "x"})
    async with workspace.open() as rye:
        with pytest.raises(IncompatibleChain, match="declares reports or may_ask"):
            await rye.execute(ref)
