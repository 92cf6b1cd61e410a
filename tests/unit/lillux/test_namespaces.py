"""Processes where their session began outside of the namespace, as in an entered container."""

import signal
import subprocess
import sys

import pytest

KILL_IN_A_SHARED_SESSION = """
import subprocess
from attrs import evolve
from ryecore.lillux.processes import current_process, kill_process

def fields(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()

assert fields("self")[3] == "0"
bystander = subprocess.Popen(["sleep", "300"], process_group=0)
meant = subprocess.Popen(["sh", "-c", "sleep 300 & wait"], process_group=0)
who = evolve(current_process(), pid=meant.pid, start_ticks=int(fields(meant.pid)[19]))
assert kill_process(who) == "terminated"
print(meant.wait(), bystander.poll())
bystander.kill()
"""


def test_a_session_that_began_outside_of_the_namespace_is_nobodys_own() -> None:
    # The system gives every such session the number 0, in containers that are entered for one.
    below = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*below, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("making a namespace of processes is not permitted here")
    done = subprocess.run(
        [*below, sys.executable, "-c", KILL_IN_A_SHARED_SESSION],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == ([str(-signal.SIGTERM), "None"], "")
