"""Nothing of a thread stays open, whatever fails as it ends."""

import json
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from attrs import evolve

from ryecore.errors import InputError, ThreadConflict
from ryecore.llm.result import Usage
from ryecore.policy import CallContext
from ryecore.state.records import load_run_key, sign_record
from ryecore.state.thread_file import read_thread_file
from ryecore.state.waiting import run_blocking
from ryecore.testing import FunctionProvider, call, say
from ryecore.testing.scripted import EVERYTHING
from ryecore.tools import tool
from tests.scripted_host import TOTAL, ScriptedHost

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.both_loops,
    pytest.mark.usefixtures("forked_walkers"),
]


def test_who_ends_a_thread_too_late_changes_nothing_of_it(tmp_path: Path) -> None:
    store = ScriptedHost(tmp_path).store()
    run_blocking(store.registry.register("t", "directive:acme/x"))
    store.make_folder("t")
    run_blocking(store.cancel("t"))  # before anybody has claimed it
    with pytest.raises(ThreadConflict):
        run_blocking(store.settle("t", "error", {"error": "It could not begin."}, 0))
    copy = json.loads((store.folder_of("t") / "result.json").read_text())
    assert copy == run_blocking(store.registry.get_result("t"))
    assert "stopped before it began" in copy["error"]


async def test_a_rye_that_was_not_entered_says_what_is_wrong_as_any_other(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("x"), say("x"))
    ref = host.write("acme/x")
    rye = host.open()
    try:
        with pytest.raises(InputError):
            await rye.execute(ref, thread="fork", limits={"turns": 1}, model="nobody")
        assert (await rye.execute(ref, thread="fork")).ended == "completed"
    finally:
        await rye.aclose()


async def test_a_host_that_raises_at_a_handoff_leaves_no_thread_running(tmp_path: Path) -> None:
    small = evolve(EVERYTHING, context_tokens=1000, max_output_tokens=1500)
    model = FunctionProvider(
        lambda _: call("add", {"a": 1, "b": 2}, usage=Usage(950, 10)),
        provider_id="scripted",
        capabilities=small,
    )
    host = ScriptedHost(tmp_path, model=model)
    ref = host.write("acme/x", limits='turns="4"')

    def sink(event: Mapping[str, object]) -> None:
        if event["step"] == "thread_handoff":
            raise ValueError("the host's own")

    async with host.open() as rye:
        with pytest.raises(ValueError, match="host's own"):
            await rye.execute(ref, thread="fork", ctx=CallContext(event_sink=sink))
        assert await rye.threads.list() == ()
        rows = await rye.threads.list(all=True)
    assert [row.status for row in rows] == ["error", "error"]
    accounts = [await host.store().ledger.account(row.thread_id) for row in rows]
    assert all(one.state != "open" for one in accounts)


class HostStopped(BaseException):
    """What ends a host, as `KeyboardInterrupt` does."""


async def test_a_thread_that_its_host_broke_off_keeps_its_idempotency_key(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("Three."), say("Three."))
    ref = host.write("acme/x", limits='turns="4"')

    def sink(event: Mapping[str, object]) -> None:
        if event["step"] == "tool_call_start":
            raise HostStopped

    options = {"thread": "fork", "idempotency_key": "order-17"}
    async with host.open() as rye:
        with pytest.raises(HostStopped):
            await rye.execute(ref, ctx=CallContext(event_sink=sink), **options)
        again = await rye.execute(ref, **options)
        (row,) = await rye.threads.list(all=True)
    assert (again.thread_id, row.status) == (row.thread_id, "cancelled")


async def test_a_cancellation_goes_on_where_the_end_can_not_be_written(tmp_path: Path) -> None:
    begun = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    host = ScriptedHost(tmp_path, call("wait", {}), tools=[wait])
    ref = host.write("acme/x")
    async with host.open() as rye:
        raised: list[BaseException] = []
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await begun.wait()
                    (row,) = await rye.threads.list()
                    await host.store().registry.settle(row.thread_id, "error", {"error": "dead"})
                    scope.cancel()

                group.start_soon(cancel)
                try:
                    await rye.execute(ref, thread="fork")
                except BaseException as error:
                    raised.append(error)
                    raise
        assert scope.cancelled_caught
        assert isinstance(raised[0], anyio.get_cancelled_exc_class())


async def test_a_tool_that_a_thread_launches_is_below_it_and_ends_before_it(
    tmp_path: Path,
) -> None:
    host = ScriptedHost(
        tmp_path,
        call("rye_execute", {"item_id": "tool:acme/say", "async": True}),
        call("rye_directive_return", {"total": 1}),
    )
    host.workspace.shell("acme/say", "echo hello")
    may = "<execute><tool>acme/*</tool></execute>"
    done = await host.run(host.write("acme/x", permissions=may, outputs=TOTAL))
    assert done.ended == "completed", done
    (child,) = await host.store().registry.list_children(done.thread_id)
    assert (child.item_id, child.status) == ("tool:acme/say", "completed")


async def test_a_fork_has_no_children_and_reaches_none_of_the_thread_that_it_comes_from(
    tmp_path: Path,
) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"), say("Three."))
    ref = host.write("acme/x")
    async with host.open() as rye:
        first = await rye.execute(ref, thread="fork")
        other = await rye.threads.fork(first.thread_id, at=1, message="Say it in words.")
        for_it = CallContext(budget_account=other.thread_id, capabilities=frozenset({"rye.*"}))
        asked = await rye.execute(
            "tool:rye/agent/threads/orchestrator",
            {"operation": "get_status", "thread_id": first.thread_id},
            ctx=for_it,
        )
    assert asked.data["success"] is False, asked.data


async def test_hooks_after_the_end_find_what_was_said(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("I would."), say("The answer."))
    found = tmp_path / "found"
    folder = host.workspace.project / ".ai/knowledge/agent/threads"
    host.workspace.shell("acme/look", f"cat $(find {folder} -name '*.md') > {found}")
    hook = {
        "id": "look",
        "event": "after_complete",
        "action": {"primary": "execute", "item_type": "tool", "item_id": "acme/look"},
    }
    host.workspace.write("config/agent/hooks.yaml", {"hooks": [hook]})
    await host.run(host.write("acme/x"))
    assert "The answer." in found.read_text()


async def test_a_handle_of_a_thread_that_never_began_tells_why(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    ref = host.write("acme/x")
    async with host.open() as rye:
        with pytest.raises(InputError):
            await rye.execute(ref, thread="fork", model="nobody")
        (row,) = await rye.threads.list(all=True)
        thread = await rye.threads.thread(row.thread_id)
        assert "nobody" in str((await thread.result()).error)
        assert (await thread.cost()).tokens == 0


async def test_a_handle_cancels_what_goes_on_with_its_thread(tmp_path: Path) -> None:
    small = evolve(EVERYTHING, context_tokens=1000, max_output_tokens=1500)
    waiting = anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        waiting.set()
        await anyio.sleep_forever()
        return ""

    script = iter([call("add", {"a": 1, "b": 2}, usage=Usage(950, 10)), call("wait", {})])
    model = FunctionProvider(lambda _: next(script), provider_id="scripted", capabilities=small)
    host = ScriptedHost(tmp_path, model=model, tools=[wait])
    ref = host.write("acme/x")
    async with host.open() as rye:
        thread = await rye.start(ref)
        with anyio.fail_after(20):
            await waiting.wait()
            await thread.cancel()
            done = await thread.result()
    assert done.ended == "cancelled"


async def test_what_goes_on_has_had_its_inputs_checked(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("I would."), say("Yes."), say("Still."))
    one = '<input name="x" type="integer" required="true">A number.</input>'
    ref = host.write("acme/x", "Say {input:x}.", inputs=one)
    async with host.open() as rye:
        done = await rye.execute(ref, {"x": 4}, thread="fork")
        more = one + '<input name="y" type="integer" required="true">Another.</input>'
        host.write("acme/x", "Say {input:x}.", inputs=more)
        again = await rye.threads.resume(done.thread_id, "And now?")
    assert (again.ended, again.text) == ("completed", "Still.")


async def test_of_two_returns_in_one_answer_the_first_counts(tmp_path: Path) -> None:
    returns = [call("rye_directive_return", {"total": number}) for number in (1, 2)]
    host = ScriptedHost(tmp_path, returns[0] + returns[1])
    done = await host.run(host.write("acme/x", outputs=TOTAL))
    assert done.outputs == {"total": 1}
    assert len(host.records(done.thread_id, "directive_return")) == 1


async def test_a_thread_that_is_handed_off_keeps_the_inputs_that_it_had(tmp_path: Path) -> None:
    small = evolve(EVERYTHING, context_tokens=1000, max_output_tokens=1500)
    script = iter([call("add", {"a": 1, "b": 2}, usage=Usage(950, 10)), say("Done.")])
    model = FunctionProvider(lambda _: next(script), provider_id="scripted", capabilities=small)
    host = ScriptedHost(tmp_path, model=model)
    number = '<input name="x" type="integer">A number.</input>'
    ref = host.write("acme/x", inputs=number.replace(">A", ' default="7">A'))
    done = await host.run(ref, {})
    first, second = sorted(
        (one.thread_id for one in await host.store().registry.list_threads()),
        key=lambda one: one == done.thread_id,
    )
    given = [host.records(one, "thread_started")[0].payload["inputs"] for one in (first, second)]
    assert given == [{"x": 7}, {"x": 7}]


async def test_a_thread_whose_process_died_says_so_in_its_file_once_somebody_looks(
    tmp_path: Path,
) -> None:
    host = ScriptedHost(tmp_path, say("x"))
    done = await host.run(host.write("acme/x", permissions=""))
    store = host.store()
    path = store.folder_of(done.thread_id) / "thread.json"
    key = load_run_key(host.workspace.user / ".ai")
    running = {**read_thread_file(path, key.public, done.thread_id), "status": "running"}
    path.write_text(json.dumps(sign_record("thread", running, key)))
    await store.end_file(await store.registry.get_thread(done.thread_id))
    ended = read_thread_file(path, key.public, done.thread_id)
    assert (ended["status"], ended["cost"]["turns"]) == ("completed", 1)
    path.write_text(path.read_text().replace("completed", "error"))
    altered = path.read_text()
    await store.end_file(await store.registry.get_thread(done.thread_id))
    assert path.read_text() == altered  # what was altered is left to be found
