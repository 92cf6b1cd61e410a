"""A template keeps what it has read for many calls, so all of that is what was verified."""

import os
import time
from pathlib import Path

import pytest

from ryecore import SyncRye
from ryecore.items.spaces import built_in_space
from tests.conformance.starts.starting import PATIENCE_S, started
from tests.interpreter import PYTHON
from tests.warm_hosts import stats_of
from tests.workspace import FUNCTION, SCRIPT, Workspace

BODIES = {
    FUNCTION: "def execute(params, project):\n    return 'verified'\n",
    SCRIPT: "print('\"verified\"')\n",
}
# An interpreter whose templates wait before they read anything.
GATED = """#!/bin/sh
if [ -S /proc/$$/fd/3 ]; then read -r _ < '{gate}'; fi
exec {python} "$@"
"""
# A runtime of somebody else's, whose templates wait once they have read the tool, too.
READER = """
import os, sys
with open(sys.argv[1]) as file:
    code = compile(file.read(), sys.argv[1], "exec")
{fork_point}
exec(code)
"""
WAITS = "open({gate!r}).read(); exec(os.read(3, 1 << 20), {{'script': globals()}})"
TEMPLATE = built_in_space().root / "tools/rye/core/runtimes/python/template.py"


def gated(workspace: Workspace) -> tuple[Path, Path]:
    """An interpreter of which templates wait, and the gate."""
    gate, python = workspace.root / "gate", workspace.root / "python"
    os.mkfifo(gate)
    python.write_text(GATED.format(gate=gate, python=PYTHON))
    python.chmod(0o755)
    return python, gate


def open_gate(gate: Path) -> None:
    """Let the template go on that waits, and all that come later."""
    aside = gate.with_name("aside")
    with gate.open("w") as opened:  # waits until somebody reads
        aside.write_text("go\n")
        aside.replace(gate)
        opened.write("go\n")


def sealed_file(rye: SyncRye, ref: str) -> Path:
    plan = rye.execute(ref, dry_run=True).plan
    return Path(next(arg for arg in plan.args if arg.endswith(".py") and "\n" not in arg))


def tamper(path: Path) -> None:
    """Do what a tool may do to its sealed copy: it runs with the rights of its user."""
    path.chmod(0o600)
    path.write_text(path.read_text().replace("verified", "evil"))


def until_decided(rye: SyncRye) -> str:
    """Wait until the only template serves, or is given up; the reason for that."""
    until = time.monotonic() + PATIENCE_S
    while not (found := [one for one in stats_of(rye) if one.state != "starting"]):
        assert time.monotonic() < until
        time.sleep(0.005)
    return found[0].reason


def assert_verified_until_warm(rye: SyncRye, ref: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        done = rye.execute(ref, trace=True)
        assert done.data == "verified"
        if started(done) == "warm":
            return
        assert time.monotonic() < until


@pytest.mark.parametrize("runtime", [FUNCTION, SCRIPT])
def test_a_copy_that_is_changed_before_a_template_reads_it_serves_no_call(
    workspace: Workspace, runtime: str
) -> None:
    python, gate = gated(workspace)
    workspace.environ["RYE_PYTHON"] = str(python)
    ref = workspace.python("acme/t", BODIES[runtime], executor_id=runtime)
    with workspace.sync() as rye:
        assert [rye.execute(ref).data for _ in range(2)] == ["verified"] * 2
        tamper(sealed_file(rye, ref))
        open_gate(gate)
        assert until_decided(rye) == "something that it has read is younger than it"
        assert_verified_until_warm(rye, ref)


@pytest.mark.parametrize("is_restored", [True, False])
def test_so_it_is_with_any_runtime_and_where_the_bytes_are_put_back_in_time(
    workspace: Workspace, is_restored: bool
) -> None:
    python, gate = gated(workspace)
    second = workspace.root / "second"
    os.mkfifo(second)
    workspace.write("tools/acme/template.py", TEMPLATE.read_text().partition("\n")[2])
    workspace.yaml(
        "acme/reader",
        warm={"template": "template.py", "fork_point": WAITS.format(gate=str(second))},
        config={
            "command": str(python),
            "args": ["-IB", "-c", READER, "{tool_path}"],
            "input_data": "{params_json}",
        },
    )
    ref = workspace.python("acme/t", BODIES[SCRIPT], executor_id="acme/reader")
    with workspace.sync() as rye:
        assert [rye.execute(ref).data for _ in range(2)] == ["verified"] * 2
        sealed = sealed_file(rye, ref)
        content, times = sealed.read_bytes(), sealed.stat()
        tamper(sealed)
        open_gate(gate)
        with second.open("w"):  # waits until the template has read the tool
            if is_restored:
                sealed.write_bytes(content)
                os.utime(sealed, ns=(times.st_atime_ns, times.st_mtime_ns))
            aside = second.with_name("aside")
            aside.write_text("")
            aside.replace(second)
        assert until_decided(rye) == "something that it has read is younger than it"
        assert_verified_until_warm(rye, ref)
