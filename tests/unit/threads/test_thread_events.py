"""What a thread tells those who listen: live, late, twice, too slowly, and from elsewhere."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore.state.events import RunEvent
from ryecore.testing import call, hang, say, think
from tests.scripted_host import TOTAL, ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def kinds(events: list[RunEvent]) -> list[tuple[str, Any]]:
    """The records without streamed text, which comes in other pieces from a file than live."""
    return [(one.type, one.payload) for one in events if one.type != "token_delta"]


def text(events: list[RunEvent]) -> str:
    return "".join(one.payload["text"] for one in events if one.type == "token_delta")


def on_disk(host: ScriptedHost, thread_id: str) -> list[RunEvent]:
    return [
        RunEvent(one.thread_id, one.timestamp, one.type, one.payload)
        for one in host.records(thread_id)
    ]


def same(events: list[RunEvent], host: ScriptedHost, thread_id: str) -> None:
    """What was heard is what the transcript holds: nothing twice, nothing missing."""
    written = on_disk(host, thread_id)
    heard, kept = kinds(events), kinds(written)
    assert [one[0] for one in heard] == [one[0] for one in kept]
    for (kind, said), (_, told) in zip(heard, kept, strict=True):
        if kind == "checkpoint":
            assert said["turn"] == told["turn"]
        else:
            assert dict(said) == dict(told)
    assert text(events) == text(written)


async def gather(thread: Any, **options: Any) -> list[RunEvent]:
    return [event async for event in thread.events(**options)]


async def test_two_readers_hear_the_same_from_the_start(tmp_path: Path) -> None:
    host = ScriptedHost(
        tmp_path, call("add", {"a": 1, "b": 2}), say("It is three, I am sure of it.")
    )
    heard: list[list[RunEvent]] = []
    ref = host.write("acme/x")

    async with host.open() as rye, anyio.create_task_group() as group:
        thread = await rye.start(ref)

        async def listen() -> None:
            heard.append(await gather(thread))

        group.start_soon(listen)
        group.start_soon(listen)
    assert len(heard) == 2
    for one in heard:
        same(one, host, thread.thread_id)
        assert one[-2].type == "thread_completed"


async def test_one_that_comes_late_gets_the_past_and_then_the_rest(tmp_path: Path) -> None:
    go_on = anyio.Event()

    async def slow(_: Any) -> Any:
        await go_on.wait()
        return say("Three, at last, and in many little pieces of text.")

    host = ScriptedHost(tmp_path, say("Let me see. ") + call("add", {"a": 1, "b": 2}), slow)
    ref = host.write("acme/x")
    late: list[RunEvent] = []
    async with host.open() as rye, anyio.create_task_group() as group:
        thread = await rye.start(ref)

        async def listen() -> None:
            late.extend(await gather(thread))

        calls = 0
        async for event in thread.events():
            calls += event.type == "model_call"
            if calls == 2 and not go_on.is_set():
                group.start_soon(listen)
                await anyio.wait_all_tasks_blocked()
                go_on.set()
    same(late, host, thread.thread_id)


async def test_only_what_comes_from_now_on(tmp_path: Path) -> None:
    go_on = anyio.Event()

    async def slow(_: Any) -> Any:
        await go_on.wait()
        return say("3")

    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), slow)
    ref = host.write("acme/x")
    async with host.open() as rye:
        thread = await rye.start(ref)
        async for event in thread.events():
            if event.type == "checkpoint" and event.payload["turn"] == 1:
                break
        heard: list[RunEvent] = []
        async with anyio.create_task_group() as group:

            async def listen() -> None:
                heard.extend(await gather(thread, from_start=False))

            group.start_soon(listen)
            await anyio.wait_all_tasks_blocked()
            go_on.set()
    assert "thread_started" not in {one.type for one in heard}
    assert [one[0] for one in kinds(heard)][-4:] == [
        "model_call_end", "cognition_out", "thread_completed", "checkpoint",
    ]  # fmt: skip


async def test_a_reader_that_leaves_early_holds_nothing_up(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"))
    ref = host.write("acme/x")
    async with host.open() as rye:
        thread = await rye.start(ref)
        async for event in thread.events():
            assert event.type == "thread_started"
            break
        assert (await thread.result()).text == "3"
        same(await gather(thread), host, thread.thread_id)


async def test_a_slow_reader_misses_nothing(tmp_path: Path) -> None:
    words = "word " * 6000
    host = ScriptedHost(tmp_path, say(words) + call("add", {"a": 1, "b": 2}), say(words))
    host.model._chunk_chars = 4
    ref = host.write("acme/x")
    heard: list[RunEvent] = []
    async with host.open() as rye:
        thread = await rye.start(ref)
        reader = thread.events()
        async for event in reader:
            heard.append(event)
            if event.type == "model_call":
                break
        await anyio.sleep(0)
        async for event in reader:
            heard.append(event)
            if len(heard) == 50:  # in the middle of the first answer
                await thread.result()
        await thread.result()
    same(heard, host, thread.thread_id)


async def test_a_slow_reader_catches_up_and_goes_on_live(tmp_path: Path) -> None:
    go_on, behind = anyio.Event(), anyio.Event()
    words = "word " * 6000

    async def slow(_: Any) -> Any:
        behind.set()
        await go_on.wait()
        return say("The end.")

    host = ScriptedHost(tmp_path, say(words) + call("add", {"a": 1, "b": 2}), slow)
    host.model._chunk_chars = 4
    ref = host.write("acme/x")
    heard: list[RunEvent] = []
    async with host.open() as rye:
        thread = await rye.start(ref)
        calls = 0
        async for event in thread.events():
            heard.append(event)
            if len(heard) == 3:
                await behind.wait()
            calls += event.type == "model_call"
            if calls == 2:
                go_on.set()
    same(heard, host, thread.thread_id)


async def test_an_ended_thread_is_told_again(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"))
    done = await host.run(host.write("acme/x"))
    async with host.open() as rye:
        thread = await rye.threads.thread(done.thread_id)
        events = await gather(thread)
        same(events, host, done.thread_id)
        assert events == on_disk(host, done.thread_id)
        assert await gather(thread, from_start=False) == []


async def test_a_handle_that_has_not_started_a_thread_knows_its_result(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("rye_directive_return", {"total": 3}))
    done = await host.run(host.write("acme/x", outputs=TOTAL))
    async with host.open() as rye:
        thread = await rye.threads.thread(done.thread_id)
        with anyio.fail_after(5):
            again = await thread.result()
    assert (again.ended, again.outputs, again.cost, again.total) == (
        done.ended, done.outputs, done.cost, done.total,
    )  # fmt: skip
    assert again.to_dict() == done.to_dict()


async def test_another_rye_follows_a_thread_and_waits_for_it(tmp_path: Path) -> None:
    go_on = anyio.Event()

    async def slow(_: Any) -> Any:
        await go_on.wait()
        return say("Three.")

    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), slow)
    ref = host.write("acme/x")
    heard: list[RunEvent] = []
    # A second Rye knows no more of the first one's threads than another process does.
    async with host.open() as rye, host.open() as other:
        thread = await rye.start(ref)
        seen = await other.threads.thread(thread.thread_id)
        async for event in seen.events():
            heard.append(event)
            if event.type == "checkpoint" and event.payload["turn"] == 1:
                go_on.set()
        with anyio.fail_after(5):
            result = await seen.result()
    assert result.text == "Three."
    same(heard, host, thread.thread_id)


async def test_a_handle_follows_a_handoff_to_its_end(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, call("explode"), say("Done by the next."))
    hook = {"id": "h", "event": "error", "action": {"control": "handoff"}}
    host.workspace.write("config/agent/hooks.yaml", {"hooks": [hook]})
    ref = host.write("acme/x")
    async with host.open() as rye:
        thread = await rye.start(ref)
        done = await thread.result()
        seen = await rye.threads.thread(thread.thread_id)
        again = await seen.result()
    assert again.to_dict() == done.to_dict()
    assert again.thread_id != thread.thread_id


async def test_events_end_where_a_thread_is_cancelled(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("Wait") + hang())
    ref = host.write("acme/x")
    heard = []
    async with host.open() as rye:
        thread = await rye.start(ref)
        async for event in thread.events():
            heard.append(event)
            if event.type == "token_delta":
                await thread.cancel()
    assert heard[-2].type == "thread_cancelled"
    same(heard, host, thread.thread_id)


async def test_reasoning_comes_to_live_listeners_and_stays_out_of_the_log(tmp_path: Path) -> None:
    script = (think("I need a sum.") + call("add", {"a": 1, "b": 2}), think("Easy.") + say("3"))
    host = ScriptedHost(tmp_path, *script)
    ref = host.write("acme/x")
    async with host.open() as rye:
        thread = await rye.start(ref)
        heard = await gather(thread)
        again = await gather(thread)
    thought = [one.payload["text"] for one in heard if one.type == "reasoning_delta"]
    assert "".join(thought) == "I need a sum.Easy."
    same([one for one in heard if one.type != "reasoning_delta"], host, thread.thread_id)
    same(again, host, thread.thread_id)
