"""How a command ends that is told to stop."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from ryecore.cli.opening import run_until_stopped, serve_until_signalled
from tests.matrix import IS_SOAK
from tests.unit.cli.conftest import environ, start
from tests.workspace import Workspace

WAIT_S = 20.0


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


@pytest.mark.anyio
async def test_a_server_ends_by_a_signal_and_not_by_one_that_is_ignored() -> None:
    """As behind nohup, whose terminal is closed."""
    came = list[signal.Signals]()

    async def end(number: signal.Signals) -> bool:
        came.append(number)
        return True

    async def serve() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await anyio.sleep_forever()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        await serve_until_signalled(serve, end)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert came == [signal.SIGTERM]


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (("execute", "tool:a/t", "a=1"), ()),
        # The bundle is parsed already.
        (("execute", "tool:rye/bash", "command=true"), ("hashlib", "ruamel", "tomllib")),
        (("trace", "tool:a/t"), ()),
        (("fetch", "tool:a/t"), ()),
    ],
)
def test_a_short_command_does_without_what_it_needs_not(
    workspace: Workspace, arguments: Sequence[str], unneeded: Sequence[str]
) -> None:
    """Each of these libraries takes 2 to 45 ms to import, in each run of the command."""
    workspace.shell("a/t", "exit 0")
    names = ("anyio", "asyncio", "cattrs", "nacl", "sqlite3", "ssl", *unneeded)
    code = (
        "import sys; from ryecore.cli import main\n"
        "try: main()\n"
        f"finally: print([name for name in {names} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=workspace.project,
        env=environ(workspace),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


def test_a_signal_wakes_the_loop_that_waits() -> None:
    """As one that comes just before the loop waits: this thread doesn't take it in its wait."""
    waits = threading.Event()
    state = Path(f"/proc/self/task/{threading.get_native_id()}/stat")

    def send() -> None:
        waits.wait()
        sleeping = 0
        while sleeping < 50:  # it would have had its turn meanwhile, if it wanted one
            sleeping = sleeping + 1 if state.read_text().rpartition(")")[2].split()[0] == "S" else 0
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)

    async def work() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        asyncio.get_running_loop().call_soon(waits.set)
        await anyio.sleep(WAIT_S)

    sender = threading.Thread(target=send)
    sender.start()
    began_s = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_until_stopped(work)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        sender.join()
    assert time.monotonic() - began_s < WAIT_S
