"""Media of tools in threads whose host has no store of media."""

import signal
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree

import anyio
import pytest
from attrs import evolve

from ryecore.llm.media import FolderMediaStore, MediaStore
from ryecore.llm.parts import MediaPart, ToolResultPart
from ryecore.llm.request import Capabilities, LlmRequest
from ryecore.llm.stream import StreamChunk
from ryecore.testing import FunctionProvider, Turn, call, say
from ryecore.testing.scripted import EVERYTHING, ModelFunction
from ryecore.threads.result import ThreadResult
from tests.mcp_items import mcp_tool, stdio_server
from tests.scripted_host import ScriptedHost
from tests.thread_host import PlannedWorkspace, _deps, _model
from tests.unit.threads.hooking import control, hooks
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

PATIENCE_S = 60.0
SAID = "[image/png, 5 bytes]"
"""What a model is told of the test server's image where it doesn't get it."""


class Seeing(FunctionProvider):
    """A model that looks at the media that it is sent."""

    seen: list[tuple[bytes, ...]]
    """What the media of each request hold."""

    def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        parts = [part for message in request.messages for part in message.parts]
        shown = [
            one
            for part in parts
            for one in (part.content if isinstance(part, ToolResultPart) else (part,))
            if isinstance(one, MediaPart)
        ]
        assert media is not None or not shown
        self.seen.append(tuple(media.read(one) for one in shown if media is not None))
        return super().stream(request, key=key, media=media)


def seeing(function: ModelFunction, capabilities: Capabilities = EVERYTHING) -> Seeing:
    model = Seeing(function, provider_id="scripted", capabilities=capabilities)
    model.seen = []
    return model


def asks_for_image(ref: str) -> ModelFunction:
    def turn(request: LlmRequest) -> Turn:
        is_shown = any(
            isinstance(part, ToolResultPart) for one in request.messages for part in one.parts
        )
        return say("I see.") if is_shown else call("rye_execute", {"item_id": ref})

    return turn


def with_image(
    root: Path, capabilities: Capabilities = EVERYTHING
) -> tuple[ScriptedHost, Seeing, str]:
    model = seeing(asks_for_image("tool:mcp/test/image"), capabilities)
    host = ScriptedHost(root, model=model)
    stdio_server(host.workspace)
    mcp_tool(host.workspace, "image")
    permits = "<execute><tool>mcp/*</tool></execute>"
    ref = host.write("acme/look", permissions=permits)
    return host, model, ref


def artifacts(host: ScriptedHost, thread_id: str) -> Path:
    return host.workspace.project / ".ai/state/threads" / thread_id / "artifacts"


async def test_an_image_of_a_tool_is_seen_and_stays_seen(tmp_path: Path) -> None:
    host, model, ref = with_image(tmp_path)
    done = await host.run(ref)
    assert done.ended == "completed", done.error
    assert model.seen == [(), (b"hello",)]
    (result,) = host.records(done.thread_id, "tool_call_result")
    kept = [one for one in result.payload["content"] if one["type"] == "media"]
    assert [(one["media_type"], one["size_bytes"]) for one in kept] == [("image/png", 5)]
    transcript = (artifacts(host, done.thread_id).parent / "transcript.jsonl").read_text()
    assert "aGVsbG8=" not in transcript

    async with host.open() as rye:
        resumed = await rye.threads.resume(done.thread_id, "Once more?")
        rmtree(artifacts(host, done.thread_id))  # each thread has what it shows
        again = await rye.threads.resume(resumed.thread_id, "And once more?")
        forked = await rye.threads.fork(again.thread_id, at=1)
        assert {one.ended for one in (resumed, again, forked)} == {"completed"}
        assert model.seen[2:] == [(b"hello",)] * 3

        rmtree(artifacts(host, forked.thread_id))
        blind = await rye.threads.resume(forked.thread_id, "Still there?")
    assert blind.ended == "completed"
    assert model.seen[5:] == [()]
    assert any(
        SAID in part.text
        for message in model.requests[-1].messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    )


async def test_a_thread_that_takes_over_sees_the_image(tmp_path: Path) -> None:
    host, model, ref = with_image(tmp_path)
    once = {"path": "cost.turns", "op": "lt", "value": 2}
    hooks(host, control("over", "after_step", "handoff", condition=once))
    done = await host.run(ref)
    assert (done.ended, done.text) == ("completed", "I see."), done.error
    assert model.seen == [(), (b"hello",)]
    (taken,) = host.records(done.thread_id, "thread_resumed")
    assert taken.payload["kind"] == "handoff"
    assert artifacts(host, done.thread_id).exists()


async def test_a_host_whose_store_lost_an_image_goes_on(tmp_path: Path) -> None:
    host, model, ref = with_image(tmp_path)
    store = FolderMediaStore(tmp_path / "media")
    async with host.open(agent=evolve(host.deps, media=store)) as rye:
        done = await rye.execute(ref, thread="fork")
        assert isinstance(done, ThreadResult)
        assert not artifacts(host, done.thread_id).exists()
        await rye.threads.resume(done.thread_id, "Once more?")
        assert model.seen == [(), (b"hello",), (b"hello",)]
        rmtree(tmp_path / "media")
        again = await rye.threads.resume(done.thread_id, "Still there?", again=True)
    assert (again.ended, model.seen[3:]) == ("completed", [()])


async def test_a_model_that_takes_no_images_is_told_type_and_size(tmp_path: Path) -> None:
    host, model, ref = with_image(tmp_path, evolve(EVERYTHING, input_media=()))
    done = await host.run(ref)
    assert (done.ended, model.seen) == ("completed", [(), ()])
    assert not artifacts(host, done.thread_id).exists()
    (result,) = host.records(done.thread_id, "tool_call_result")
    assert SAID in str(result.payload["content"])


async def test_where_machines_share_objects_the_image_is_there(tmp_path: Path) -> None:
    host, model, ref = with_image(tmp_path)
    host.workspace.environ["RYE_OBJECTS"] = str(tmp_path / "shared")
    done = await host.run(ref)
    assert not artifacts(host, done.thread_id).exists()
    async with host.open() as rye:
        await rye.threads.resume(done.thread_id, "Once more?")
        assert model.seen[1:] == [(b"hello",)] * 2
        rmtree(tmp_path / "shared")
        await rye.threads.resume(done.thread_id, "Still there?", again=True)
    assert model.seen[3:] == [()]


async def test_an_image_is_pruned_with_its_thread(tmp_path: Path) -> None:
    host, _, ref = with_image(tmp_path)
    done = await host.run(ref)
    kept = artifacts(host, done.thread_id)
    assert kept.exists()
    async with host.open() as rye:
        assert (await rye.threads.prune(older_than="1d")).thread_ids == ()
        assert kept.exists()
        (path,) = (host.workspace.project / ".ai/state/threads").glob(".*/threads.db")
        await anyio.to_thread.run_sync(age, path)
        assert (await rye.threads.prune(older_than="1d")).thread_ids == (done.thread_id,)
    assert not kept.exists()


def age(path: Path) -> None:
    with sqlite3.connect(path) as opened:
        opened.execute("UPDATE threads SET completed_at = '2020-01-01T00:00:00.000Z'")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_who_resumes_after_a_kill_sees_the_image(tmp_path: Path, anyio_backend: str) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    stdio_server(planned.workspace)
    image = mcp_tool(planned.workspace, "image")
    ref = planned.write("look", ["rye_execute", {"item_id": image}], ["gate", {"name": "g"}])
    host = planned.host([ref])
    with anyio.fail_after(PATIENCE_S):
        await planned.begun("g")
    host.send_signal(signal.SIGKILL)
    host.wait()
    planned.allow("g")
    (row,) = await planned.store().look_at_all(lambda registry: registry.list_threads())
    model = seeing(_model)
    agent = _deps(tmp_path)["agent"]
    async with planned.open(agent=evolve(agent, resolve_provider=lambda _: model)) as rye:
        await rye.threads.resume(row.thread_id)
    assert model.seen
    assert set(model.seen) == {(b"hello",)}
