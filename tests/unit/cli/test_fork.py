"""rye execute --thread fork: a directive in a thread, from the command line."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.thread_deps import DEPS, furnish
from tests.unit.cli.conftest import Run, read_all, start
from tests.workspace import Workspace

FORK = ["execute", "directive:acme/sum", "x=4", "--thread", "fork", "--deps", DEPS]
HANG = ["execute", "directive:acme/hang", "--thread", "fork", "--deps", DEPS]


@pytest.fixture(autouse=True)
def furnished(workspace: Workspace) -> None:
    furnish(workspace)


def test_a_directive_runs_and_its_outputs_are_printed(run: Run) -> None:
    done = run(*FORK)
    assert done.code == 0, done.err
    assert "directive:acme/sum  completed" in done.out
    assert "total: 7" in done.out
    assert done.err == ""  # no terminal, no view


def test_a_program_gets_the_response_object(run: Run) -> None:
    done = run(*FORK, "--json", "--model", "scripted/other", "--limit", "turns=5")
    assert done.code == 0
    assert (done.json["state"], done.json["outputs"]) == ("completed", {"total": 7})
    shown = run("threads", "show", done.json["thread_id"], "--json").json
    assert (shown["model"], shown["limits"]["turns"], shown["turns"]) == ("scripted/other", 5, 2)


def test_a_thread_is_labelled(run: Run) -> None:
    done = run(*FORK, "--label", "tenant=acme", "--label", "user=u-1", "--async", "--json")
    shown = run("threads", "show", done.json["thread_id"], "--json").json
    assert shown["labels"] == {"tenant": "acme", "user": "u-1"}
    assert run("threads", "wait", done.json["thread_id"]).code == 0
    refused = run(*FORK, "--label", "tenant")
    assert refused.code == 2
    assert "--label tenant=acme" in refused.err


def test_a_thread_that_fails_exits_with_1(run: Run) -> None:
    done = run(*FORK, "--limit", "turns=1")
    assert done.code == 1
    assert "The limit of turns is met" in done.out


def test_it_can_go_on_by_itself_with_the_same_models(run: Run) -> None:
    done = run(*FORK, "--async", "--json")
    assert (done.code, done.json["state"]) == (0, "running")
    waited = run("threads", "wait", done.json["thread_id"], "--json")
    assert waited.code == 0, waited.out
    assert waited.json["threads"][0]["result"]["outputs"] == {"total": 7}


def test_without_models_it_says_which_keys_there_could_be(workspace: Workspace, run: Run) -> None:
    for extra in ((), ("--async",)):
        done = run(*FORK[:-2], *extra)
        assert done.code == 2
        assert "ANTHROPIC_API_KEY" in done.err
        assert "--deps module:function" in done.err
    assert not workspace.path("state").exists()  # nothing was begun


def test_what_else_is_wrong_is_said_before_that(run: Run) -> None:
    assert "acme/none" in run("execute", "directive:acme/none", "--thread", "fork").err
    assert (
        "Missing required inputs: x" in run("execute", "directive:acme/sum", "--thread", "fork").err
    )
    assert "unknown limit 'turn'" in run(*FORK[:-2], "--limit", "turn=3").err


@pytest.mark.parametrize(
    ("deps", "said"),
    [
        ("no_such_module:f", "no module no_such_module"),
        (
            "tests.thread_deps:nothing",
            "AttributeError: the module tests.thread_deps has no nothing",
        ),
        ("tests.thread_deps", "package.module:function"),
    ],
)
def test_deps_that_can_not_be_used_are_refused(run: Run, deps: str, said: str) -> None:
    done = run(*FORK[:-1], deps)
    assert done.code == 2
    assert said in done.err
    assert "next" in done.err


def test_a_tree_is_drawn_on_the_terminal_while_it_runs(workspace: Workspace) -> None:
    ours, theirs = pty.openpty()
    process = start(workspace, *HANG, stderr=theirs, env={"TERM": "xterm"})
    os.close(theirs)
    drawn = ""
    while "▸" not in drawn:  # it runs
        drawn += os.read(ours, 4096).decode(errors="replace")
    until_asked(workspace, process)
    process.send_signal(signal.SIGINT)
    drawn += read_all(ours)
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert b"cancelled" in out
    assert b"\x1b" not in out  # what a program reads has nothing of it
    assert drawn.startswith("\x1b[?25l")
    assert drawn.endswith("\r\n\x1b[?25h")  # the cursor is given back
    first, *later = drawn.split("\x1b[J")
    assert "acme/hang" in first
    assert all(one.startswith("\x1b[2F") for one in later[:-1])  # over the one before
    assert "■" in later[-2]


def test_a_child_stands_below_its_parent(run: Run) -> None:
    done = run("execute", "directive:acme/parent", "--thread", "fork", "--deps", DEPS, "--json")
    assert done.json["result"] == "The child has answered."
    drawn = run("threads", "tree", done.json["thread_id"]).out
    assert "└─ ✓ acme/sum" in drawn
    assert "2 completed" in drawn


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_thread_to_stop_and_says_what_came_of_it(
    workspace: Workspace, run: Run, number: signal.Signals
) -> None:
    process = start(workspace, *HANG)
    thread_id = until_asked(workspace, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    assert b"cancelled" in out, (out, err)
    assert process.returncode == 1
    assert run("threads", "show", thread_id, "--json").json["status"] == "cancelled"
    assert run("threads", "verify", thread_id).code == 0


def until_asked(workspace: Workspace, process: "subprocess.Popen[bytes]") -> str:
    """Wait until the model of the only thread is asked; the thread's id."""
    place: Path = workspace.path("state/threads")
    while process.poll() is None:
        for path in place.rglob("transcript.jsonl"):
            if '"model_call"' in path.read_text():
                return str(path.parent.relative_to(place))
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(process.communicate())
