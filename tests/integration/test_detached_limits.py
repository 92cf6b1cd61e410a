"""Tools in processes of their own, where the machine or a person gets in the way."""

import json
import math
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from ryecore import Rye
from ryecore.errors import InputError, StateError, ThreadNotFound
from ryecore.lillux import ProcessResult, ProcessSpec, run_process, watch
from ryecore.threads.result import StartedThread
from tests.interpreter import PYTHON
from tests.warm_hosts import is_alive
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_walkers")]

PATIENCE_S = 60
LIMITED = 'echo "$0" > /proc/sys/user/max_inotify_instances && exec "$@"'
APART = ("--user", "--map-root-user", "sh", "-c", LIMITED)
"""How `unshare` runs a command where the kernel lets its user watch as often as comes next."""

WAITS = """
import sys, anyio
from pathlib import Path
from ryecore import Rye

async def main() -> None:
    root = Path(sys.argv[1])
    ended = []
    async with Rye.open(root / "project", user_space=root / "user") as rye:
        launched = await rye.execute(sys.argv[2], async_=True)

        async def wait() -> None:
            ended.append(await rye.threads.wait(launched.thread_id, timeout_s=60))

        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(wait)
    print(*{report.status for report in ended}, len(ended))

anyio.run(main)
"""
"""Launches a tool, and waits for it 200 times at once."""


async def launch(rye: Rye, ref: str) -> str:
    launched = await rye.execute(ref, async_=True)
    assert isinstance(launched, StartedThread)
    return launched.thread_id


async def unwatched(workspace: Workspace, *arguments: str) -> ProcessResult:
    """Run the `rye` command where the kernel lets its user watch nothing."""
    rye = ("-m", "ryecore.cli", *arguments, "--project", str(workspace.project))
    return await limited(workspace, 0, *rye)


async def limited(workspace: Workspace, most: int, *arguments: str) -> ProcessResult:
    """Run Python where the kernel lets its user watch that often at once."""
    probe = ProcessSpec("unshare", (*APART, "0", "true"), cwd="/", env={**os.environ})
    if (await run_process(probe)).exit_code != 0:
        pytest.skip("this user may not make user namespaces, whose limits can be set")
    return await run_process(
        ProcessSpec(
            "unshare",
            (*APART, str(most), PYTHON, *arguments),
            cwd="/",
            env={**os.environ, **workspace.environ, "USER_SPACE": str(workspace.user),
                 "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    )  # fmt: skip


async def test_where_no_folder_can_be_watched_threads_run_are_waited_for_and_stopped(
    workspace: Workspace,
) -> None:
    for name, script in (("hi", "sleep 0.3; echo hello"), ("hang", "sleep 300")):
        workspace.shell(f"acme/{name}", script)
    threads = []
    for ref in ("tool:acme/hi", "tool:acme/hang"):
        launched = await unwatched(workspace, "execute", ref, "--async", "--json")
        threads.append(json.loads(launched.stdout)["thread_id"])
    assert (await unwatched(workspace, "threads", "wait", threads[0])).exit_code == 0
    assert (await unwatched(workspace, "threads", "log", "-f", threads[0])).stdout == b"hello\n"
    assert (await unwatched(workspace, "threads", "cancel", threads[1])).exit_code == 0
    ended = await unwatched(workspace, "threads", "wait", threads[1], "--timeout", "30", "--json")
    assert json.loads(ended.stdout)["threads"][0]["status"] == "cancelled"


async def test_more_may_wait_for_a_thread_than_may_watch_its_folder(workspace: Workspace) -> None:
    # In this process the waits would take every watch of this user, from other tests, too.
    ref = workspace.shell("acme/hi", "sleep 0.5; echo hello")
    root = str(workspace.project.parent)
    done = await limited(workspace, 20, "-c", WAITS, root, ref)
    assert done.stdout == b"completed 200\n", done.stderr.decode()


async def test_state_that_is_removed_meanwhile_is_made_anew(workspace: Workspace) -> None:
    os.mkfifo(workspace.project / "go")
    ref = workspace.shell("acme/hi", "mkdir began; read line < go; echo $line")
    async with workspace.open() as rye:
        async with watch(workspace.project / "began") as began:
            first = await launch(rye, ref)
            await began.changed(PATIENCE_S)
        shutil.rmtree(workspace.path("state"))
        assert not (await rye.threads.wait(first, timeout_s=0)).ended  # it is known still
        assert not workspace.path("state").exists()
        (workspace.project / "go").write_text("went\n")  # returns once the tool reads
        second = await launch(rye, workspace.shell("acme/hi", "echo hello"))
        report = await rye.threads.wait(second, timeout_s=PATIENCE_S)
        assert (report.status, report.error) == ("completed", None)
        with pytest.raises(ThreadNotFound):
            await rye.threads.show(first)
    assert {entry.name for entry in workspace.path("state").iterdir()} == {"threads"}


async def test_numbers_that_cannot_be_meant_are_refused(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        thread_id = await launch(rye, workspace.shell("acme/hang", "sleep 300"))
        for grace_s in (math.nan, -1):
            with pytest.raises(InputError, match="grace_s"):
                await rye.threads.kill(thread_id, grace_s=grace_s)
        assert not (await rye.threads.show(thread_id)).record.kill_requested
        with pytest.raises(InputError, match="timeout_s"):
            await rye.threads.wait(thread_id, timeout_s=math.nan)
        for offset in (-1, 2**63):
            with pytest.raises(InputError, match="offset"):
                await rye.threads.list(all=True, offset=offset)
        assert (await rye.threads.kill(thread_id)).status == "killed"


@pytest.mark.parametrize("small_disk", ["1m"], indirect=True)
async def test_a_full_disk_keeps_nobody_from_killing_what_fills_it(
    workspace: Workspace, small_disk: Path
) -> None:
    ref = workspace.shell("acme/hang", "mkdir began; sleep 300")
    project = small_disk / "project"
    shutil.copytree(workspace.project, project)
    async with Rye.open(project, user_space=workspace.user, environ=workspace.environ) as rye:
        async with watch(project / "began") as began:
            thread_id = await launch(rye, ref)
            await began.changed(PATIENCE_S)
        pid = (await rye.threads.show(thread_id)).record.pid
        assert pid is not None
        fill = small_disk / "fill"
        with suppress(OSError), fill.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with pytest.raises(StateError, match=r"was ended, but its end can't be written.*Make room"):
            await rye.threads.kill(thread_id)
        assert not is_alive(pid)
        fill.unlink()
        assert (await rye.threads.show(thread_id)).ended
