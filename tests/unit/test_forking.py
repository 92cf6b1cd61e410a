"""A forked command is what a fresh one is."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.forking import COMMAND, Forked, relay_command
from tests.matrix import IS_SOAK
from tests.workspace import Workspace

STREAMS: dict[str, Any] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
}


def forked(workspace: Workspace, *args: str) -> Forked:
    return Forked(["ryecore.cli", *args], cwd=workspace.project, env=workspace.environ, **STREAMS)


@pytest.mark.parametrize(
    "args",
    [
        ["threads", "--help"],
        ["no-such-command"],
        ["execute", "tool:a/t", "--json", "--params", "-"],
        *([["--help"], ["execute", "tool:a/none"]] if IS_SOAK else []),
    ],
)
def test_it_says_what_a_fresh_one_says(workspace: Workspace, args: list[str]) -> None:
    workspace.shell("a/t", "cat")
    fresh = subprocess.run(
        [sys.executable, "-m", "ryecore.cli", *args],
        input=b'{"a": 1}',
        capture_output=True,
        check=False,
        cwd=workspace.project,
        env=workspace.environ,
    )
    with forked(workspace, *args) as process:
        out, err = process.communicate(b'{"a": 1}')
    assert (process.returncode, err) == (fresh.returncode, fresh.stderr)
    if "--json" not in args:  # which tells how long it took
        assert out == fresh.stdout


def test_it_is_ended_by_a_signal_and_says_so(workspace: Workspace) -> None:
    fifo = workspace.project / "began"
    os.mkfifo(fifo)
    workspace.shell("a/t", 'echo > "$1/began"; exec sleep 1000')
    with forked(workspace, "execute", "tool:a/t") as process:
        fifo.read_text()
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=20) == -signal.SIGKILL


def test_by_its_command_line_it_ends_as_it_would(workspace: Workspace) -> None:
    done = subprocess.run(
        [*relay_command(COMMAND), "ryecore.cli", "execute", "tool:a/none"],
        capture_output=True,
        check=False,
        cwd=workspace.project,
        env=workspace.environ,
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"tool:a/none" in done.stderr
