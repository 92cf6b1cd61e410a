"""Launching tools in processes of their own, and watching what becomes of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from ryecore import Rye
from ryecore.actions.threads import ThreadReport
from ryecore.lillux import watch
from ryecore.threads.result import StartedThread
from tests.forking import Forked
from tests.workspace import Workspace

PATIENCE_S = 60


async def launch(rye: Rye, ref: str, **parameters: object) -> StartedThread:
    launched = await rye.execute(ref, parameters, async_=True)
    assert isinstance(launched, StartedThread)
    return launched


async def end_of(rye: Rye, launched: StartedThread) -> ThreadReport:
    report = await rye.threads.wait(launched.thread_id, timeout_s=PATIENCE_S)
    assert report.ended
    return report


async def until_printed(path: Path, text: str) -> str:
    """Wait until a file holds a text; its whole content then."""
    with anyio.fail_after(PATIENCE_S):
        async with watch(path) as watcher:
            while not (path.exists() and text in path.read_text()):
                await watcher.changed()
    return path.read_text()


def log_of(workspace: Workspace, launched: StartedThread) -> Path:
    return workspace.path(f"state/threads/{launched.thread_id}/output.log")


def hanging(workspace: Workspace) -> str:
    """A tool that says its number, and the one of a child of its own, and then stays."""
    return workspace.shell("acme/hang", "sleep 300 & echo pids $$ $! end\nwait")


async def pids_of(workspace: Workspace, launched: StartedThread) -> list[int]:
    said = await until_printed(log_of(workspace, launched), "end")
    found = re.search(r"pids (\d+) (\d+) end", said)
    assert found
    return [int(found[1]), int(found[2])]


async def run_rye(workspace: Workspace, *arguments: str) -> bytes:
    """Run the command in a process of its own; what it printed."""
    process = Forked(
        ["ryecore.cli", *arguments, "--project", str(workspace.project)],
        cwd="/",
        env={**os.environ, **workspace.environ, "USER_SPACE": str(workspace.user),
             "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        printed, errors = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0, errors.decode()
    return printed
