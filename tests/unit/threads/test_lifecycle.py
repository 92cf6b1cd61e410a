"""A thread from its parent to its end, on a scripted model."""

import gc
import json
from pathlib import Path

import anyio
import pytest

from ryecore.errors import (
    ConfigError,
    InputError,
    InsufficientBudget,
    InvalidInputs,
    ItemNotFound,
    StateError,
    UnsignedItem,
)
from ryecore.llm.result import Usage
from ryecore.policy import CallContext
from ryecore.state.records import load_run_key
from ryecore.state.thread_file import read_thread_file
from ryecore.state.transcript_check import verify_transcript
from ryecore.testing import call, fail, say
from ryecore.threads.lifecycle import ThreadLifecycle
from tests.scripted_host import TOTAL, ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_directive_runs_its_tools_and_returns_its_outputs(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path, call("add", {"a": 4, "b": 3}), call("rye_directive_return", {"total": 7})
    )
    number = '<input name="x" type="integer" required="true">A number.</input>'
    ref = host.write("acme/sum", "Add {input:x} and 3.", inputs=number, outputs=TOTAL)
    done = await host.run(ref, {"x": 4})
    assert (done.status, done.ended, done.outputs) == ("success", "completed", {"total": 7})
    assert "Add 4 and 3." in host.said(0)
    assert "<returns>" in host.said(0)
    assert "<outputs>" not in host.said(0)
    assert host.model.requests[0].system == ""  # no system prompt unless one is supplied
    document = done.to_dict()
    assert document["thread_id"].startswith("acme/sum/sum-")
    assert document["state"] == "completed"
    store = host.store()
    row = await store.registry.get_thread(done.thread_id)
    assert (row.status, row.cost.turns) == ("completed", 2)
    assert await store.registry.get_result(done.thread_id) == json.loads(done.to_json())


async def test_its_folder_holds_a_signed_file_and_a_transcript_that_proves_itself(
    tmp_path: Path,
) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"))
    done = await host.run(host.write("acme/sum"))
    key = load_run_key(host.workspace.user / ".ai").public
    store = host.store()
    folder = store.folder_of(done.thread_id)
    file = read_thread_file(folder / "thread.json", key, done.thread_id)
    assert file["status"] == "completed"
    assert file["cost"]["turns"] == 2
    assert file["capabilities"] == ["rye.execute.tool.host.*"]
    row = await store.registry.get_thread(done.thread_id)
    report = verify_transcript(
        folder / "transcript.jsonl", done.thread_id, key, row.transcript_head, ended=True
    )
    assert report.ok, report
    assert "Left out" not in (folder / "capabilities.md").read_text()
    exported = host.workspace.project / ".ai/knowledge/agent/threads" / f"{done.thread_id}.md"
    assert "What sum is for." in exported.read_text()


async def test_its_folder_says_which_tools_its_model_does_not_see(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("3"), say("3"))
    granted = "<execute><tool>acme.gone</tool></execute>"
    done = await host.run(host.write("acme/sum", permissions=granted))
    left = (host.store().folder_of(done.thread_id) / "capabilities.md").read_text()
    assert "tool:acme/gone: " in left.partition("## Left out")[2]


async def test_a_text_is_accepted_after_one_nudge_to_use_tools(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("I would add."), say("7"))
    done = await host.run(host.write("acme/sum"))
    assert (done.ended, done.text) == ("completed", "7")
    assert "Use the tools" in host.said()


async def test_outputs_that_never_come_are_an_error(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, *(say("7") for _ in range(5)))
    done = await host.run(host.write("acme/sum", outputs=TOTAL))
    assert (done.ended, done.code) == ("error", "validation")
    assert "total" in done.error
    assert len(host.model.requests) == 3  # two nudges


async def test_a_failed_tool_is_told_to_the_model(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("explode"), say("It broke."))
    done = await host.run(host.write("acme/x"))
    assert done.ended == "completed"
    result = host.model.requests[-1].messages[-1].parts[0]
    assert result.is_error
    assert "boom" in result.text


async def test_a_denied_tool_is_told_to_the_model_and_does_not_run(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("I may not."))
    done = await host.run(
        host.write("acme/x", permissions="<fetch><knowledge>a</knowledge></fetch>")
    )
    assert done.ended == "completed"
    assert host.model.requests[-1].messages[-1].parts[0].is_error


async def test_turns_are_bounded(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, *(call("add", {"a": 1, "b": n}) for n in range(9)))
    done = await host.run(host.write("acme/x", limits='turns="3"'))
    assert (done.ended, done.code, done.cost.turns) == ("error", "turns_exceeded", 3)
    assert len(host.model.requests) == 3


async def test_tokens_are_bounded_by_what_is_held(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path,
        *(call("add", {"a": 1, "b": n}, usage=Usage(400, 400)) for n in range(9)),
    )
    done = await host.run(host.write("acme/x", limits='tokens="5000"'))
    assert (done.ended, done.code) == ("error", "tokens_exceeded")
    spent = (await host.store().ledger.account(done.thread_id)).total
    assert spent.tokens <= 5000


async def test_an_unpriced_model_is_refused_where_money_is_bounded(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("hello"), unpriced_models=frozenset())
    done = await host.run(host.write("acme/x"))
    assert done.ended == "error"
    assert "has no price" in done.error
    assert host.model.requests == []


async def test_an_error_is_tried_again_by_its_class(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path, fail("unavailable"), fail("unavailable"), call("add", {"a": 1, "b": 1}), say("2")
    )
    done = await host.run(host.write("acme/x"))
    assert done.ended == "completed"
    assert done.cost.turns == 2
    assert len(host.slept_s) >= 1


async def test_what_can_not_run_is_refused_and_its_row_ends(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("x"))
    number = '<input name="x" type="integer" required="true">A number.</input>'
    ref = host.write("acme/x", inputs=number)
    host.workspace.write("directives/acme/unsigned.md", "# x", sign=False)
    async with host.open() as rye:
        for wanted, inputs, error in (
            ("directive:acme/nowhere", {}, ItemNotFound),
            ("directive:acme/unsigned", {}, UnsignedItem),
            (ref, {}, InvalidInputs),
            (ref, {"x": 1, "y": 2}, InvalidInputs),
        ):
            with pytest.raises(error):
                await rye.execute(wanted, inputs, thread="fork")
        assert await rye.threads.list() == ()
        ended = await rye.threads.list(all=True)
    assert {one.status for one in ended} == {"error"}
    assert host.model.requests == []


async def test_without_models_it_says_what_to_inject(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    ref = host.write("acme/x")
    async with host.workspace.open() as rye:
        with pytest.raises(ConfigError, match="needs models"):
            await rye.execute(ref, thread="fork")


async def test_a_parent_is_never_believed_by_its_name_alone(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("x"))
    ref = host.write("acme/x")
    host.workspace.environ["RYE_PARENT_THREAD_ID"] = "acme/boss/boss-1"
    async with host.open() as rye:
        with pytest.raises(StateError, match="RYE_PARENT_THREAD_ID"):
            await rye.execute(ref, thread="fork")
        with pytest.raises(StateError):  # nor one that isn't there
            await rye.execute(
                ref, thread="fork", ctx=CallContext(budget_account="acme/boss/boss-1")
            )


async def test_unrestricted_capabilities_want_an_acknowledgement(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("x"), say("x"))
    with pytest.raises(InputError, match="not acknowledged"):
        await host.run(host.write("acme/god", permissions="*"))
    said = '*<acknowledge risk="unrestricted">It is mine.</acknowledge>'
    assert (await host.run(host.write("acme/mine", permissions=said))).ended == "completed"


async def test_a_child_runs_within_its_parent(tmp_path: Path) -> None:
    def model(request):  # type: ignore[no-untyped-def]
        text = request.messages[0].text
        if "child" in text:
            return call("rye_directive_return", {"total": 5})
        if len(request.messages) == 1:
            return call("rye_execute", {"item_id": "directive:acme/child", "thread": "fork"})
        return say(request.messages[-1].parts[0].text)

    host = ScriptedHost(tmp_path, model=model)
    host.write("acme/child", "I am the child.", outputs=TOTAL, limits='spend="1" turns="40"')
    ref = host.write(
        "acme/parent",
        "Ask.",
        permissions="<execute><directive>acme/*</directive><tool>host/add</tool></execute>",
        limits='turns="4" depth="2" spend="2"',
    )
    done = await host.run(ref)
    child = json.loads(done.text)
    assert child["outputs"] == {"total": 5}
    registry = host.store().registry
    row = await registry.get_thread(child["thread_id"])
    assert (row.parent_id, row.status) == (done.thread_id, "completed")
    folder = host.store().folder_of(child["thread_id"])
    file = json.loads((folder / "thread.json").read_text())
    assert file["limits"]["turns"] == 4  # no more than its parent
    assert file["limits"]["depth"] == 1
    assert file["limits"]["spend"] == 1
    assert file["capabilities"] == ["rye.execute.tool.host.add"]
    assert (await registry.get_thread(done.thread_id)).spawn_count == 1


async def test_depth_and_spawns_are_bounded(tmp_path: Path) -> None:
    def model(request):  # type: ignore[no-untyped-def]
        if len(request.messages) == 1:
            return call("rye_execute", {"item_id": "directive:acme/down", "thread": "fork"})
        return say(request.messages[-1].parts[0].text)

    host = ScriptedHost(tmp_path, model=model)
    may = "<execute><directive>acme/*</directive></execute>"
    ref = host.write("acme/down", permissions=may, limits='depth="3"')
    await host.run(ref)
    rows = await host.store().registry.list_threads()
    assert sorted(one.status for one in rows) == ["completed"] * 4 + ["error"]
    none = host.write("acme/none", permissions=may, limits='spawns="0"')
    done = await host.run(none)
    assert "children" in done.text


async def test_a_budget_that_is_gone_starts_no_child(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("x"))
    ref = host.write("acme/x", limits='spend="0.5"')
    async with host.open() as rye:
        parent = await rye.execute(ref, thread="fork")
        with pytest.raises(InsufficientBudget):
            await rye.execute(ref, thread="fork", ctx=CallContext(budget_account=parent.thread_id))


async def test_nothing_of_an_ended_thread_waits_for_the_garbage_collector(tmp_path: Path) -> None:
    def lifecycles() -> list[ThreadLifecycle]:
        return [one for one in gc.get_objects() if isinstance(one, ThreadLifecycle)]

    script = (call("add", {"a": 1, "b": 2}), say("3"))
    host = ScriptedHost(tmp_path, *script, *script)
    ref = host.write("acme/sum")
    async with host.open() as rye:
        await rye.execute(ref, thread="fork")
        gc.collect()
        gc.disable()
        try:
            await rye.execute(ref, thread="fork")
            with anyio.fail_after(10):  # a worker thread may hold what it did for a moment yet
                while lifecycles():
                    await anyio.sleep(0.01)
        finally:
            gc.enable()
