"""Directives' threads over MCP: the official SDK's client in front of a real server."""

import pytest

from tests.mcp_clients import MODES, arguments, said, stdio
from tests.thread_deps import DEPS, furnish
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]
SUM = {"item_id": "directive:acme/sum", "parameters": {"x": 4}, "thread": "fork"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def furnished(workspace: Workspace) -> None:
    furnish(workspace)


@MODES
async def test_a_directive_forks_and_its_steps_are_told(workspace: Workspace, mode: str) -> None:
    told: list[str] = []

    async def tell(_progress: float, _total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with stdio(workspace, "--deps", DEPS, mode=mode) as client:
        done = said(
            await client.call_tool(
                "rye_execute", arguments(workspace, **SUM), progress_callback=tell
            )
        )
    assert (done["state"], done["outputs"]) == ("completed", {"total": 7})
    steps = [one for one in told if one.split(" ")[0] in ("model_call", "tool_call_start")]
    thread_id = done["thread_id"]
    assert steps == [f"model_call {thread_id}", "tool_call_start add", f"model_call {thread_id}"]
    assert not any("sk-" in one for one in told)


async def test_a_model_and_limits_are_the_caller_s_choice(workspace: Workspace) -> None:
    async with stdio(workspace, "--deps", DEPS) as client:
        for more, code in (
            ({"limit_overrides": {"turns": 1}}, "turns_exceeded"),
            ({"model": "elsewhere/m"}, "internal"),
        ):
            done = said(await client.call_tool("rye_execute", arguments(workspace, **SUM, **more)))
            assert (done["status"], done["error_code"]) == ("error", code)
        wrong = said(
            await client.call_tool(
                "rye_execute", arguments(workspace, **SUM, limit_overrides={"turn": 1})
            )
        )
    assert "unknown limit 'turn'" in wrong["error"]


async def test_an_asynchronous_fork_outlives_the_server(workspace: Workspace) -> None:
    async with stdio(workspace, "--deps", DEPS) as client:
        done = said(
            await client.call_tool("rye_execute", arguments(workspace, **SUM, **{"async": True}))
        )
    assert done["state"] == "running"
    async with workspace.open() as rye:
        report = await rye.threads.wait(done["thread_id"], timeout_s=60)
    assert report.status == "completed"
    assert report.to_dict()["result"]["outputs"] == {"total": 7}  # type: ignore[index]


async def test_a_fork_never_may_more_than_the_client(workspace: Workspace) -> None:
    grants = ("--grant", "rye.execute.directive.acme.*")
    async with stdio(workspace, "--deps", DEPS, *grants) as client:
        done = said(await client.call_tool("rye_execute", arguments(workspace, **SUM)))
    assert done["status"] == "success"
    async with workspace.open() as rye:
        shown = await rye.threads.show(done["thread_id"])
    file = (shown.folder / "thread.json").read_text()
    assert '"capabilities": []' in file  # host/add was not the client's


async def test_without_models_the_server_says_what_to_pass(workspace: Workspace) -> None:
    async with stdio(workspace) as client:
        done = said(await client.call_tool("rye_execute", arguments(workspace, **SUM)))
        dry = said(await client.call_tool("rye_execute", arguments(workspace, **SUM, dry_run=True)))
    assert "--deps module:function" in done["error"]
    assert dry["status"] == "validation_passed"
