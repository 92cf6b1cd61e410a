"""A start that is repeated with the same idempotency key finds the run that there is."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from ryecore import CallContext, CancelToken, Rye
from ryecore.errors import AlreadyStarted, CallCancelled, InputError, RyeError, ThreadConflict
from ryecore.lillux.processes import current_process
from ryecore.state.idempotency import IdempotencyKey
from ryecore.state.model import Predecessor, Status
from ryecore.state.waiting import run_blocking
from tests.forking import Forked
from tests.graphs import graph
from tests.matrix import IS_SOAK
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]
PATIENCE_S = 60.0
PROCESSES = 8 if IS_SOAK else 4

STARTS = """
import sys, anyio, json
from pathlib import Path
from ryecore import CallContext, CancelToken, Rye
from tests.thread_host import _deps
root = Path(sys.argv[1])
async def main():
    opened = Rye.open(root / 'project', user_space=root / 'user', **_deps(root))
    async with opened as rye:
        print('ready', flush=True)
        sys.stdin.readline()
        if sys.argv[3] == 'graph_run':
            print((await rye.graphs.run(sys.argv[2], idempotency_key='order-17')).run_id)
            return
        if sys.argv[3] == 'graph_start':
            run = await rye.graphs.start(sys.argv[2], idempotency_key='order-17')
            print((await run.result()).run_id)
            return
        if sys.argv[3] == 'directive':
            started = await rye.start(sys.argv[2], idempotency_key='order-17')
            await started.result()
        else:
            started = await rye.execute(sys.argv[2], async_=True, idempotency_key='order-17')
            await rye.threads.wait(started.thread_id)
        print(started.thread_id, flush=True)
anyio.run(main)
"""


def items(planned: PlannedWorkspace) -> dict[str, str]:
    """A tool, a graph and a directive, each of which leaves one mark."""
    workspace = planned.workspace
    workspace.shell("acme/pay", 'echo paid >> "$1/../marks"; echo 1')
    graph(workspace, {"pay": {"action": {"item_id": "tool:acme/pay"}}}, "acme/flow")
    permits = "<execute><tool>host/*</tool></execute>"
    work = planned.write("work", ["mark", {"text": "paid"}], permissions=permits)
    return {"tool": "tool:acme/pay", "graph": "tool:acme/flow", "directive": work}


def marks(planned: PlannedWorkspace) -> list[str]:
    return (planned.root / "marks").read_text().split()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the processes' loops are their own
@pytest.mark.parametrize("kind", ["tool", "graph", "directive"])
async def test_of_several_processes_that_start_with_one_key_one_does(
    tmp_path: Path, kind: str
) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    ref = items(planned)[kind]
    script = tmp_path / "starts.py"
    script.write_text(STARTS)
    ways = ["graph", "graph_start", "graph_run"] if kind == "graph" else [kind]
    hosts = [
        Forked(
            [str(script), str(tmp_path), ref, ways[number % len(ways)]],
            env=planned.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    assert [host.stdout.readline() for host in hosts if host.stdout] == [b"ready\n"] * PROCESSES
    for host in hosts:
        assert host.stdin
        host.stdin.write(b"go\n")
        host.stdin.flush()
    ids = {host.communicate(timeout=PATIENCE_S)[0].strip() for host in hosts}
    assert len(ids) == 1
    assert b"" not in ids
    assert marks(planned) == ["paid"]
    assert await planned.store().registry.count_threads() == 1


async def again(rye: Rye, ref: str, **options: Any) -> dict[str, Any]:
    thread = "fork" if ref.startswith("directive:") else "inline"
    return dict((await rye.execute(ref, async_=True, thread=thread, **options)).to_dict())


async def test_a_repeated_start_is_answered_with_the_result_once_it_has_ended(
    tmp_path: Path,
) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    refs = items(planned)
    async with planned.open() as rye:
        for kind, ref in refs.items():
            first = await again(rye, ref, idempotency_key=kind)
            assert "already_started" not in first
            await rye.threads.wait(first["thread_id"])
            second = await again(rye, ref, idempotency_key=kind)
            assert second["thread_id"] == first["thread_id"]
            assert (second["already_started"], second["state"]) == (True, "completed")
            assert second["result"] is not None
            json.dumps(second)
        assert marks(planned) == ["paid"] * 3
        done = await rye.execute(refs["directive"], thread="fork", idempotency_key="fork")
        same = await rye.execute(refs["directive"], thread="fork", idempotency_key="fork")
        assert done.to_dict()["thread_id"] == same.to_dict()["thread_id"]
    assert marks(planned) == ["paid"] * 4


async def test_a_key_of_another_request_is_refused_with_both_named(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    refs = items(planned)
    async with planned.open() as rye:
        first = await again(rye, refs["tool"], idempotency_key="k")
        for ref, parameters in ((refs["graph"], {}), (refs["tool"], {"n": 1})):
            with pytest.raises(InputError) as refused:
                await rye.execute(ref, parameters, async_=True, idempotency_key="k")
            for named in ("tool:acme/pay", ref, first["thread_id"]):
                assert named in str(refused.value)
        for bad in ("", "a b", "x" * 201, 5):
            with pytest.raises(InputError, match="idempotency key"):
                await again(rye, refs["tool"], idempotency_key=bad)
        with pytest.raises(InputError, match="async"):
            await rye.execute(refs["tool"], idempotency_key="k")
        await rye.threads.wait(first["thread_id"])
    assert marks(planned) == ["paid"]


async def test_a_guessed_key_shows_and_blocks_no_run_of_a_caller_that_may_do_more(
    tmp_path: Path,
) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    refs = items(planned)
    less = CallContext(capabilities=frozenset({"rye.execute.tool.acme.*"}))
    async with planned.open() as rye:
        mine = await again(rye, refs["tool"], idempotency_key="nightly")
        other = await again(rye, refs["tool"], idempotency_key="nightly", ctx=less)
        assert other["thread_id"] != mine["thread_id"]
        assert "already_started" not in other
        await rye.execute(refs["tool"], {"n": 1}, async_=True, idempotency_key="late", ctx=less)
        await again(rye, refs["tool"], idempotency_key="late")
        run = await rye.graphs.run(refs["graph"], idempotency_key="flow")
        with pytest.raises(RyeError, match="capability"):
            await rye.graphs.run(
                refs["graph"], idempotency_key="flow", ctx=CallContext(capabilities=frozenset())
            )
        same = await rye.graphs.run(refs["graph"], idempotency_key="flow", ctx=less)
        assert same.run_id != run.run_id
        repeated = await rye.graphs.run(refs["graph"], idempotency_key="flow", ctx=less)
        assert repeated.run_id == same.run_id
        for one in await rye.threads.list():
            await rye.threads.wait(one.thread_id)


async def test_a_start_that_failed_before_it_began_frees_its_key(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    ref = items(planned)["directive"]
    async with planned.open(agent=None, deps_factory=None) as rye:
        with pytest.raises(RyeError, match="model"):
            await rye.start(ref, idempotency_key="k")
    async with planned.open() as rye:
        with anyio.fail_after(PATIENCE_S):
            assert (await (await rye.start(ref, idempotency_key="k")).result()).success
    assert marks(planned) == ["paid"]


FACTORY = """
from pathlib import Path
from tests.thread_host import deps as deps_of_tests
def deps():
    root = Path({root!r})
    if (root / 'broken').exists():
        raise RuntimeError('no models today')
    return {{}} if (root / 'empty').exists() else deps_of_tests()
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the process's loop is its own
@pytest.mark.parametrize(("kind", "state"), [
    ("tool", "broken"), ("graph", "broken"), ("directive", "broken"), ("directive", "empty"),
])  # fmt: skip
async def test_a_start_whose_own_process_failed_before_it_began_frees_its_key(
    tmp_path: Path, kind: str, state: str
) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    ref = items(planned)[kind]
    (tmp_path / "shop_models.py").write_text(FACTORY.format(root=str(tmp_path)))
    planned.workspace.environ["PYTHONPATH"] += f":{tmp_path}"
    (tmp_path / state).touch()
    with anyio.fail_after(PATIENCE_S):
        async with planned.open(deps_factory="shop_models:deps") as rye:
            first = await again(rye, ref, idempotency_key="k")
            ended = await rye.threads.wait(first["thread_id"])
            assert ended.status == "error"
            (tmp_path / state).unlink()
            second = await again(rye, ref, idempotency_key="k")
            assert second["thread_id"] != first["thread_id"]
            assert (await rye.threads.wait(second["thread_id"])).status == "completed"
            third = await again(rye, ref, idempotency_key="k")
            assert third["thread_id"] == second["thread_id"]
    assert marks(planned) == ["paid"]


async def test_a_start_whose_process_died_before_it_began_frees_its_key(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    ref = items(planned)["tool"]
    dead = subprocess.Popen(["true"])
    dead.wait()
    owner = evolve(current_process(), pid=dead.pid, start_ticks=1)
    registry = planned.store().registry
    key = IdempotencyKey.of("k", ref, {"parameters": {}, "model": None, "limits": {}})
    await registry.register("left", ref, owner=owner, start=key)
    async with planned.open() as rye:
        started = await again(rye, ref, idempotency_key="k")
        assert started["thread_id"] != "left"
        await rye.threads.wait(started["thread_id"])
    assert marks(planned) == ["paid"]
    assert (await registry.get_thread("left")).status == "error"
    with pytest.raises(ThreadConflict):
        await registry.claim("left")  # its process comes too late


@pytest.mark.parametrize("kind", ["tool", "graph", "directive", "graph_here", "directive_here"])
async def test_repeated_starts_of_one_parent_are_counted_once(tmp_path: Path, kind: str) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    ref = items(planned)[kind.removesuffix("_here")]
    plan, limits = ["gate", {"name": "boss"}], 'turns="4" depth="3" spawns="3" spend="1"'
    boss = planned.write("boss", plan, limits=limits)
    ids: set[str] = set()

    async with planned.open() as rye:
        parent = await rye.start(boss)
        await planned.begun("boss")

        async def start() -> None:
            ctx = CallContext(budget_account=parent.thread_id)
            if kind == "graph_here":
                ids.add((await rye.graphs.start(ref, idempotency_key="k", ctx=ctx)).run_id)
            elif kind == "directive_here":
                ids.add((await rye.start(ref, idempotency_key="k", ctx=ctx)).thread_id)
            else:
                ids.add((await again(rye, ref, idempotency_key="k", ctx=ctx))["thread_id"])

        async with anyio.create_task_group() as starts:
            for _ in range(8):
                starts.start_soon(start)
        planned.allow("boss")
        done = await parent.result()
        assert done.success
        assert "passed boss" in done.text  # it ran until all were started
    registry = planned.store().registry
    (child,) = await registry.list_children(done.thread_id)
    assert ids == {child.thread_id}
    parent_row = await registry.get_thread(done.thread_id)
    assert child.status == "completed", (child, parent_row)  # its parent has waited for it
    assert marks(planned) == ["paid"]
    assert parent_row.spawn_count == 1


def test_a_key_counts_within_the_chain_of_the_thread_that_starts(tmp_path: Path) -> None:
    registry = PlannedWorkspace(Workspace(tmp_path)).store().registry
    key = IdempotencyKey.of("k", "tool:acme/pay", {})
    run_blocking(registry.register("first", "directive:acme/work"))
    run_blocking(
        registry.register("next", "directive:acme/work", follows=Predecessor("first", "first"))
    )
    run_blocking(registry.register("other", "directive:acme/work"))
    run_blocking(registry.register("child", "tool:acme/pay", "first", start=key))
    for parent in ("first", "next"):  # what it is handed off to is the same work
        with pytest.raises(AlreadyStarted) as started:
            run_blocking(registry.register("again", "tool:acme/pay", parent, start=key))
        assert started.value.thread_id == "child"
    run_blocking(registry.register("others", "tool:acme/pay", "other", start=key))
    run_blocking(registry.register("hosts", "tool:acme/pay", start=key))


def counting(planned: PlannedWorkspace, on_error: str = "continue") -> str:
    """A graph that leaves a mark, and whose second node fails."""
    planned.workspace.shell("acme/pay", 'echo paid >> "$1/../marks"; echo 1')
    nodes = {
        "pay": {
            "action": {"item_id": "tool:acme/pay"},
            "assign": {"count": "${result.stdout}"},
            "next": "bad",
        },
        "bad": {"action": {"item_id": "tool:acme/none"}, "next": "done"},
        "done": {"type": "return", "output": {"n": "${inputs.n}"}},
    }
    inputs = {"n": {"type": "integer"}}
    more: dict[str, Any] = {"state": {"count": 0}, "on_error": on_error}
    return graph(planned.workspace, nodes, "acme/count", inputs=inputs, **more)


@pytest.mark.parametrize(("on_error", "ended", "output"), [
    ("continue", "completed_with_errors", {"n": 3}), ("fail", "error", None),
])  # fmt: skip
async def test_a_repeated_run_of_a_graph_gives_the_result_that_there_is(
    tmp_path: Path, on_error: str, ended: str, output: object
) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    ref = counting(planned, on_error)
    async with planned.open() as rye:
        first = await rye.graphs.run(ref, {"n": 3}, idempotency_key="k")
        assert (first.ended, first.output) == (ended, output)
    with planned.workspace.sync() as rye:
        run = rye.graphs.start(ref, {"n": 3}, idempotency_key="k")
        for again in (rye.graphs.run(ref, {"n": 3}, idempotency_key="k"), run.result()):
            assert again.to_dict() == first.to_dict()
            for name in ("run_id", "ended", "output", "steps", "state", "failed", "errors",
                         "suppressed", "cost", "total", "error"):  # fmt: skip
                assert getattr(again, name) == getattr(first, name), name
            assert again.run_status is not None
            assert first.run_status is not None
            assert {name: one.status for name, one in again.run_status.nodes.items()} == {
                name: one.status for name, one in first.run_status.nodes.items()
            }
        assert next(event.type for event in run.events()) == "run_started"
        assert (run.run_id, set(run.graph.nodes)) == (first.run_id, {"pay", "bad", "done"})
        kept = rye.execute(ref, {"n": 3}, async_=True, idempotency_key="k").to_dict()
        assert (kept["thread_id"], kept["already_started"]) == (first.run_id, True)
        for inputs, limits in (({"n": 4}, None), ({"n": 3}, {"turns": 3})):
            with pytest.raises(InputError, match="with other parameters"):
                rye.graphs.run(ref, inputs, limits=limits, idempotency_key="k")
        (planned.workspace.project / ".ai/tools/acme/count.yaml").unlink()  # its run is there still
        kept = rye.execute(ref, {"n": 3}, async_=True, idempotency_key="k").to_dict()
        assert (kept["thread_id"], kept["chain"]) == (first.run_id, [])
        assert rye.graphs.run(ref, {"n": 3}, idempotency_key="k").ended == ended
    assert marks(planned) == ["paid"]


async def test_a_repeated_run_waits_for_the_one_that_runs_elsewhere(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    wait = 'touch "$1/../here"; while ! test -e "$1/../go"; do sleep 0.02; done; echo 1'
    planned.workspace.shell("acme/wait", wait)
    ref = graph(
        planned.workspace, {"wait": {"action": {"item_id": "tool:acme/wait"}}}, "acme/wait2"
    )
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            started = await again(rye, ref, idempotency_key="k")
            found = await rye.graphs.start(ref, idempotency_key="k")
            assert found.run_id == started["thread_id"]
            stop = CancelToken()
            async with anyio.create_task_group() as tasks:

                async def give_up() -> None:
                    with pytest.raises(CallCancelled):
                        await rye.graphs.run(
                            ref, idempotency_key="k", ctx=CallContext(cancellation=stop)
                        )

                tasks.start_soon(give_up)
                async for event in found.events():
                    if event.type == "node_started":
                        stop.cancel()
                        break
            (tmp_path / "go").touch()
            result = await rye.graphs.run(ref, idempotency_key="k")
            assert (result.success, result.run_id) == (True, found.run_id)
            assert await found.result() == result


@pytest.mark.fresh_processes
async def test_a_repeated_run_says_how_the_one_stands_that_died(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    planned.workspace.shell("acme/wait", "exec sleep 300")
    ref = graph(
        planned.workspace, {"wait": {"action": {"item_id": "tool:acme/wait"}}}, "acme/wait2"
    )
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            started = await again(rye, ref, idempotency_key="k")
            found = await rye.graphs.start(ref, idempotency_key="k")
            async for event in found.events():
                if event.type == "node_started":
                    os.kill(started["pid"], signal.SIGKILL)
            done = await rye.graphs.run(ref, idempotency_key="k")
    assert (done.run_id, done.ended, done.effect_unknown) == (found.run_id, "error", True)
    assert str(started["pid"]) in (done.error or "")
    assert done.duration_ms > 0


async def test_a_found_run_is_cancelled_from_another_process(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    planned.workspace.shell("acme/wait", "exec sleep 300")
    ref = graph(
        planned.workspace, {"wait": {"action": {"item_id": "tool:acme/wait"}}}, "acme/wait2"
    )
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            await again(rye, ref, idempotency_key="k")
            found = await rye.graphs.start(ref, idempotency_key="k")
            await found.cancel()
            done = await found.result()
            assert (done.ended, done.success) == ("cancelled", False)


def test_the_command_finds_the_run_of_its_key(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    ref = counting(planned)

    def rye(*arguments: str) -> dict[str, Any]:
        project = ["--project", str(planned.workspace.project), "--json", "--idempotency-key", "k"]
        command = ["ryecore.cli", "graph", "run", ref, *arguments, *project]
        environ = {**planned.environ, "USER_SPACE": str(planned.workspace.user)}
        with Forked(command, env=environ, stdout=subprocess.PIPE) as process:
            return dict(json.loads(process.communicate()[0]))

    first = rye("n=3")
    again = rye("n=3")
    assert again["metadata"].pop("already_started") is True
    assert again == first
    assert rye("n=3", "--async")["thread_id"] == first["data"]["graph_run_id"]
    assert "with other parameters" in rye("n=4")["error"]
    assert marks(planned) == ["paid"]


async def test_a_repeated_start_finds_what_has_resumed_its_run(tmp_path: Path) -> None:
    planned = PlannedWorkspace(Workspace(tmp_path))
    planned.workspace.shell("acme/pay", 'test -e "$1/../ok" || exit 3; echo paid >> "$1/../marks"')
    ref = graph(planned.workspace, {"pay": {"action": {"item_id": "tool:acme/pay"}}})
    async with planned.open() as rye:
        first = await rye.graphs.run(ref, idempotency_key="k")
        assert not first.success
        same = await rye.graphs.run(ref, idempotency_key="k")
        assert same.to_dict() == first.to_dict()
        (tmp_path / "ok").touch()
        resumed = await rye.graphs.resume(first.run_id)
        assert resumed.success
        same = await rye.graphs.run(ref, idempotency_key="k")
        assert same.to_dict() == resumed.to_dict()
        assert (await again(rye, ref, idempotency_key="k"))["thread_id"] == resumed.run_id
    assert marks(planned) == ["paid"]


@pytest.mark.parametrize(("status", "finds"), [
    ("error", "second"), ("killed", "second"), ("cancelled", "second"), ("completed", "first"),
    ("continued", "first"),
])  # fmt: skip
def test_a_run_that_was_resumed_stands_for_the_one_that_died(
    tmp_path: Path, status: Status, finds: str
) -> None:
    registry = PlannedWorkspace(Workspace(tmp_path)).store().registry
    key = IdempotencyKey.of("k", "directive:acme/work", {})
    run_blocking(registry.register("first", "directive:acme/work", start=key))
    run_blocking(registry.settle("first", status, {}, fence=run_blocking(registry.claim("first"))))
    for name in ("idle", "second"):
        follows = Predecessor("first", "first")
        run_blocking(registry.register(name, "directive:acme/work", follows=follows))
        if name == "second":
            run_blocking(registry.claim(name))
        else:  # it failed before it began
            run_blocking(registry.settle(name, "error", {}))
    with pytest.raises(AlreadyStarted) as started:
        run_blocking(registry.check_start(key, None))
    assert started.value.thread_id == finds


def test_what_resumed_the_last_thread_of_a_handoff_is_found(tmp_path: Path) -> None:
    registry = PlannedWorkspace(Workspace(tmp_path)).store().registry
    key = IdempotencyKey.of("k", "directive:acme/work", {})
    statuses: dict[str, tuple[Status, str]] = {  # each with the one that is found then
        "first": ("continued", "first"),
        "second": ("error", "first"),
        "third": ("continued", "third"),
        "fourth": ("completed", "third"),
    }
    previous = None
    for name, (status, finds) in statuses.items():
        follows = None if previous is None else Predecessor(previous, "first")
        start = key if previous is None else None
        run_blocking(registry.register(name, "directive:acme/work", follows=follows, start=start))
        run_blocking(registry.settle(name, status, {}, fence=run_blocking(registry.claim(name))))
        with pytest.raises(AlreadyStarted) as started:
            run_blocking(registry.check_start(key, None))
        assert started.value.thread_id == finds
        previous = name
