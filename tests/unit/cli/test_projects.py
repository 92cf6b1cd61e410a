"""How a command ends that is told to stop."""

import os
import select
import signal
import subprocess

import pytest

from tests.unit.cli.conftest import COMMAND, environ
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("number", "ignores_interrupts"),
    [
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGHUP, False),
        (signal.SIGQUIT, False),
        (signal.SIGTERM, True),  # as a shell's job in the background
        (signal.SIGHUP, True),
    ],
)
def test_a_command_that_is_told_to_stop_leaves_nothing_behind(
    workspace: Workspace, number: signal.Signals, ignores_interrupts: bool
) -> None:
    os.mkfifo(workspace.project / "pipe")
    workspace.shell("a/t", "exec 9>pipe; echo begun >&9; sleep 600 & sleep 600")
    disposition = signal.SIG_IGN if ignores_interrupts else signal.default_int_handler
    before = signal.signal(signal.SIGINT, disposition)
    try:
        process = subprocess.Popen(
            [*COMMAND, "execute", "tool:a/t"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=workspace.project,
            env=environ(workspace),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with (workspace.project / "pipe").open() as held:
        assert held.readline() == "begun\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "Traceback" not in out + err
        assert select.select([held], [], [], 30)[0], "a process of the tool is left"
        assert held.read() == ""
