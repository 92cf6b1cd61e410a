"""Tests of directives and graphs on a node: their events, files, costs, ends and recovery."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from ryecore import AgentRunnerDeps
from ryecore.llm.cost import Price
from ryecore.llm.parts import ToolResultPart
from ryecore.llm.result import Usage
from ryecore.node.events import NodeEvent
from ryecore.node.files import cost_of
from ryecore.remote.protocol.models import CancelBody, Ceiling
from ryecore.testing import FunctionProvider, ScriptedProvider, call, say
from tests.node_host import DirectNode, direct_node
from tests.scripted_host import directive
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

USAGE = Usage(1000, 100)
PRICE = Price("1", "5")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    made.write("directives/acme/ask.md", directive("ask", "Say hello.", permissions=""))
    return made


def deps(provider: Any) -> AgentRunnerDeps:
    return AgentRunnerDeps(
        resolve_provider=lambda _: provider, key_for=lambda _: "sk-1", price_of=lambda *_: PRICE
    )


async def events_of(node: DirectNode, thread_id: str, after: int = 0) -> list[NodeEvent]:
    return [one async for one in node.runs.events(node.caller, thread_id, after)]


async def test_a_directive_s_thread_runs_and_comes_home(
    workspace: Workspace, tmp_path: Path
) -> None:
    provider = ScriptedProvider([say("Hello!")], usage=USAGE)
    async with direct_node(workspace, tmp_path / "node", agent=deps(provider)) as node:
        body = node.body("directive:acme/ask", ceiling=Ceiling(10**8, 500_000), collect=True)
        state = await node.send(body)
        report = node.report(state)
        assert report.changes == ()
        assert (report.status, report.result["result"]) == ("completed", "Hello!"), str(
            report.result
        )
        assert report.cost.spend_microcents == 1000 * 100 + 100 * 500
        assert (report.cost.turns, report.cost.tokens, report.assumed) == (1, 1100, False)
        assert report.node_thread_id == state.node_thread_id is not None
        content = node.content.of(node.caller)
        files = {one.name: content.open(one.sha256).read() for one in report.files}
        assert set(files) == {"transcript.jsonl", "thread.json", "capabilities.md", "export.md"}
        assert report.transcript is not None
        assert 0 < report.transcript.offset < len(files["transcript.jsonl"])
        assert json.loads(files["thread.json"])["thread_id"] == report.node_thread_id
        events = await events_of(node, "one")
        assert [one.id for one in events] == sorted({one.id for one in events})
        assert (events[0].event, events[-1].data["status"]) == ("status", "completed")
        types = [one.data["event_type"] for one in events if one.event == "run"]
        assert types[0] == "thread_started"
        assert types[-2:] == ["thread_completed", "checkpoint"]
        (tree,) = [one.data for one in events if one.event == "tree"]
        assert (tree["status"], tree["thread_id"]) == ("completed", report.node_thread_id)
        assert await events_of(node, "one", events[2].id) == events[3:]
    async with direct_node(workspace, tmp_path / "node", agent=deps(provider)) as node:
        assert await events_of(node, "one", events[2].id) == events[3:]
        assert await node.send(body) == state
    assert len(provider.requests) == 1


async def test_a_run_is_followed_cancelled_and_killed(workspace: Workspace, tmp_path: Path) -> None:
    asked = anyio.Event()

    async def wait(_: object) -> str:
        asked.set()
        await anyio.sleep_forever()
        return ""

    provider = FunctionProvider(wait, usage=USAGE)
    async with direct_node(workspace, tmp_path / "node", agent=deps(provider)) as node:
        for thread_id, kill, ended in (("a", False, "cancelled"), ("b", True, "killed")):
            asked = anyio.Event()
            state = await node.send(node.body("directive:acme/ask", thread_id, wait_s=0))
            assert (state.status, state.report) == ("running", None)
            seen: list[NodeEvent] = []
            async with anyio.create_task_group() as group:

                async def follow(thread_id: str = thread_id, seen: Any = seen) -> None:
                    async for one in node.runs.events(node.caller, thread_id):
                        seen.append(one)

                group.start_soon(follow)
                await asked.wait()
                await node.runs.cancel(node.caller, thread_id, CancelBody(kill=kill))
                state = await node.runs.state(node.caller, thread_id, 30)
            assert node.report(state).status == ended == seen[-1].data["status"]


async def test_the_ceiling_and_the_quota_bound_what_is_spent(
    workspace: Workspace, tmp_path: Path
) -> None:
    provider = ScriptedProvider([say("Hello!")], usage=USAGE)
    async with direct_node(workspace, tmp_path / "node", agent=deps(provider)) as node:
        low = node.body("directive:acme/ask", "low", ceiling=Ceiling(10, 500_000))
        report = node.report(await node.send(low))
        assert (report.status, report.result["error_code"]) == ("error", "spend_exceeded")
        assert provider.requests == []
        bounded = evolve(node.caller, max_spend_microcents=10**6)
        with pytest.raises(Exception, match="this run may spend") as refused:
            await node.send(node.body("directive:acme/ask", ceiling=Ceiling(10**7, 9)), bounded)
        assert refused.value.problem.status == 429  # type: ignore[attr-defined]
        await node.send(
            node.body("directive:acme/ask", "x", ceiling=Ceiling(10**6, 500_000)), bounded
        )
        with pytest.raises(Exception, match="more here"):
            await node.send(
                node.body("directive:acme/ask", "y", ceiling=Ceiling(10**6, 500_000)), bounded
            )


async def test_a_thread_that_leaves_more_than_there_is_room_for_still_tells_its_cost(
    workspace: Workspace, tmp_path: Path
) -> None:
    provider = ScriptedProvider([say("Hello!")], usage=USAGE)
    async with direct_node(workspace, tmp_path / "node", agent=deps(provider)) as node:
        body = node.body("directive:acme/ask", ceiling=Ceiling(10**8, 500_000))
        content = node.content.of(node.caller)
        snapshot = content.snapshot(body.snapshot)
        assert snapshot is not None
        space_bytes = sum(cost_of(one.size_bytes) for one in snapshot.files)
        full = evolve(node.caller, max_bytes=content.quota.used_bytes + space_bytes + 2_000)
        report = node.report(await node.send(body, full))
        assert (report.status, report.result["result"]) == ("completed", "Hello!")
        assert (report.cost.spend_microcents, report.files) == (150_000, ())


async def test_a_thread_never_holds_more_than_its_caller(
    workspace: Workspace, tmp_path: Path
) -> None:
    allowed = directive("wide", permissions="<execute><tool>*</tool></execute>")
    workspace.write("directives/acme/wide.md", allowed)
    workspace.shell("acme/mine", "echo mine")
    workspace.shell("other/theirs", "echo $((40 + 2))")
    calls = [
        call("rye_execute", {"item_id": f"tool:{name}"}, call_id=name)
        for name in ("acme/mine", "other/theirs")
    ]
    provider = ScriptedProvider([calls[0] + calls[1], say("done")], usage=USAGE)
    async with direct_node(workspace, tmp_path / "node", agent=deps(provider)) as node:
        scopes = ("rye.execute.directive.*", "rye.execute.tool.acme.*", "rye.sign.tool.acme.mine")
        narrow = evolve(node.caller, scopes=scopes)
        report = node.report(await node.send(node.body("directive:acme/wide"), narrow))
        assert report.status == "completed", report.result
    said = {
        part.call_id: part.text
        for message in provider.requests[-1].messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    }
    assert "mine" in said["acme/mine"]
    assert "42" not in said["other/theirs"]


async def test_a_run_never_signs(workspace: Workspace, tmp_path: Path) -> None:
    signing = directive("signing", permissions="<sign><tool>acme/mine</tool></sign>")
    workspace.write("directives/acme/signing.md", signing)
    workspace.write("tools/acme/mine.sh", "echo mine\n", sign=False)
    asks = call("rye_sign", {"item_id": "tool:acme/mine"}, call_id="asks")
    provider = ScriptedProvider([asks, say("done")], usage=USAGE)
    async with direct_node(workspace, tmp_path / "node", agent=deps(provider)) as node:
        scopes = ("rye.*", "rye.sign.tool.acme.mine")
        broad = evolve(node.caller, scopes=scopes)
        body = node.body("directive:acme/signing", capabilities=scopes, collect=True)
        report = node.report(await node.send(body, broad))
    (said,) = [
        part.text
        for message in provider.requests[-1].messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    ]
    assert "rye.sign.tool.acme.mine" in said or "rye_sign" in said, said
    assert report.changes == ()
