"""Inline tools on a node: a real one, over HTTP on loopback."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.calls import answer
from ryecore.errors import InputError, ItemNotFound, RemoteError, UnsignedItem
from ryecore.policy import CallContext
from ryecore.policy.reports import ToolLog, ToolProgress, ToolReport
from tests.remotes import connect, name_remote
from tests.served_node import ServedNode
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]


async def test_a_tool_runs_on_the_node_with_a_result_like_a_local_one(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node)
    ref = workspace.python(
        "acme/sum",
        "def execute(params, project_path):\n    return {'sum': params['a'] + params['b']}",
    )
    async with workspace.open() as rye:
        local = await rye.execute(ref, {"a": 1, "b": 2})
        done = await rye.execute(ref, {"a": 1, "b": 2}, target="remote:gpu")
    assert (done.status, done.item_id, done.data) == ("success", ref, {"sum": 3})
    document, same = done.to_dict(), local.to_dict()
    assert document.keys() == same.keys()
    assert document["chain"] == same["chain"]
    assert document["chain_elements"] == same["chain_elements"]  # with the paths of this project
    assert document["metadata"]["remote"] == "gpu"  # type: ignore[index]
    assert "acme/sum" in str(done)


REPORTS = """
report() { printf "$1" > "$RYE_CHANNEL"; }
report '{"progress": 1, "total": 4, "message": "reading"}\\n'
report '{"log": "the last file was empty", "level": "warning"}\\n'
test "${1:-}" = "" || { cat "$1/go"; report '{"progress": 4, "total": 4}\\n'; }
"""


async def test_what_a_tool_reports_on_a_node_comes_home_while_it_runs_and_at_its_end(
    workspace: Workspace, node: ServedNode, tmp_path: Path
) -> None:
    connect(workspace, node)
    os.mkfifo(tmp_path / "go")
    waits = REPORTS.replace("$1/go", f"{tmp_path}/go")
    long, short = (
        workspace.shell(f"acme/{name}", script, reports=True)
        for name, script in (("long", waits), ("short", REPORTS.rpartition("test")[0]))
    )
    reports: list[ToolReport] = []
    events: list[Mapping[str, object]] = []

    def take(report: ToolReport) -> None:
        reports.append(report)
        if isinstance(report, ToolLog) and report.item_id == long:
            (tmp_path / "go").write_text("on")  # the tool waits for it: it runs yet

    ctx = CallContext(report_sink=take, event_sink=events.append)
    async with workspace.open() as rye:
        with anyio.fail_after(30):
            assert (await rye.execute(long, target="remote:gpu", ctx=ctx)).success
        assert reports == [
            ToolProgress(long, ctx.call_id, 1, 4, "reading"),
            ToolLog(long, ctx.call_id, "warning", "the last file was empty"),
            ToolProgress(long, ctx.call_id, 4, 4),
        ]
        steps = [one["step"] for one in events]
        assert [one for one in steps if one in ("progress", "log")] == [
            "progress",
            "log",
            "progress",
        ]
        reports.clear()
        assert (await rye.execute(short, target="remote:gpu", ctx=ctx)).success
    assert [type(one) for one in reports] == [ToolProgress, ToolLog]


async def test_an_unknown_caller_is_refused_with_the_next_step(
    workspace: Workspace, node: ServedNode
) -> None:
    name_remote(workspace, node.url, node.identity.key.public)
    ref = workspace.shell("acme/a", "true")
    async with workspace.open() as rye:
        with pytest.raises(RemoteError, match="rye node allow") as caught:
            await rye.execute(ref, target="remote:gpu")
    assert (caught.value.problem, caught.value.status) == ("unauthorized", 401)
    assert workspace.key.public.fingerprint in str(caught.value.next_step)


async def test_an_error_from_the_node_names_the_folders_at_home_and_the_remote(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node)
    workspace.write("tools/acme/unsigned.sh", "true", sign=False)
    path = workspace.path("tools/acme/unsigned.sh")
    folders = f"project ({workspace.path('tools')}), user ({workspace.path('tools', 'user')}),"
    async with workspace.open() as rye:
        with pytest.raises(ItemNotFound) as missing:
            await rye.execute("tool:acme/missing", target="remote:gpu")
        with pytest.raises(UnsignedItem) as unsigned:
            await rye.execute("tool:acme/unsigned", target="remote:gpu")
    assert f"tool:acme/missing was not found in {folders}" in missing.value.message
    assert unsigned.value.message == f"On gpu: {path} is not signed."
    assert (unsigned.value.path, unsigned.value.remote_name) == (path, "gpu")
    document = unsigned.value.to_dict()
    assert document["metadata"]["remote"] == "gpu"  # type: ignore[index]
    assert str(node.identity.folder) not in str([document, missing.value.to_dict()])


TOKEN = "ghp_" + "0123456789abcdef" * 2 + "abcd"


@pytest.mark.parametrize("space", ["project", "user"])
async def test_an_item_that_never_travels_is_refused_at_home_with_the_rule(
    workspace: Workspace, node: ServedNode, space: Any
) -> None:
    connect(workspace, node)
    ref = workspace.shell("acme/leaky", f"echo {TOKEN}", space=space)
    other = workspace.shell("acme/other", "echo other")
    path = workspace.path("tools/acme/leaky.sh", space)
    async with workspace.open() as rye:
        for options in ({}, {"async_": True}, {"pull": True}):
            done = rye.execute(ref, target="remote:gpu", **options)
            if "async_" in options:
                report = await rye.threads.wait((await done).data["thread_id"])
                told = str(report.error)
            else:
                with pytest.raises(InputError) as refused:
                    await done
                told = str(refused.value)
            assert f"{ref} doesn't travel to gpu" in told
            assert f"has a credential in it: {path}" in told
            assert "rye remote plan" in told
        assert (await rye.execute(other, target="remote:gpu")).success


async def test_a_project_item_stands_before_one_of_user_space_that_never_travels(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node)
    workspace.shell("acme/twice", f"echo {TOKEN}", space="user")
    ref = workspace.shell("acme/twice", "echo clean")
    async with workspace.open() as rye:
        assert (await rye.execute(ref, target="remote:gpu")).success


async def test_a_model_uses_the_target_within_what_it_may(
    workspace: Workspace, node: ServedNode
) -> None:
    connect(workspace, node)
    allowed, other = workspace.shell("acme/allowed", "echo 1"), workspace.shell("acme/no", "echo 2")
    ctx = CallContext(frozenset({"rye.execute.tool.acme.allowed"}))
    async with workspace.open() as rye:
        call = {"item_id": allowed, "target": "remote:gpu"}
        assert (await answer("rye_execute", rye, call, ctx))["status"] == "success"
        refused = await answer("rye_execute", rye, {**call, "item_id": other}, ctx)
        assert "lacks the capability rye.execute.tool.acme.no" in str(refused["error"])
        unknown = await answer("rye_execute", rye, {**call, "target": "remote:no"}, ctx)
        assert "There is no remote 'no'" in str(unknown["error"])


def test_calls_that_block(workspace: Workspace, node: ServedNode) -> None:
    connect(workspace, node)
    ref = workspace.shell("acme/a", "echo 1")
    with workspace.sync() as rye:
        assert rye.remotes.check("remote:gpu").status.max_running > 0
        assert rye.remotes.push().files > 0
        assert rye.execute(ref, target="remote").success
        assert [one.name for one in rye.remotes.list()] == ["gpu"]


@pytest.mark.parametrize("options", [{"trace": True}, {"output_log": "log"}])
async def test_what_a_node_does_not_send_is_refused(
    workspace: Workspace, node: ServedNode, options: dict[str, Any]
) -> None:
    connect(workspace, node)
    async with workspace.open() as rye:
        with pytest.raises(InputError, match="for local calls"):
            await rye.execute("tool:acme/a", target="remote", **options)
