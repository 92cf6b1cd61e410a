"""The orchestrator: threads look after their own, and after nobody else's."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from ryecore.errors import InvalidParameters, ToolArgsInvalidError
from ryecore.items.refs import ORCHESTRATOR
from ryecore.llm.parts import TextPart, ToolCallPart
from ryecore.policy import CallContext
from ryecore.state.model import TERMINAL, Status
from ryecore.threads.orchestrator.tool import (
    CAPABILITY,
    PARAMETERS,
    Orchestrator,
    orchestrator_tool,
)
from ryecore.tools.context import ToolContext
from ryecore.tools.registry import ToolRegistry
from tests.unit.system.test_metadata import literals
from tests.unit.system.tools import RYE
from tests.unit.threads.thread_tree import Starter, ThreadTree
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

HOST = CallContext()
OPERATIONS = PARAMETERS["properties"]["operation"]["enum"]
RESULT = {"result": "Done.", "outputs": {"n": 3}, "error": None}


@pytest.fixture
def threads(workspace: Workspace) -> Iterator[ThreadTree]:
    threads = ThreadTree(workspace)
    yield threads
    threads.store.close()


async def perform(
    threads: ThreadTree, operation: str, caller: str | None = None, **given: Any
) -> dict[str, Any]:
    orchestrator = Orchestrator(lambda: threads.store, Starter())
    ctx = CallContext(frozenset(), caller) if caller else HOST
    return await orchestrator.perform({"operation": operation, **given}, ctx)


def everything(thread_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each operation on one thread."""
    for operation in OPERATIONS:
        if operation in ("wait_threads", "aggregate_results"):
            yield operation, {"thread_ids": [thread_id]}
        elif operation != "list_active":
            yield operation, {"thread_id": thread_id, "query": "x", "message": "Go on."}


async def test_what_is_not_the_callers_answers_as_what_is_not_there(threads: ThreadTree) -> None:
    threads.start("root")
    threads.start("weak", "root")
    threads.start("other", "root")
    threads.write("other", ("cognition_in", {"turn": 1, "parts": [{"text": "a secret x"}]}))
    threads.end(threads.start("ended", "other"))
    for foreign in ("other", "ended", "root"):
        for operation, given in everything(foreign):
            refused = await perform(threads, operation, "weak", **given)
            absent = await perform(
                threads,
                operation,
                "weak",
                **json.loads(json.dumps(given).replace(f'"{foreign}"', '"nobody"')),
            )
            assert refused["success"] is False
            assert json.dumps(refused).replace(foreign, "nobody") == json.dumps(absent)
    assert not (await threads.store.look("other")).cancel_requested
    assert (await perform(threads, "list_active", "weak"))["threads"] == []


@pytest.mark.parametrize("thread_id", ["../../x", "", "a" * 500, "x/../y", "\x00", "ro*t", "ROOT"])
async def test_no_spelling_of_an_id_leads_elsewhere(threads: ThreadTree, thread_id: str) -> None:
    threads.start("root")
    if not thread_id:
        with pytest.raises(InvalidParameters):
            await perform(threads, "read_transcript", "root", thread_id=thread_id)
        return
    for caller in ("root", None):
        refused = await perform(threads, "read_transcript", caller, thread_id=thread_id)
        assert refused["error_type"] == "thread_not_found"


async def test_a_thread_reads_itself_and_neither_waits_for_nor_stops_itself(
    threads: ThreadTree,
) -> None:
    threads.start("root")
    threads.write("root")
    for operation in ("get_status", "get_chain", "read_transcript"):
        assert (await perform(threads, operation, "root", thread_id="root"))["success"]
    waited = await perform(threads, "wait_threads", "root", thread_ids=["root"])
    assert waited["error"].startswith("A thread can't wait for itself.")
    for operation in ("cancel_thread", "kill_thread"):
        refused = await perform(threads, operation, "root", thread_id="root")
        assert refused["error"].startswith(f"A thread can't {operation.split('_')[0]} itself.")
    assert (await threads.store.look("root")).status == "running"


@pytest.mark.parametrize("status", sorted(TERMINAL - {"continued"}))
async def test_every_end_ends_a_wait(threads: ThreadTree, status: Status) -> None:
    threads.start("root")
    threads.start("child", "root")

    async def end() -> None:
        await anyio.to_thread.run_sync(threads.end, "child", status, RESULT)

    waited: dict[str, Any] = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        waited |= await perform(threads, "wait_threads", "root", thread_ids=["child"])
    (child,) = waited["threads"]
    assert waited["success"]
    assert not waited["timed_out"]
    assert child["status"] == status
    assert child["outputs"] == {"n": 3}
    assert child["result"] == "Done."


async def test_a_wait_ends_with_a_thread_of_another_process(
    threads: ThreadTree, workspace: Workspace
) -> None:
    threads.start("root")
    script = """if True:
        import sys
        from pathlib import Path
        from ryecore.state.store import ThreadStore
        from ryecore.state.waiting import run_blocking
        store = ThreadStore.open(Path(sys.argv[1]), Path(sys.argv[2]))
        store.make_folder("far")
        run_blocking(store.registry.register("far", "directive:far", "root"))
        fence = run_blocking(store.registry.claim("far"))
        print("ready", flush=True)
        sys.stdin.readline()
        if sys.argv[3] == "settle":
            run_blocking(store.settle("far", "completed", {"result": "From afar."}, fence))
    """
    places = [str(workspace.path("")), str(workspace.path("", "user"))]
    for ending, status in (("settle", "completed"), ("die", "error")):
        if ending == "die":
            script = script.replace('"far"', '"lost"')
        with subprocess.Popen(
            [sys.executable, "-c", script, *places, ending],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert await anyio.to_thread.run_sync(process.stdout.readline) == "ready\n"
            name = "far" if ending == "settle" else "lost"
            running = await perform(
                threads, "wait_threads", "root", thread_ids=[name], timeout_s=0.01
            )
            assert running["timed_out"]
            process.stdin.write("\n")
            process.stdin.flush()
            waited = await perform(threads, "wait_threads", "root", thread_ids=[name])
        assert waited["threads"][0]["status"] == status


async def test_a_wait_for_any_ends_with_the_first_and_one_in_vain_says_so(
    threads: ThreadTree,
) -> None:
    threads.start("root")
    for name in ("one", "two", "three"):
        threads.start(name, "root")
    vain = await perform(threads, "wait_threads", thread_ids=["one", "two"], timeout_s=0)
    assert (vain["success"], vain["timed_out"]) == (False, True)
    assert vain["error"] == "0 of 2 threads had ended after 0 s."
    threads.end("two")
    waited = await perform(
        threads, "wait_threads", "root", thread_ids=["one", "two", "three"], mode="any"
    )
    assert [one["ended"] for one in waited["threads"]] == [False, True, False]
    assert waited["success"]


async def test_many_are_waited_for_at_the_cost_of_one(threads: ThreadTree) -> None:
    names = [threads.start(f"t-{n}") for n in range(150)]
    descriptors = len(os.listdir("/proc/self/fd"))
    seen: list[int] = []

    async def end_all() -> None:
        for name in reversed(names):
            seen.append(len(os.listdir("/proc/self/fd")))
            await anyio.to_thread.run_sync(threads.end, name)

    waited: dict[str, Any] = {}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_all)
        waited |= await perform(threads, "wait_threads", thread_ids=names)
    assert all(one["status"] == "completed" for one in waited["threads"])
    assert max(seen) < descriptors + 20
    refused = await perform(threads, "wait_threads", thread_ids=names, mode="any")
    assert refused["error"].startswith("150 threads are named, not 1 to 100.")


async def test_a_cancelled_wait_leaves_nothing_behind(threads: ThreadTree) -> None:
    threads.start("child")
    with anyio.move_on_after(0.1) as scope:
        await perform(threads, "wait_threads", thread_ids=["child"])
    assert scope.cancelled_caught


async def test_stopping_a_thread_stops_all_below_it(threads: ThreadTree) -> None:
    threads.start("root")
    threads.start("child", "root")
    threads.start("grandchild", "child")
    stopped = await perform(threads, "cancel_thread", "root", thread_id="child")
    assert (stopped["success"], stopped["cancel_requested"]) == (True, True)
    assert (await threads.store.look("grandchild")).cancel_requested
    assert not (await threads.store.look("root")).cancel_requested


async def test_a_continuation_looks_after_what_was_started_before_it(threads: ThreadTree) -> None:
    threads.start("first")
    threads.start("child", "first")
    threads.write("first", ("cognition_in", {"turn": 1, "parts": [{"text": "the tides of Fundy"}]}))
    threads.hand_off("first", "second")
    threads.write("second", ("cognition_out", {"turn": 1, "parts": [{"text": "Fundy again"}]}))
    active = await perform(threads, "list_active", "second")
    assert [one["thread_id"] for one in active["threads"]] == ["child"]
    chain = await perform(threads, "get_chain", "second", thread_id="second")
    assert [one["thread_id"] for one in chain["chain"]] == ["first", "second"]
    assert chain["chain_root_id"] == "first"
    found = await perform(threads, "chain_search", "second", query="FUNDY")
    assert [(one["thread_id"], one["excerpt"]) for one in found["results"]] == [
        ("first", "the tides of Fundy"),
        ("second", "Fundy again"),
    ]
    assert (await perform(threads, "get_status", thread_id="first"))[
        "continuation_thread_id"
    ] == "second"
    # The other way round nothing is reached: what went on is no business of what has ended.
    assert not (await perform(threads, "get_status", "first", thread_id="second"))["success"]


async def test_results_are_put_together_and_bounded(threads: ThreadTree) -> None:
    threads.start("root")
    for name in ("one", "two"):
        threads.start(name, "root")
    threads.end("one", result={"result": "x" * 100_000, "outputs": {"long": "y" * 50_000, "n": 1}})
    threads.end("two", "error", {"error": "It broke.", "error_code": "provider_auth"})
    both = await perform(threads, "aggregate_results", "root", thread_ids=["one", "two", "one"])
    one, two = both["results"]
    assert both["counts"] == {"completed": 1, "error": 1}
    assert both["totals"] == {"turns": 0, "input_tokens": 0, "output_tokens": 0, "spend": 0.0}
    assert one["result"].endswith("… (96000 more characters)")
    assert one["outputs"]["n"] == 1
    assert two["error_code"] == "provider_auth"
    assert len(json.dumps(both)) < 10_000


SEARCHED = (
    ("cognition_in", {"turn": 1, "parts": [{"type": "text", "text": "Find order 4711\nnow"}]}),
    ("token_delta", {"text": "order 4711"}),
    ("tool_call_start", {"turn": 1, "tool": "orders", "input": {"id": 4711}}),
    (
        "tool_call_result",
        {"turn": 1, "content": [{"text": f"{'-' * 900} ORDER x-99 {'-' * 9000}"}]},
    ),
    ("cognition_out", {"turn": 2, "parts": [{"text": "a" * 1500 + "!"}]}),
)


@pytest.mark.parametrize(
    ("query", "search_type", "types"),
    [
        ("4711", "text", ["cognition_in", "tool_call_start"]),
        ("order", "text", ["cognition_in", "tool_call_start", "tool_call_result"]),
        ("ORDER", "regex", ["tool_call_result"]),
        (r"^Find\b", "regex", ["cognition_in"]),
        (r"ORDER [a-z]-\d+", "regex", ["tool_call_result"]),
        (r"(a+)+$", "regex", []),  # would never end where engines track back
        (r"(a|aa)+!$", "regex", ["cognition_out"]),
        ("nowhere", "text", []),
    ],
)
async def test_transcripts_are_searched(
    threads: ThreadTree, query: str, search_type: str, types: list[str]
) -> None:
    threads.start("root")
    threads.write("root", *SEARCHED)
    found = await perform(
        threads, "chain_search", thread_id="root", query=query, search_type=search_type
    )
    assert [one["event_type"] for one in found["results"]] == types
    assert all(len(one["excerpt"]) <= 302 for one in found["results"])
    assert not found["truncated"]


async def test_a_search_is_bounded_and_says_so(threads: ThreadTree) -> None:
    threads.start("root")
    threads.write("root", *[("cognition_in", {"turn": n, "parts": ["word"]}) for n in range(9)])
    found = await perform(threads, "chain_search", thread_id="root", query="word", max_results=8)
    assert [one["turn"] for one in found["results"]] == list(range(8))
    assert found["truncated"]
    for query, kind in (("(", "regex"), ("   ", "text"), (r"(?:a{0,1000}){0,1000}", "regex")):
        refused = await perform(
            threads, "chain_search", thread_id="root", query=query, search_type=kind
        )
        assert refused["error_type"] == "invalid_query"


async def test_the_tail_of_a_transcript_is_read(threads: ThreadTree) -> None:
    threads.start("root")
    threads.write("root", *SEARCHED)
    tail = await perform(threads, "read_transcript", "root", thread_id="root", tail_lines=2)
    assert [one["event_type"] for one in tail["records"]] == ["tool_call_result", "cognition_out"]
    assert tail["total"] == 4
    assert len(json.dumps(tail)) < 6000
    deltas = await perform(threads, "read_transcript", thread_id="root", types=["token_delta"])
    assert [one["payload"] for one in deltas["records"]] == [{"text": "order 4711"}]
    threads.start("silent")
    assert (await perform(threads, "read_transcript", thread_id="silent"))["records"] == []


async def test_threads_are_started_again_by_whoever_runs_them(threads: ThreadTree) -> None:
    threads.start("root")
    threads.start("child", "root")
    starter = Starter()
    orchestrator = Orchestrator(lambda: threads.store, starter)
    root = CallContext(frozenset({CAPABILITY}), "root")

    async def ask(**given: str) -> dict[str, Any]:
        return await orchestrator.perform(given, root)

    resume = {"operation": "resume_thread", "thread_id": "child", "message": "Go on."}
    assert "still running" in (await ask(**resume))["error"]
    assert (await ask(operation="handoff_thread", thread_id="child"))["success"]
    threads.end("child")
    assert (
        "can't be handed off" in (await ask(operation="handoff_thread", thread_id="child"))["error"]
    )
    assert (await ask(**resume))["thread_id"] == "child-2"
    assert not (await ask(**{**resume, "message": "  "}))["success"]
    assert starter.asked == [
        ("hand_off", "child", "root"),
        ("resume", "child", "Go on.", "root"),
    ]


async def test_an_agent_that_is_no_thread_looks_after_none(threads: ThreadTree) -> None:
    threads.start("root")
    orchestrator = Orchestrator(lambda: threads.store, Starter())
    refused = await orchestrator.perform(
        {"operation": "list_active"}, CallContext(frozenset({CAPABILITY}))
    )
    assert str(refused["error"]).startswith("Only a thread or the host may manage threads.")


async def test_a_model_is_told_what_it_can_correct(threads: ThreadTree) -> None:
    threads.start("root")
    registry = ToolRegistry([orchestrator_tool(lambda: threads.store, Starter())])
    ctx = ToolContext(call=CallContext(frozenset({CAPABILITY}), "root"))

    async def call(**given: Any) -> dict[str, Any]:
        text = json.dumps(given)
        outcome = await registry.dispatch(ToolCallPart("c1", "rye_orchestrator", text), ctx)
        (part,) = outcome.part.content
        assert isinstance(part, TextPart)
        answer: dict[str, Any] = json.loads(part.text)
        return answer

    with pytest.raises(ToolArgsInvalidError, match='operation: "fly" is not one of'):
        await call(operation="fly")
    with pytest.raises(InvalidParameters) as unknown:
        await perform(threads, "fly")
    assert all(operation in str(unknown.value) for operation in OPERATIONS)
    with pytest.raises(ToolArgsInvalidError, match="thread_id: get_status needs it"):
        await call(operation="get_status")
    with pytest.raises(ToolArgsInvalidError, match="max_results"):
        await call(operation="chain_search", query="x", max_results=51)
    assert (await call(operation="get_status", thread_id="nobody"))["success"] is False
    assert (await call(operation="get_status", thread_id="root"))["status"] == "running"


def test_the_system_tool_says_the_same_as_the_one_that_is_served() -> None:
    said = literals(RYE / "agent/threads/orchestrator.py")
    assert said["CONFIG_SCHEMA"].pop("$schema")
    assert said["CONFIG_SCHEMA"] == PARAMETERS
    tool = orchestrator_tool(lambda: pytest.fail("it opens no store"), Starter())
    assert said["__tool_description__"] == tool.description
    assert f"{said['__category__']}/orchestrator" == ORCHESTRATOR


async def test_the_system_tool_is_served_by_the_rye_and_runs_no_process(
    workspace: Workspace,
) -> None:
    async with workspace.open() as rye:
        done = await rye.execute(f"tool:{ORCHESTRATOR}", {"operation": "list_active"})
    assert done.data == {"success": True, "count": 0, "threads": []}
