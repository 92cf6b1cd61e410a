"""How a command ends that is told to stop."""

import os
import select
import signal

import pytest

from tests.matrix import IS_SOAK
from tests.unit.cli.conftest import start
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("number", "ignores_interrupts"),
    [
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGHUP, False),
        (signal.SIGQUIT, False),
        (signal.SIGTERM, True),  # as a shell's job in the background
        *([(signal.SIGHUP, True)] if IS_SOAK else []),
    ],
)
def test_a_command_that_is_told_to_stop_leaves_nothing_behind(
    workspace: Workspace, number: signal.Signals, ignores_interrupts: bool
) -> None:
    command = ["execute", "tool:a/t"]
    os.mkfifo(workspace.project / "pipe")
    workspace.shell("a/t", "exec 9>pipe; echo begun >&9; sleep 600 & sleep 600")
    if ignores_interrupts:  # which a process inherits only from its parent
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process = start(workspace, *command, env={"PYTHONHASHSEED": "0"})
        finally:
            signal.signal(signal.SIGINT, before)
    else:
        process = start(workspace, *command)
    with (workspace.project / "pipe").open() as held:
        assert held.readline() == "begun\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 1
        assert b"Traceback" not in out + err
        assert select.select([held], [], [], 30)[0], "a process of the tool is left"
        assert held.read() == ""
