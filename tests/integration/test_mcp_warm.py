"""Servers that are kept: shared by calls, started again when they died, and gone at the end."""

import gc
import os
import resource
import signal
import subprocess
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from attrs import evolve

from ryecore import CallContext, CancelToken
from ryecore.chain.model import ExecutionPlan
from ryecore.chain.primitives import process_spec
from ryecore.errors import CallCancelled, RyeError
from ryecore.lillux import ProcessSpec
from ryecore.mcp_client import pool as connectors
from ryecore.mcp_client.pool import ConnectorPool
from tests.forking import Forked
from tests.loops import ON_BOTH_LOOPS
from tests.matrix import IS_SOAK, in_turn
from tests.mcp_items import assert_gone, mcp_tool, nothing_left, pids, stdio_server
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

# Fresh connectors are for what is said of their processes.
FORKED = pytest.mark.usefixtures("forked_connectors")


@pytest.fixture
def anyio_backend() -> str:
    """One loop is enough where the pool itself awaits nothing of its own."""
    return "asyncio"


def text_of(done) -> str:
    assert done.success, done.error
    return done.data["content"][0]["text"]


def servers(workspace: Workspace) -> int:
    """How many servers were started; each tells of its connector and of itself."""
    return len(pids(workspace)) // 2


@FORKED
@ON_BOTH_LOOPS
async def test_calls_share_one_server(workspace: Workspace, anyio_backend: str):
    stdio_server(workspace)
    echo, where = mcp_tool(workspace), mcp_tool(workspace, "where")
    async with workspace.open() as rye:
        assert text_of(await rye.execute(echo, {"text": "one"})) == "one"
        assert text_of(await rye.execute(echo, {"text": "two"})) == "two"
        assert text_of(await rye.execute(where)) == str(workspace.project)
        assert servers(workspace) == 1
    assert_gone(pids(workspace))


@FORKED
@pytest.mark.parametrize(
    ("count", "anyio_backend"), [(500 if IS_SOAK else 150, "asyncio"), (30, "trio")]
)
async def test_many_calls_at_once_each_get_their_own_answer(workspace, count, anyio_backend):
    stdio_server(workspace)
    ref, answers = mcp_tool(workspace), {}
    async with workspace.open() as rye:  # so that all modules are there
        await rye.execute(ref, {"text": "hi"})

    async def call(number: int) -> None:
        answers[number] = text_of(await rye.execute(ref, {"text": f"hello {number}"}))

    with nothing_left(workspace):
        async with workspace.open() as rye, anyio.create_task_group() as calls:
            for number in range(count):
                calls.start_soon(call, number)
            # all of them, the starting one too, at the same time
        await rye.aclose()
    assert answers == {number: f"hello {number}" for number in range(count)}
    assert servers(workspace) == 2


@FORKED
async def test_parameters_of_any_size_reach_the_server(workspace: Workspace):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    size = 90_000_000 if IS_SOAK else 20_000_000
    async with workspace.open() as rye:
        done = await rye.execute(ref, {"text": "hi", "more": "x" * size})
    assert text_of(done) == "hi"


@FORKED
async def test_two_ryes_share_nothing(workspace: Workspace, anyio_backend: str):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    async with workspace.open() as one, workspace.open() as other:
        await one.execute(ref, {"text": "hi"})
        await other.execute(ref, {"text": "hi"})
        assert servers(workspace) == 2


@FORKED
async def test_another_environment_is_another_server(workspace: Workspace, anyio_backend: str):
    stdio_server(workspace, env={"FAVOURITE": "${FAVOURITE:-none}"})
    ref = mcp_tool(workspace)
    async with workspace.open() as rye:
        await rye.execute(ref, {"text": "hi"})
        (workspace.project / ".env").write_text("FAVOURITE=blue\n")
        env = mcp_tool(workspace, "env")
        assert text_of(await rye.execute(env, {"name": "FAVOURITE"})) == "blue"
        assert servers(workspace) == 2


@FORKED
async def test_a_server_that_died_between_calls_is_started_again(workspace, anyio_backend):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    async with workspace.open() as rye:
        for number in range(3):
            assert text_of(await rye.execute(ref, {"text": "hi"})) == "hi"
            connector, server = pids(workspace)[-2:]
            os.kill(server if number else connector, signal.SIGKILL)
            assert_gone([server])
        assert text_of(await rye.execute(ref, {"text": "again"})) == "again"
        assert servers(workspace) == 4


@FORKED
@ON_BOTH_LOOPS
async def test_a_call_during_which_the_server_dies_is_not_repeated(workspace, anyio_backend):
    stdio_server(workspace, "dies-once", str(workspace.root / "died"))
    ref = mcp_tool(workspace)
    async with workspace.open() as rye:
        done = await rye.execute(ref, {"text": "hi"})
        assert not done.success
        assert "ended with exit code 7" in done.error
        assert servers(workspace) == 1
        assert text_of(await rye.execute(ref, {"text": "hi"})) == "hi"


@FORKED
async def test_a_connector_that_is_killed_in_a_call_fails_that_call_alone(workspace, anyio_backend):
    fifo = workspace.root / "called"
    os.mkfifo(fifo)
    stdio_server(workspace, "good", str(fifo))
    ref, errors = mcp_tool(workspace, "hang"), []

    async def call() -> None:
        errors.append((await rye.execute(ref)).error)

    async with workspace.open() as rye:
        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await anyio.to_thread.run_sync(fifo.read_bytes)
            os.kill(pids(workspace)[0], signal.SIGKILL)
        assert errors == [
            "The MCP server's connector ended while the call ran.\n"
            "Whether it has had its effect is not known."
        ]
        assert text_of(await rye.execute(mcp_tool(workspace), {"text": "hi"})) == "hi"
    assert_gone(pids(workspace))


@FORKED
@ON_BOTH_LOOPS
async def test_a_cancelled_call_is_told_to_the_server_which_goes_on(workspace, anyio_backend):
    fifo = workspace.root / "called"
    os.mkfifo(fifo)
    stdio_server(workspace, "records", str(fifo))
    hang, echo, token = mcp_tool(workspace, "hang"), mcp_tool(workspace), CancelToken()

    async def call() -> None:
        with pytest.raises(CallCancelled):
            await rye.execute(hang, ctx=CallContext(cancellation=token))

    async with workspace.open() as rye:
        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await anyio.to_thread.run_sync(fifo.read_bytes)
            token.cancel()
        assert text_of(await rye.execute(echo, {"text": "still here"})) == "still here"
    said = Path(f"{fifo}.said").read_text().split()
    assert "notifications/cancelled" in said
    assert servers(workspace) == 1


@FORKED
async def test_a_server_that_goes_mute_after_a_cancelled_call_is_dropped(workspace, anyio_backend):
    fifo = workspace.root / "called"
    os.mkfifo(fifo)
    stdio_server(workspace, "mute-once", str(fifo))
    hang, echo, token, ends = mcp_tool(workspace, "hang"), mcp_tool(workspace), CancelToken(), {}

    async def call(name: str, ref: str, ctx: CallContext | None = None) -> None:
        try:
            done = await rye.execute(ref, {"text": name}, ctx=ctx)
            ends[name] = done.error or text_of(done)
        except CallCancelled:
            ends[name] = "cancelled"

    async with workspace.open() as rye, anyio.create_task_group() as calls:
        calls.start_soon(call, "in flight", hang)
        await anyio.to_thread.run_sync(fifo.read_bytes)
        calls.start_soon(call, "muting", echo, CallContext(cancellation=token))
        await anyio.to_thread.run_sync(fifo.read_bytes)
        calls.start_soon(call, "not begun", echo)
        await anyio.wait_all_tasks_blocked()
        token.cancel()
    assert ends["muting"] == "cancelled"
    assert "stopped answering after a call was cancelled" in ends["in flight"]
    assert ends["not begun"] == "not begun"  # another server answered it
    assert_gone(pids(workspace))


@FORKED
async def test_a_server_that_nobody_calls_ends(workspace: Workspace, anyio_backend: str):
    stdio_server(workspace, idle_timeout=0.2)
    ref = mcp_tool(workspace)
    async with workspace.open() as rye:
        await rye.execute(ref, {"text": "hi"})
        assert_gone(pids(workspace))
        assert text_of(await rye.execute(ref, {"text": "again"})) == "again"


@FORKED
async def test_the_one_that_was_used_the_longest_time_ago_goes_first(workspace, anyio_backend):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    async with workspace.open() as rye:
        plan = (await rye.execute(ref, {"text": "hi"}, dry_run=True)).plan
    pool = ConnectorPool(max_connectors=2)
    try:
        for name in ("a", "b", "a", "c"):
            await pool.run(*named(plan, name))
        assert servers(workspace) == 3
        assert_gone(pids(workspace)[2:4])  # that of b
        await pool.run(*named(plan, "a"))
        assert servers(workspace) == 3
    finally:
        await pool.aclose()
    assert_gone(pids(workspace))


async def test_more_than_are_kept_serve_while_they_are_called_and_no_longer(
    workspace, anyio_backend
):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    async with workspace.open() as rye:
        plan = (await rye.execute(ref, {"text": "hi"}, dry_run=True)).plan
    pool = ConnectorPool(max_connectors=1)
    try:
        async with anyio.create_task_group() as calls:
            for name in ("a", "b"):
                calls.start_soon(pool.run, *named(plan, name))
        assert servers(workspace) == 2
        assert len(pool.pids) == 1
        assert_gone([pid for pid in pids(workspace)[::2] if pid not in pool.pids])
    finally:
        await pool.aclose()


@FORKED
async def test_a_forked_child_of_the_host_keeps_no_server(workspace, anyio_backend, monkeypatch):
    # By force it would be ended after 20 s.
    unforced = partial(connectors._wait_for_end, grace_s=20)
    monkeypatch.setattr(connectors, "_wait_for_end", unforced)
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    rye = workspace.open()
    await rye.execute(ref, {"text": "hi"})
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        with anyio.move_on_after(15) as patience:
            await rye.aclose()
        assert not patience.cancel_called, "it was ended by force"
        assert_gone(pids(workspace))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def named(plan: ExecutionPlan, name: str) -> tuple[ProcessSpec, str]:
    """Return the connector's process with a name in its environment, and the connector's key."""
    assert plan.keep is not None
    return process_spec(evolve(plan, env={**plan.env, "NAME": name})), plan.keep


@FORKED
async def test_a_rye_that_was_opened_without_a_block_ends_them_too(workspace, anyio_backend):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    rye = workspace.open()
    await rye.execute(ref, {"text": "hi"})
    await rye.aclose()
    assert_gone(pids(workspace))


@FORKED
@ON_BOTH_LOOPS
async def test_closing_while_a_call_runs_ends_both(workspace: Workspace, anyio_backend: str):
    fifo = workspace.root / "called"
    os.mkfifo(fifo)
    stdio_server(workspace, "hangs", str(fifo))
    ref = mcp_tool(workspace)
    with nothing_left(workspace):
        rye = workspace.open()

        async def call() -> None:
            with pytest.raises(Exception, match="closed"):
                await rye.execute(ref, {"text": "hi"})

        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await anyio.to_thread.run_sync(fifo.read_bytes)
            await rye.aclose()


@FORKED
async def test_a_host_that_may_open_no_more_files_says_so_and_goes_on(workspace, anyio_backend):
    stdio_server(workspace)
    ref = mcp_tool(workspace)
    async with workspace.open() as rye:
        assert text_of(await rye.execute(ref, {"text": "hi"})) == "hi"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        gc.collect()  # so that no file of another test is closed meanwhile
        full = [os.open(os.devnull, os.O_RDONLY)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (full[0] + 1, hard))
        try:
            with pytest.raises(RyeError, match="open"):
                await rye.execute(ref, {"text": "hi"})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            os.close(full[0])
        assert text_of(await rye.execute(ref, {"text": "hi"})) == "hi"
        assert servers(workspace) == 1


async def test_no_secret_stands_in_a_command_line(workspace: Workspace, anyio_backend: str):
    workspace.environ["A_TOKEN"] = "hunter2-hunter2"
    stdio_server(workspace, env={"A_TOKEN": "${A_TOKEN}"})
    env = mcp_tool(workspace, "env")
    async with workspace.open() as rye:
        assert text_of(await rye.execute(env, {"name": "A_TOKEN"})) == "hunter2-hunter2"
        for pid in pids(workspace):
            assert b"hunter2" not in Path(f"/proc/{pid}/cmdline").read_bytes()


_HOST = """
import anyio, sys
from ryecore import Rye
project, user, ref, leave = sys.argv[1:]
async def call():
    rye = Rye.open(project, user_space=user)
    print((await rye.execute(ref, {"text": "hi"})).success, flush=True)
    return rye
rye = anyio.run(call)
if leave == "killed":
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("mode", "leave"), in_turn(["stubborn", "grandchild"], ["killed", "without a word"])
)
def test_when_the_host_is_gone_so_is_all_of_it(workspace: Workspace, mode: str, leave: str):
    stdio_server(workspace, mode)
    ref = mcp_tool(workspace)
    program = workspace.root / "host.py"
    program.write_text(_HOST)
    host = Forked(
        [str(program), str(workspace.project), str(workspace.user), ref, leave],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=workspace.environ,
    )
    with host:
        assert host.stdout.readline() == b"True\n"
        group = _group_of(pids(workspace)[0])
        if leave == "killed":
            host.kill()
        host.wait(30)
    assert_gone(sorted({*pids(workspace), *group}))


_FORKING = """
import anyio, os, sys
from ryecore import Rye
project, user, ref = sys.argv[1:]
rye = Rye.open(project, user_space=user)
async def call(text):
    done = await rye.execute(ref, {"text": text})
    print(done.error or done.data["content"][0]["text"], flush=True)
anyio.run(call, "before")
if os.fork() == 0:
    anyio.run(call, "in the child")
    anyio.run(rye.aclose)
    os._exit(0)
os.wait()
anyio.run(call, "after")
anyio.run(rye.aclose)
"""


def test_a_forked_host_has_servers_of_its_own(workspace: Workspace, forking_interpreter: str):
    stdio_server(workspace)
    program = workspace.root / "host.py"
    program.write_text(_FORKING)
    command = [str(program), str(workspace.project), str(workspace.user), mcp_tool(workspace)]
    with Forked(
        command, env=workspace.environ, executable=forking_interpreter, stdout=subprocess.PIPE
    ) as host:
        printed, _ = host.communicate(timeout=60)
    assert printed.split(b"\n") == [b"before", b"in the child", b"after", b""]
    assert servers(workspace) == 2
    assert_gone(pids(workspace))


def _group_of(leader: int) -> list[int]:
    """The processes of a group, its guard among them."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.getpgid(int(entry)) == leader:
                    found.append(int(entry))
            except ProcessLookupError:
                pass
    return found
