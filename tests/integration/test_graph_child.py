"""Graphs as `rye.execute` runs them: each in a process of its own."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import ExecutionResult, Rye
from ryecore.chain.primitives import EFFECT_UNKNOWN
from ryecore.errors import CallCancelled, GraphInvalid, IncompatibleChain, InvalidParameters
from ryecore.policy import CallContext, CancelToken
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import THREAD_FILE, read_thread_file
from tests.detached import PATIENCE_S, end_of, launch, log_of, until_printed
from tests.graphs import ADDING, ALL_OF_ACME, adding, graph
from tests.interpreter import PYTHON
from tests.loops import ON_BOTH_LOOPS
from tests.matrix import IS_SOAK, in_turn
from tests.unit.lillux.system import wait_until_dead
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The child's loop is its own, whatever its host runs on."""
    return "asyncio"


FORKED = pytest.mark.usefixtures("forked_walkers")
"""A test of what a walker does, and not of how its process begins or ends."""

SECRET = "s3cret-of-the-caller"


def hanging(workspace: Workspace, script: str = "wait") -> str:
    """A graph whose tool writes the numbers of its graph, itself and its child, and stays."""
    pids = workspace.root / "pids"
    workspace.shell("acme/hang", f"sleep 300 & echo $PPID $$ $! end >> {pids}\n{script}")
    return graph(workspace, {"stay": {"action": {"item_id": "tool:acme/hang"}}}, "acme/stay")


async def pids_of(workspace: Workspace) -> list[int]:
    said = await until_printed(workspace.root / "pids", "end")
    return [int(one) for one in said.split()[:3]]


def pids_so_far(workspace: Workspace) -> list[int]:
    """The same; none where the tool has not been started yet, as a busy machine may not."""
    path = workspace.root / "pids"
    return [int(one) for one in path.read_text().split()[:3]] if path.exists() else []


def store_of(workspace: Workspace) -> ThreadStore:
    return ThreadStore.open(workspace.path(""), workspace.path("", "user"))


def document(done: ExecutionResult) -> Mapping[str, Any]:
    assert isinstance(done.data, Mapping)
    return done.data


def signed_status(workspace: Workspace, run_id: str) -> str:
    """What the run's own file says, as the run key has signed it."""
    key = load_run_key(workspace.path("", "user")).public
    path = workspace.path(f"state/threads/{run_id}/{THREAD_FILE}")
    return str(read_thread_file(path, key, run_id)["status"])


@asynccontextmanager
async def running(rye: Rye, ref: str, **options: Any) -> AsyncGenerator[list[ExecutionResult]]:
    """A graph that goes on while the block runs, and is waited for at its end."""
    done: list[ExecutionResult] = []

    async def run() -> None:
        done.append(await rye.execute(ref, **options))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            yield done


@FORKED
async def test_a_graph_runs_and_its_document_is_the_data(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        done = await rye.execute(adding(workspace), {"a": 41})
        said = document(done)
        run_id = said["graph_run_id"]
        report = await rye.threads.show(run_id)
    assert (done.status, done.error) == ("success", None)
    assert (said["success"], said["status"], said["output"]) == (True, "completed", {"sum": 42})
    assert re.fullmatch(r"acme/flow/flow-\d+", run_id)
    assert (report.status, report.record.parent_id, report.data) == ("completed", None, said)
    assert signed_status(workspace, run_id) == "completed"
    assert done.chain.ids[1] == "rye/core/runtimes/state-graph/runtime"


@FORKED
async def test_a_graph_that_fails_is_a_failed_result(workspace: Workspace) -> None:
    workspace.shell("acme/bad", "echo 'no such tide' >&2; exit 3")
    ref = graph(workspace, {"load": {"action": {"item_id": "tool:acme/bad"}}})
    async with workspace.open() as rye:
        done = await rye.execute(ref)
        said = document(done)
        assert (await rye.threads.show(said["graph_run_id"])).status == "error"
    assert (done.status, said["success"], said["status"]) == ("error", False, "error")
    assert (said["node"], done.error) == ("load", "load: no such tide")


async def test_what_is_wrong_with_the_call_is_said_before_anything_is_registered(
    workspace: Workspace,
) -> None:
    async with workspace.open() as rye:
        with pytest.raises(InvalidParameters):
            await rye.execute(adding(workspace), {"a": "x"})
    assert not workspace.path("state").exists()


@FORKED
async def test_a_graph_that_is_none_is_refused_with_its_problems(workspace: Workspace) -> None:
    ref = graph(workspace, {"one": {"type": "gate", "next": "nowhere"}})
    async with workspace.open() as rye:
        done = await rye.execute(ref)
        said = document(done)
        report = await rye.threads.show(said["graph_run_id"])
    assert done.status == report.status == "error"
    assert "nowhere" in str(done.error)
    assert said["problems"]


async def test_a_dry_run_registers_and_mints_nothing(workspace: Workspace) -> None:
    ref = adding(workspace)
    async with workspace.open() as rye:
        done = await rye.execute(ref, {"a": 1}, dry_run=True)
        assert done.plan is not None
        told = json.loads(done.plan.stdin)
        assert (told["parameters"], set(told)) == ({"a": 1}, {"digest", "parameters"})
        assert done.plan.timeout_s == 600
    assert not workspace.path("state").exists()


# What it may do


@FORKED
async def test_a_parameter_raises_no_capability(workspace: Workspace) -> None:
    workspace.python("other/add", ADDING)
    nodes = {"add": {"action": {"item_id": "tool:other/add", "params": {"a": 1, "b": 1}}}}
    ref = graph(workspace, nodes, permissions=(ALL_OF_ACME, "rye.execute.tool.other.add"))
    raised = {"capabilities": ["*"], "permissions": ["*"], "context": {"capabilities": None}}
    async with workspace.open() as rye:
        mine = await rye.execute(ref)
        bound = CallContext(capabilities=frozenset({ALL_OF_ACME}))
        theirs = await rye.execute(ref, raised, ctx=bound)
    assert mine.status == "success"
    assert theirs.status == "error"
    assert "rye.execute.tool.other.add" in str(theirs.error)


@FORKED
async def test_the_file_that_was_planned_is_the_one_that_runs(workspace: Workspace) -> None:
    ref = adding(workspace)

    def change(event: Mapping[str, object]) -> None:
        if event["step"] == "plan":  # it has been verified, and nothing has been started
            graph(workspace, {"other": {"type": "return", "output": "another file"}})

    async with workspace.open() as rye:
        done = await rye.execute(ref, {"a": 1}, ctx=CallContext(event_sink=change))
        said = document(done)
        report = await rye.threads.show(said["graph_run_id"])
    assert (done.status, report.status) == ("error", "error")
    assert "has changed since" in str(done.error)
    assert "another file" not in json.dumps(said)


@FORKED
async def test_a_graph_changes_nothing_of_how_its_process_is_started(workspace: Workspace) -> None:
    nodes = {"done": {"type": "return", "output": 1}}
    graph(workspace, nodes, "acme/steering", command="/bin/echo", args=["hi"], input_data="{}")
    ref = graph(workspace, nodes, timeout=7)
    async with workspace.open() as rye:
        with pytest.raises(GraphInvalid, match="'command' is not a key of config"):
            await rye.execute("tool:acme/steering", dry_run=True)
        assert document(await rye.execute("tool:acme/steering"))["status"] == "error"
        plan = (await rye.execute(ref, dry_run=True)).plan
    assert plan is not None
    assert (plan.command, Path(plan.args[-1]).name, plan.timeout_s) == (
        sys.executable,
        "graph_worker.py",
        7,
    )


async def test_another_runtime_of_the_same_name_is_not_taken_for_ours(workspace: Workspace) -> None:
    """The project has signed it, it starts another program, and asks for the host's keys."""
    ref = adding(workspace)
    show = {"command": "/usr/bin/env", "args": ["-0"], "input_data": "{call_json}"}
    name = "rye/core/runtimes/state-graph/runtime"
    workspace.yaml(name, config=show)
    workspace.environ["ACME_API_KEY"] = SECRET
    async with workspace.open() as rye:
        assert SECRET not in json.dumps((await rye.execute(ref, {"a": 1})).to_dict())
        workspace.yaml(name, config=show, own_process=True)
        with pytest.raises(IncompatibleChain, match="only ryecore's own bundle may"):
            await rye.execute(ref, {"a": 1})


async def test_who_is_started_gets_the_safe_environment_and_no_name_of_a_parent(
    workspace: Workspace,
) -> None:
    workspace.environ["ACME_API_KEY"] = SECRET
    workspace.shell(
        "acme/env",
        "env -0 | base64 -w0; echo; base64 -w0 < /proc/$PPID/environ; echo; "
        "base64 -w0 < /proc/$PPID/cmdline",
    )
    inner = {"look": {"action": {"item_id": "tool:acme/env"},
                      "assign": {"seen": "${result.stdout}"}, "next": "done"},
             "done": {"type": "return", "output": "${state.seen}"}}  # fmt: skip
    graph(workspace, inner, "acme/inner", state={"seen": ""})
    outer = {"call": {"action": {"item_id": "tool:acme/inner", "params": {"it": SECRET}},
                      "assign": {"seen": "${result.output}"}, "next": "done"},
             "done": {"type": "return", "output": "${state.seen}"}}  # fmt: skip
    ref = graph(workspace, outer, state={"seen": ""})
    async with workspace.open() as rye:
        done = await rye.execute(ref, trace=True)
        said = document(done)
        rows = {row.thread_id: row for row in (await rye.threads.list(all=True))}
    assert said["success"], said
    tools, inners, argv = (_decoded(one) for one in said["output"].split("\n"))
    (child,) = (row for row in rows.values() if row.item_id == "tool:acme/inner")
    assert child.parent_id == said["graph_run_id"]
    assert inners["RYE_PARENT_THREAD_ID"] == child.parent_id
    assert inners["ACME_API_KEY"] == SECRET  # it is ryecore itself
    assert not {"ACME_API_KEY", "RYE_PARENT_THREAD_ID", "RYE_WORKER_PYTHON"} & set(tools)
    assert rows[said["graph_run_id"]].parent_id is None
    # Neither parameters nor anything else of the call stands where all processes may look.
    assert list(argv)[:2] == [sys.executable, "-PXutf8"]
    assert SECRET not in str(argv)
    assert SECRET not in json.dumps(done.to_dict()["trace"])
    assert "token" not in json.dumps(done.to_dict())


def _decoded(text: str) -> dict[str, str]:
    parts = base64.b64decode(text).decode().split("\0")
    return {name: value for name, _, value in (one.partition("=") for one in parts if one)}


# How it is stopped


@FORKED
async def test_a_run_is_cancelled_by_its_id(workspace: Workspace) -> None:
    async with workspace.open() as rye, running(rye, hanging(workspace)) as done:
        pids = await pids_of(workspace)
        (record,) = await rye.threads.list()
        await rye.threads.cancel(record.thread_id)
    assert document(done[0])["status"] == "cancelled"
    assert done[0].status == "error"
    assert signed_status(workspace, record.thread_id) == "cancelled"
    wait_until_dead(*pids)


@ON_BOTH_LOOPS
async def test_a_cancelled_caller_leaves_nothing_running(workspace: Workspace) -> None:
    stop, pids = CancelToken(), list[int]()
    async with workspace.open() as rye:
        ref = hanging(workspace)
        async with anyio.create_task_group() as group:

            async def run() -> None:
                with pytest.raises(CallCancelled):
                    await rye.execute(ref, ctx=CallContext(cancellation=stop))

            group.start_soon(run)
            pids += await pids_of(workspace)
            stop.cancel()
        wait_until_dead(*pids)
        (record,) = await rye.threads.list(all=True)
    assert record.status == "cancelled"
    assert signed_status(workspace, record.thread_id) == "cancelled"


@FORKED
async def test_term_is_a_wish_to_stop(workspace: Workspace) -> None:
    async with workspace.open() as rye, running(rye, hanging(workspace)) as done:
        walker, *others = await pids_of(workspace)
        os.kill(walker, signal.SIGTERM)
    assert document(done[0])["status"] == "cancelled"
    assert signed_status(workspace, document(done[0])["graph_run_id"]) == "cancelled"
    wait_until_dead(*others)


@pytest.mark.parametrize(
    ("delay_ms", "anyio_backend"),
    in_turn([0, 100, 200, 300, 400] if IS_SOAK else [0, 150, 300], ["asyncio", "trio"]),
)
async def test_a_caller_that_goes_at_any_time_leaves_a_run_that_has_ended(
    workspace: Workspace, delay_ms: int
) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        with anyio.move_on_after(delay_ms / 1000):
            await rye.execute(ref)
        assert await rye.threads.list() == ()
        ended = await rye.threads.list(all=True)
    assert {record.status for record in ended} <= {"cancelled", "error"}
    wait_until_dead(*pids_so_far(workspace))


@FORKED
async def test_a_timeout_ends_the_run_and_says_so(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        done = await rye.execute(ref, timeout_s=1)
        pids = pids_so_far(workspace)
        report = await rye.threads.show(document(done)["graph_run_id"])
    assert done.status == "error"
    assert "time is up" in str(done.error)
    assert report.ended
    wait_until_dead(*pids)


async def test_a_run_whose_process_is_killed_has_ended_once(workspace: Workspace) -> None:
    async with workspace.open() as rye, running(rye, hanging(workspace)) as done:
        walker, tool, child = await pids_of(workspace)
        (record,) = await rye.threads.list()
        assert (record.pid, record.owns_process) == (walker, True)
        os.kill(walker, signal.SIGKILL)
    said = document(done[0])
    assert (said["success"], said["graph_run_id"]) == (False, record.thread_id)
    assert done[0].error == f"The graph's process was ended by signal 9.\n{EFFECT_UNKNOWN}"
    store = store_of(workspace)
    row, kept = (
        await store.registry.get_thread(record.thread_id),
        await store.registry.get_result(record.thread_id),
    )
    assert (row.status, row.fence) == ("error", 2)  # claimed once, ended once
    assert kept is not None
    assert signed_status(workspace, record.thread_id) == "error"
    store.close()
    wait_until_dead(tool)
    os.kill(child, signal.SIGKILL)  # beyond the promise: the tool's own child, see SECURITY.md


@pytest.mark.parametrize("delay_ms", [0, 50, 100, 200, 300, 400] if IS_SOAK else [0, 150, 300])
async def test_killed_at_any_time_a_run_has_ended(workspace: Workspace, delay_ms: int) -> None:
    ref, known = adding(workspace), _walkers()
    async with workspace.open() as rye:
        async with running(rye, ref, parameters={"a": 1}) as done:
            while not (mine := _walkers() - known) and not done:
                await anyio.sleep(0.005)  # not to wait: to hit another line of its life
            await anyio.sleep(delay_ms / 1000)
            for pid in mine:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        said = document(done[0])
        report = await rye.threads.show(said["graph_run_id"])
        assert await rye.threads.list() == ()
    assert report.status in ("completed", "error")
    assert said["success"] == (done[0].status == "success")
    if report.status == "error":
        assert "signal 9" in str(done[0].error)


def _walkers() -> set[int]:
    """The processes of this one that walk graphs."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            for pid in map(int, (task / "children").read_text().split()):
                with suppress(OSError):
                    if b"/graph_worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.add(pid)
    return found


async def test_the_hosts_death_takes_its_graph_along(workspace: Workspace) -> None:
    hanging(workspace)
    host = subprocess.Popen(
        [PYTHON, "-m", "ryecore.cli", "execute", "tool:acme/stay",
         "--project", str(workspace.project)],
        env={**os.environ, **workspace.environ, "USER_SPACE": str(workspace.user),
             "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    walker, tool, child = await pids_of(workspace)
    host.kill()
    await anyio.to_thread.run_sync(host.wait)
    wait_until_dead(walker)
    wait_until_dead(tool)
    os.kill(child, signal.SIGKILL)  # beyond the promise
    async with workspace.open() as rye:
        (report,) = await rye.threads.list(all=True)
    assert report.status == "error"


# Apart from its caller


@FORKED
async def test_a_launched_graph_is_its_own_thread(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        launched = await launch(rye, adding(workspace), a=1)
        report = await end_of(rye, launched)
        (row,) = await rye.threads.list(all=True)
    assert re.fullmatch(r"acme/flow/flow-\d+", launched.thread_id)
    assert (report.status, report.data["output"]) == ("completed", {"sum": 2})  # type: ignore[index]
    assert row.thread_id == launched.thread_id
    # Its row has ended before its process, which still tells the last of it.
    await until_printed(
        log_of(workspace, launched), f"[graph:{launched.thread_id}] step 2/2 done ✓"
    )


async def test_a_launched_graph_is_stopped_and_killed_like_a_thread(workspace: Workspace) -> None:
    ref = hanging(workspace)
    async with workspace.open() as rye:
        launched = await launch(rye, ref)
        walker, *others = await pids_of(workspace)
        assert walker == launched.pid
        await rye.threads.cancel(launched.thread_id)
        assert (await end_of(rye, launched)).status == "cancelled"
        wait_until_dead(*others)
        (workspace.root / "pids").unlink()
        again = await launch(rye, ref)
        pids = await pids_of(workspace)
        assert (await rye.threads.kill(again.thread_id)).status == "killed"
    assert not any(map(is_alive, pids))


@FORKED
@pytest.mark.parametrize("quiet", ["", "1"])
async def test_progress_is_told_line_by_line(workspace: Workspace, quiet: str) -> None:
    workspace.environ["RYE_GRAPH_QUIET"] = quiet
    log = workspace.root / "log"
    async with workspace.open() as rye:
        done = await rye.execute(adding(workspace), {"a": 1}, output_log=log)
    run_id = document(done)["graph_run_id"]
    *told, last = log.read_text().splitlines()
    assert json.loads(last) == done.data
    assert bool(told) == (not quiet)
    if told:
        assert re.fullmatch(
            re.escape(f"[graph:{run_id}] step 1/2 add ✓ ") + r"\d+\.\ds → done", told[0]
        )


@FORKED
async def test_several_at_once(workspace: Workspace) -> None:
    ref = adding(workspace)
    done: list[ExecutionResult] = []
    async with workspace.open() as rye:

        async def run(number: int) -> None:
            done.append(await rye.execute(ref, {"a": number}))

        async with anyio.create_task_group() as group:
            for number in range(5):
                group.start_soon(run, number)
        ended = await rye.threads.list(all=True, limit=50)
    assert sorted(document(one)["output"]["sum"] for one in done) == list(range(1, 6))
    assert len({document(one)["graph_run_id"] for one in done}) == 5
    assert {record.status for record in ended} == {"completed"}
