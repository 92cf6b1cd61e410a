"""rye graph run on a terminal: drawn in place, and stopped by a signal so that it can go on."""

import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.graphs import graph
from tests.unit.cli.conftest import Run, read_all, start
from tests.workspace import Workspace


@pytest.fixture
def waiting(workspace: Workspace) -> str:
    """A graph whose second node waits until somebody writes into a pipe, or stops it."""
    workspace.shell("acme/quick", "true")
    workspace.shell("acme/wait", "echo waits > waits; cat go")
    os.mkfifo(workspace.project / "go")
    nodes = {
        "first": {"action": {"item_id": "tool:acme/quick"}, "next": "second"},
        "second": {"action": {"item_id": "tool:acme/wait"}, "next": "done"},
        "done": {"type": "return", "output": "over"},
    }
    return graph(workspace, nodes)


def run_graph(
    workspace: Workspace, *args: str, err: int = subprocess.PIPE
) -> "subprocess.Popen[bytes]":
    return start(workspace, "graph", "run", *args, stderr=err, env={"TERM": "xterm"})


def plain(drawn: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)


def until_it_waits(process: "subprocess.Popen[bytes]", project: Path) -> None:
    while not (project / "waits").exists():
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)


@pytest.mark.parametrize("reader", ["has gone", "is full"])
def test_a_run_goes_on_where_nobody_reads_of_it(workspace: Workspace, reader: str) -> None:
    """As `rye graph run REF 2>&1 >result | head -1`, which stopped it in the middle."""
    workspace.shell("acme/mark", "echo done >> marks")
    names = "abcdef"
    nodes = {
        name: {"action": {"item_id": "tool:acme/mark"}, "next": after}
        for name, after in zip(names, [*names[1:], "end"], strict=True)
    }
    ref = graph(workspace, {**nodes, "end": {"type": "return", "output": "over"}})
    if reader == "has gone":
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open("/dev/full", os.O_WRONLY)
    process = run_graph(workspace, ref, "--json", err=writing)
    os.close(writing)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["data"]["output"] == "over"
    assert (workspace.project / "marks").read_text().count("done") == len(names)


def test_a_run_is_drawn_over_itself_and_the_cursor_is_given_back(
    workspace: Workspace, waiting: str
) -> None:
    ours, theirs = pty.openpty()
    process = run_graph(workspace, waiting, err=theirs)
    os.close(theirs)
    drawn = ""
    while "▸ second" not in plain(drawn):
        drawn += os.read(ours, 4096).decode(errors="replace")
    (workspace.project / "go").write_text("on\n")
    drawn += read_all(ours)
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert b"completed" in out
    assert b"\x1b" not in out  # what a program reads has nothing of it
    assert drawn.startswith("\x1b[?25l")
    assert drawn.endswith("\r\n\x1b[?25h")
    frames = drawn.split("\x1b[J")
    assert all(one.startswith("\x1b[4F") for one in frames[1:-1])  # over the one before
    last = plain(frames[-2]).split("\r\n")
    assert last[0].startswith("✓ acme/flow")
    assert "3/3 nodes" in last[0]
    assert [line.split()[:2] for line in last[1:4]] == [
        ["✓", "first"],
        ["✓", "second"],
        ["✓", "done"],
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_which_can_go_on(
    workspace: Workspace, run: Run, waiting: str, number: signal.Signals
) -> None:
    process = run_graph(workspace, waiting)
    until_it_waits(process, workspace.project)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"Traceback" not in err
    assert b"cancelled" in out
    command = out.decode().rsplit("next: ", 1)[1].split()
    run_id = command[3]
    assert command[:3] == ["rye", "graph", "resume"]
    shown = run("graph", "show", run_id, "--json").json
    assert (shown["status"], shown["node"], shown["is_unknown"]) == ("cancelled", "second", True)
    assert run("threads", "verify", run_id).code == 0
    asked = run("graph", "resume", run_id)  # nobody knows whether the second node was done
    assert (asked.code, "--rerun" in asked.err) == (2, True)
    done = run("graph", "resume", run_id, "--result", '"by hand"', "--json", "--quiet")
    assert done.code == 0, done.out
    assert done.json["data"]["output"] == "over"


def test_a_killed_run_is_shown_as_it_stands(workspace: Workspace, run: Run, waiting: str) -> None:
    process = run_graph(workspace, waiting, "--quiet")
    until_it_waits(process, workspace.project)
    running = run("graph", "list", "--running", "--json").json["runs"]
    run_id = running[0]["thread_id"]
    seen = run("graph", "show", run_id)
    assert "▸ second" in seen.out
    assert f"rye threads wait {run_id}" in seen.out
    drawn = run("graph", "show", run_id, "--svg", "-").out
    assert "running" in drawn
    process.kill()
    process.communicate(timeout=60)
    shown = json.loads(run("graph", "show", run_id, "--json").out)
    assert shown["status"] in ("error", "killed")
    assert shown["nodes"]["second"]["status"] in ("failed", "cancelled")
    assert shown["next_step"].startswith(f"rye graph resume {run_id} --rerun")
    assert [one["node"] for one in shown["checkpoints"]] == ["first", "second"]
