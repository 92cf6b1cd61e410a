"""Along a chain of handoffs and resumes every limit goes on counting."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import CallContext
from ryecore.errors import LimitReached
from ryecore.llm.result import Usage
from ryecore.state.waiting import run_blocking
from ryecore.testing import call, say
from tests.scripted_host import ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

MAY = (
    "<execute><directive>acme/*</directive><tool>acme/*</tool><tool>host/*</tool>"
    "<tool>rye/agent/threads/orchestrator</tool></execute>"
)
ORCHESTRATOR = "rye_orchestrator"


def running(host: ScriptedHost, name: str) -> str:
    """The thread of a directive that runs."""
    store = host.store()
    try:
        active = run_blocking(store.registry.list_active())
    finally:
        store.close()
    return next(one.thread_id for one in reversed(active) if one.thread_id.startswith(name))


def hand_off(host: ScriptedHost, name: str = "acme/x") -> Any:
    asked = {"operation": "handoff_thread", "thread_id": running(host, name)}
    return call(ORCHESTRATOR, asked)


def fork(item: str, **more: Any) -> Any:
    return call("rye_execute", {"item_id": f"directive:{item}", "thread": "fork", **more})


async def test_a_model_that_hands_itself_off_has_no_turn_more(tmp_path: Path) -> None:
    host: ScriptedHost
    host = ScriptedHost(tmp_path, model=lambda _: hand_off(host))
    done = await host.run(host.write("acme/x", permissions=MAY, limits='turns="4" spawns="1"'))
    rows = await host.store().registry.list_threads()
    assert sum(one.cost.turns for one in rows) == len(host.model.requests) == 4
    assert (done.ended, done.code) == ("error", "turns_exceeded")
    assert "turns" in done.error


async def test_a_thread_that_is_handed_off_starts_no_more_children_than_it_might(
    tmp_path: Path,
) -> None:
    host: ScriptedHost
    refused: list[str] = []

    def model(request: Any) -> Any:
        if "I am the child" in request.messages[0].text:
            return say("Here.")
        last = request.messages[-1]
        if last.role == "tool":
            text = last.parts[-1].text
            if "may start" in text:
                refused.append(text)
                return say("Done.")
            return hand_off(host)
        return fork("acme/child")

    host = ScriptedHost(tmp_path, model=model)
    host.workspace.write("config/agent/resilience.yaml", {"loop": {"nudges": 0}})
    host.write("acme/child", "I am the child.", permissions="")
    done = await host.run(host.write("acme/x", permissions=MAY, limits='turns="20" spawns="2"'))
    rows = await host.store().registry.list_threads()
    assert done.ended == "completed", done.error
    assert sum(one.item_id == "directive:acme/child" and one.cost.turns > 0 for one in rows) == 2
    assert len(refused) == 1


async def test_a_parent_can_not_resume_a_child_past_its_limits(tmp_path: Path) -> None:
    said: list[Any] = []

    def model(request: Any) -> Any:
        if "I am the child" in "".join(one.text for one in request.messages):
            return call("add", {"a": 1, "b": len(request.messages)})
        last = request.messages[-1]
        if last.role == "user":
            return fork("acme/child", limit_overrides={"turns": 2})
        came = json.loads(last.parts[0].text)
        said.append(came)
        if "thread_id" not in came or len(said) > 3:
            return say("Done.")
        asked = {"operation": "resume_thread", "thread_id": came["thread_id"], "message": "More."}
        return call(ORCHESTRATOR, asked)

    host = ScriptedHost(tmp_path, model=model)
    host.write("acme/child", "I am the child.")
    done = await host.run(host.write("acme/x", permissions=MAY, limits='turns="9" spawns="9"'))
    assert done.ended == "completed"
    assert said[0]["error_code"] == "turns_exceeded"
    assert (said[1]["success"], said[1]["error_type"]) == (False, "limit_reached")
    assert "turns" in said[1]["error"]
    children = [one for one in await host.store().registry.list_threads() if "child" in one.item_id]
    assert sum(one.cost.turns for one in children) == 2


def endless(request: Any) -> Any:
    return call("add", {"a": 1, "b": len(request.messages)}, usage=Usage(200, 100))


async def test_the_host_resumes_with_what_is_left_or_with_new_limits(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, model=endless)
    ref = host.write("acme/x", limits='turns="2"')
    model = CallContext(capabilities=frozenset({"rye.execute.*"}))
    async with host.open() as rye:
        first = await rye.execute(ref, thread="fork")
        for options in ({}, {"limits": {"spend": 1}}, {"limits": {"turns": 9}, "ctx": model}):
            with pytest.raises(LimitReached, match="--limit turns=8") as caught:
                await rye.threads.resume(first.thread_id, "More.", **options)
            assert caught.value.limit_code == "turns_exceeded"
        again = await rye.threads.resume(first.thread_id, "More.", limits={"turns": 3})
        assert (again.code, again.cost.turns) == ("turns_exceeded", 3)
        with pytest.raises(LimitReached):
            await rye.threads.resume(again.thread_id, "More.")
        third = await rye.threads.resume(again.thread_id, "More.", limits={"turns": 1})
        assert (third.code, third.cost.turns) == ("turns_exceeded", 1)


@pytest.mark.parametrize(
    ("limit", "renewed"),
    [('tokens="4000"', {"tokens": 5000}), ('spend="0.02"', {"spend": "0.03"})],
)
async def test_money_and_tokens_are_what_the_resumed_thread_has_left(
    tmp_path: Path, limit: str, renewed: dict[str, Any]
) -> None:
    from ryecore.llm.cost import Price

    answers = iter([say("One.", usage=Usage(300, 100))] * 9)
    host = ScriptedHost(
        tmp_path, model=lambda _: next(answers), price_of=lambda *_: Price("5", "5")
    )
    ref = host.write("acme/x", permissions="", limits=limit)
    ledger = host.store().ledger
    async with host.open() as rye:
        first = await rye.execute(ref, thread="fork")
        second = await rye.threads.resume(first.thread_id, "More.")
        beside = await rye.threads.resume(first.thread_id, "Something else.", again=True)
        fresh = await rye.threads.resume(first.thread_id, "More.", limits=renewed, again=True)
    name = "tokens" if "tokens" in renewed else "spend_microcents"
    unit = 1 if name == "tokens" else 500
    most = 4000 if name == "tokens" else 2_000_000

    def ceiling(done: Any) -> int:
        value: int = getattr(run_blocking(ledger.account(done.thread_id)).ceiling, name)
        return value

    assert ceiling(first) == most
    assert ceiling(second) == most - 400 * unit
    assert ceiling(beside) == most - 2 * 400 * unit  # what the second one used counts, too
    assert ceiling(fresh) == (5000 if name == "tokens" else 3_000_000)


async def test_time_counts_along_the_chain_and_rest_does_not(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("One."), say("Two."))
    ref = host.write("acme/x", permissions="", limits='duration_seconds="100"')
    async with host.open() as rye:
        first = await rye.execute(ref, thread="fork")
        second = await rye.threads.resume(first.thread_id, "More.")
    limits = [
        (await host.store().registry.get_thread(one.thread_id)).limits for one in (first, second)
    ]
    before, after = (float(one["duration_seconds"]) for one in limits if one)  # type: ignore[arg-type]
    records = host.records(first.thread_id)
    assert before == 100
    assert after == pytest.approx(100 - (records[-1].timestamp - records[0].timestamp), abs=1e-6)


async def test_a_limit_of_the_caller_holds_for_who_resumes_without_limits(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, say("One."), say("Two."))
    ref = host.write("acme/x", permissions="")
    async with host.open() as rye:
        first = await rye.execute(ref, thread="fork", limits={"turns": 5, "depth": 3})
        second = await rye.threads.resume(first.thread_id, "More.")
    limits = (await host.store().registry.get_thread(second.thread_id)).limits or {}
    assert (limits["turns"], limits["depth"]) == (5 - first.cost.turns, 3)


def tool_call(item: str) -> Any:
    return call("rye_execute", {"item_id": item, "async": True})


@pytest.mark.parametrize("kind", ["tool", "graph", "directive"])
async def test_what_a_model_starts_in_the_background_counts_as_a_spawn(
    tmp_path: Path, kind: str
) -> None:
    told: list[str] = []

    def model(request: Any) -> Any:
        if "I am the child" in request.messages[0].text:
            return say("Here.")
        last = request.messages[-1]
        if last.role == "user":
            return start() + start() + start()
        if told:
            return say("Done.")
        told.extend(part.text for part in last.parts)
        documents = [json.loads(text) for text in told if text.startswith("{")]
        ids = [one["thread_id"] for one in documents if "thread_id" in one]
        return call(ORCHESTRATOR, {"operation": "wait_threads", "thread_ids": ids})

    def start() -> Any:
        if kind == "directive":
            return fork("acme/child", **{"async": True})
        return tool_call(f"tool:acme/{kind}")

    host = ScriptedHost(tmp_path, model=model)
    host.write("acme/child", "I am the child.", permissions="")
    host.workspace.shell("acme/tool", "true")
    nodes = {"done": {"type": "return", "output": 1}}
    host.workspace.write("tools/acme/graph.yaml", {
        "version": "1.0.0", "tool_type": "graph", "category": "acme", "description": "d",
        "executor_id": "rye/core/runtimes/state-graph/runtime",
        "config": {"start": "done", "nodes": nodes},
    })  # fmt: skip
    done = await host.run(host.write("acme/x", permissions=MAY, limits='turns="9" spawns="2"'))
    assert done.ended == "completed", done.error
    refused = [text for text in told if "may start" in text]
    assert len(refused) == 1, told
    store = host.store()
    assert (await store.registry.get_thread(done.thread_id)).spawn_count == 2
    assert len(
        [row for row in await store.registry.list_children(done.thread_id) if row.ended]
    ) == (
        3 if kind == "directive" else 2  # one that runs here is registered before it is counted
    )


async def test_those_that_resume_again_at_once_share_what_was_left(tmp_path: Path) -> None:
    def model(request: Any) -> Any:
        is_more = any(one.text == "More." for one in request.messages)
        return endless(request) if is_more else say("One.")

    host = ScriptedHost(tmp_path, model=model)
    host.workspace.write("config/agent/resilience.yaml", {"loop": {"nudges": 0}})
    ref = host.write("acme/x", limits='turns="3"')
    async with host.open() as rye:
        first = await rye.execute(ref, thread="fork")
        assert (first.ended, first.cost.turns) == ("completed", 1)
        refused: list[LimitReached] = []

        async def again() -> None:
            try:
                await rye.threads.resume(first.thread_id, "More.", again=True)
            except LimitReached as error:
                refused.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(again)
        rows = await rye.threads.list(all=True)
    assert sum(row.cost.turns for row in rows) == 3
    assert len(refused) == 2
