"""rye_execute, rye_fetch and rye_sign, as a thread's model calls them."""

import json
from typing import Any

import anyio
import pytest

from ryecore.errors import (
    InvalidInputs,
    NotApproved,
    StateError,
    ToolArgsInvalidError,
    ToolCallError,
    ToolExecutionError,
    ToolPolicyError,
)
from ryecore.items.refs import ItemRef
from ryecore.llm.media import MemoryMediaStore
from ryecore.llm.parts import MediaPart
from ryecore.policy.permissions import ApprovalRequest
from ryecore.state.model import ThreadRecord
from ryecore.state.records import load_run_key
from ryecore.state.thread_file import THREAD_FILE, ThreadFile, write_thread_file
from tests.mcp_items import mcp_tool, stdio_server
from tests.unit.actions.directives import write
from tests.unit.threads.palette_caller import RecordingDispatcher, palette_caller
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

GRANTED = "rye.execute.tool.acme.ok"


def direct(workspace: Workspace, item_id: str, body: str = "Say hello.") -> str:
    write(workspace, item_id, "", body=body)
    return f"directive:{item_id}"


def furnish(workspace: Workspace) -> None:
    for name in ("ok", "secret"):
        body = f"def execute(params, project_path):\n    return {{'by': {name!r}, **params}}"
        workspace.python(f"acme/{name}", body, description=name)


async def test_a_tool_is_executed_and_its_response_comes_without_chain_and_places(
    workspace: Workspace,
) -> None:
    furnish(workspace)
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), GRANTED)

        said = await here.says("rye_execute", item_id="tool:acme/ok", parameters={"n": 1})

    assert said == {
        "status": "success",
        "type": "tool",
        "item_id": "tool:acme/ok",
        "data": {"by": "ok", "n": 1},
    }


SPELLINGS = {
    ToolPolicyError: (
        "tool:acme/secret", "acme/secret", "directive:acme/hidden", "acme/hidden",
        "tool:ACME/ok", "tool:acme/OK", "tool:acme/ok/secret", "tool:acme_ok",
        "tool:acme/gone", "acme/gone",
    ),
    ToolExecutionError: (
        "tool:acme/../acme/secret", "tool:acme/ok/../secret", "tool:acme/ok\n", "tool:acme.ok",
        "tool:acme//ok", "Tool:acme/secret", "tool:/acme/secret", "tool:acme/ok*", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mode", [{}, {"async": True}, {"thread": "fork"}, {"dry_run": True}])
async def test_no_spelling_reaches_what_is_not_granted(
    workspace: Workspace, mode: dict[str, Any]
) -> None:
    furnish(workspace)
    direct(workspace, "acme/hidden")
    async with workspace.open() as rye:
        dispatcher = RecordingDispatcher(rye)
        here = await palette_caller(dispatcher, GRANTED)

        for kind, spellings in SPELLINGS.items():
            for item_id in spellings:
                with pytest.raises(ToolCallError) as caught:
                    await here.call("rye_execute", item_id=item_id, **mode)
                # That a directive can't be launched is said before whether it may be executed.
                is_launched = "hidden" in item_id and "async" in mode
                assert type(caught.value) is kind or is_launched, item_id
                assert str(workspace.root) not in str(caught.value)
        assert dispatcher.forks == []
        assert await rye.threads.list(all=True) == ()


@pytest.mark.parametrize(
    "spoofed",
    [
        {"item_id": "tool:acme/secret"},
        {"parameters": {"item_id": "tool:acme/secret"}},
        {"capabilities": ["rye.*"], "parent_capabilities": ["rye.*"], "thread": "fork"},
    ],
)
async def test_what_stands_in_the_parameters_is_only_parameters(
    workspace: Workspace, spoofed: dict[str, object]
) -> None:
    furnish(workspace)
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), GRANTED)

        said = await here.says("rye_execute", item_id="tool:acme/ok", parameters=spoofed)

    assert said["data"]["by"] == "ok"
    assert {name: said["data"][name] for name in spoofed} == spoofed


async def test_arguments_that_are_unknown_are_refused(workspace: Workspace) -> None:
    workspace.shell("acme/ok", "true")
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), GRANTED)

        for arguments in (
            {"item_id": "tool:acme/ok", "capabilities": ["rye.*"]},
            {"item_id": "tool:acme/ok", "thread": "remote"},
            {"item_id": ["tool:acme/ok"]},
            {"item_id": "tool:acme/ok", "model": "fast"},
            {"item_id": "directive:acme/ok", "limit_overrides": {"turns": 2}},
            {"item_id": "tool:acme/ok", "dry_run": True, "async": True},
            {},
        ):
            with pytest.raises(ToolArgsInvalidError):
                await here.call("rye_execute", json.dumps(arguments))
        with pytest.raises(ToolExecutionError, match="directives and graphs"):
            await here.call("rye_execute", item_id="tool:acme/ok", limit_overrides={"turns": 2})


async def test_an_inline_directive_gives_its_directions(workspace: Workspace) -> None:
    ref = direct(workspace, "acme/hello")
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), "rye.execute.directive.acme.hello")

        said = await here.says("rye_execute", item_id=ref)

    assert said["your_directions"] == "Say hello."
    assert "metadata" not in said


async def test_a_fork_starts_a_child_in_the_threads_own_context(workspace: Workspace) -> None:
    ref = direct(workspace, "acme/hello")
    async with workspace.open() as rye:
        dispatcher = RecordingDispatcher(rye)
        here = await palette_caller(dispatcher, "rye.execute.directive.*")
        dispatcher.child = {
            "status": "success",
            "thread_id": "hello-1",
            "metadata": {"x": 1},
            "pid": 3,
        }

        said = await here.says(
            "rye_execute", item_id=ref, parameters={"a": 1}, thread="fork", model="fast",
            limit_overrides={"turns": 2}, **{"async": True},
        )  # fmt: skip

        assert said == {"status": "success", "thread_id": "hello-1"}
        ((found, inputs, options, ctx),) = dispatcher.forks
        assert (found, inputs) == (ItemRef("directive", "acme/hello"), {"a": 1})
        assert options == {
            "async_": True, "model": "fast", "limits": {"turns": 2}, "muted_hooks": frozenset(),
        }  # fmt: skip
        assert ctx.budget_account == "t-1"
        assert ctx.capabilities == frozenset({"rye.execute.directive.*"})


async def test_a_child_that_failed_is_a_result_that_says_so(workspace: Workspace) -> None:
    ref = direct(workspace, "acme/hello")
    async with workspace.open() as rye:
        dispatcher = RecordingDispatcher(rye)
        here = await palette_caller(dispatcher, "rye.execute.directive.*")
        dispatcher.child = {
            "status": "error",
            "thread_id": "hello-1",
            "error": "/home/ada/x/y is full",
        }

        said = await here.says("rye_execute", item_id=ref, thread="fork")

        assert said == {"status": "error", "thread_id": "hello-1", "error": "…/y is full"}


async def test_a_tool_that_failed_is_a_result_that_says_so(workspace: Workspace) -> None:
    workspace.python(
        "acme/ok", "def execute(params, project_path):\n    raise ValueError('no luck')"
    )
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), GRANTED)

        said = await here.says("rye_execute", item_id="tool:acme/ok")

    assert said["status"] == "error"
    assert "no luck" in said["error"]


async def test_what_could_not_be_started_is_a_failure_of_the_call(workspace: Workspace) -> None:
    ref = direct(workspace, "acme/hello")
    async with workspace.open() as rye:
        dispatcher = RecordingDispatcher(rye)
        here = await palette_caller(dispatcher, "rye.execute.directive.*")

        dispatcher.child = InvalidInputs(
            "Bad.", next_step="Valid inputs: a.", failures=("a: missing",)
        )
        with pytest.raises(ToolArgsInvalidError, match=r"a: missing.*Valid inputs: a"):
            await here.call("rye_execute", item_id=ref, thread="fork")
        dispatcher.child = StateError("The disk is full.")
        with pytest.raises(ToolExecutionError, match="The disk is full"):
            await here.call("rye_execute", item_id=ref, thread="fork")
        dispatcher.child = NotApproved("No.")
        with pytest.raises(ToolPolicyError):
            await here.call("rye_execute", item_id=ref, thread="fork")


async def test_a_dry_run_shows_the_plan_and_runs_nothing(workspace: Workspace) -> None:
    workspace.shell("acme/ok", "touch $1/ran")
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), GRANTED)

        said = await here.says("rye_execute", item_id="tool:acme/ok", dry_run=True)

    assert said["status"] == "validation_passed"
    assert not (workspace.project / "ran").exists()


def running(workspace: Workspace, row: ThreadRecord) -> None:
    """Write the signed file of a thread on whose behalf the model calls."""
    folder = workspace.project / ".ai/state/threads" / row.thread_id
    folder.mkdir(parents=True)
    write_thread_file(
        folder / THREAD_FILE,
        ThreadFile(
            thread_id=row.thread_id,
            item_id=row.item_id,
            directive="acme/boss",
            item_hash="0" * 64,
            status="running",
            created_at=row.created_at,
            updated_at=row.updated_at,
            model="scripted/m-1",
            limits={"spawns": 1},
            capabilities=(),
            parent_id=None,
            root_id=row.root_id,
            chain_root_id=row.thread_id,
            continuation_of=None,
        ),
        load_run_key(workspace.user / ".ai"),
    )


async def test_an_asynchronous_tool_comes_back_at_once_with_its_thread(
    workspace: Workspace,
) -> None:
    furnish(workspace)
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), GRANTED)
        registry = rye._parts.store.open().registry
        running(workspace, await registry.register("t-1", "directive:acme/boss"))

        said = await here.says("rye_execute", item_id="tool:acme/ok", **{"async": True})

        assert (await registry.get_thread(said["thread_id"])).parent_id == "t-1"
        assert (said["status"], said["state"]) == ("success", "running")
        assert "pid" not in said
        with anyio.fail_after(30):
            await rye.threads.wait(said["thread_id"])


async def test_an_item_is_read_without_its_signature_and_found_within_what_may_be_read(
    workspace: Workspace,
) -> None:
    workspace.write("knowledge/acme/tides.md", "# Tides\n\nTwice a day.\n")
    workspace.write("knowledge/acme/moon.md", "# Moon\n\nTwice a month, tides.\n")
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), "rye.fetch.knowledge.acme.tides")

        said = await here.says("rye_fetch", item_id="knowledge:acme/tides")
        assert said["content"] == "# Tides\n\nTwice a day.\n"
        assert str(workspace.root) not in json.dumps(said)
        found = await here.says("rye_fetch", query="tides", scope="knowledge")
        assert [one["id"] for one in found["results"]] == ["knowledge:acme/tides"]
        assert str(workspace.root) not in json.dumps(found)
        with pytest.raises(ToolPolicyError):
            await here.call("rye_fetch", item_id="knowledge:acme/moon")
        for arguments in ({}, {"item_id": "knowledge:x", "query": "x"}):
            with pytest.raises(ToolArgsInvalidError):
                await here.call("rye_fetch", json.dumps(arguments))


async def test_signing_needs_the_name_and_the_persons_word(workspace: Workspace) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    workspace.write("knowledge/acme/new.md", "# New\n", sign=False)
    workspace.write("knowledge/acme/other.md", "# Other\n", sign=False)
    async with workspace.open(approve=approve) as rye:
        here = await palette_caller(RecordingDispatcher(rye), "rye.sign.knowledge.acme.new")

        said = await here.says("rye_sign", item_id="knowledge:acme/new")
        with pytest.raises(ToolPolicyError):
            await here.call("rye_sign", item_id="knowledge:acme/other")
        with pytest.raises(ToolPolicyError):
            await here.call("rye_sign", item_id="knowledge:acme/*")

    assert said["summary"] == "Signed 1/1 item."
    assert len(asked) == 1
    assert str(workspace.root) not in json.dumps(said)


async def test_an_image_of_an_mcp_tool_reaches_the_model_as_media_and_a_caller_as_data(
    workspace: Workspace,
) -> None:
    stdio_server(workspace)
    ref = mcp_tool(workspace, "image")
    store = MemoryMediaStore()
    granted = f"rye.execute.tool.{ref.removeprefix('tool:').replace('/', '.')}"
    async with workspace.open() as rye:
        here = await palette_caller(RecordingDispatcher(rye), granted, media=store)
        outcome = await here.call("rye_execute", item_id=ref)
        without = await palette_caller(RecordingDispatcher(rye), granted)
        said = await without.says("rye_execute", item_id=ref)
        plain = await rye.execute(ref)
    text, medium = outcome.part.content
    assert isinstance(medium, MediaPart)
    assert (medium.media_type, store.read(medium)) == ("image/png", b"hello")
    document = json.loads(text.text)
    assert document["data"]["content"][0]["data"]["media"] == medium.handle
    assert said["data"]["content"][0]["data"] == "[image/png, 5 bytes]"
    assert plain.data["content"][0]["data"] == "aGVsbG8="
