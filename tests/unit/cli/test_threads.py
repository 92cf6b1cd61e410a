"""rye threads, and the cells of the matrix from the command line."""

import json
import os
import sqlite3
from contextlib import closing

import pytest


def launched(workspace, run, script="echo hello"):
    workspace.shell("acme/work", script)
    done = run("execute", "tool:acme/work", "--async", "--json")
    assert done.code == 0
    return done.json["thread_id"]


def test_a_start_that_is_repeated_says_that_it_is_no_new_one(workspace, run):
    workspace.shell("acme/work", "echo hello")
    start = ["execute", "tool:acme/work", "--async", "--idempotency-key", "k"]
    first = run(*start)
    assert ("started" in first.out, "already" in first.out) == (True, False)
    run("threads", "wait", first.out.rsplit(" ", 1)[1].strip())
    again = run(*start)
    assert "already started, completed" in again.out
    other = run(*start, "x=1")
    assert "was used to start tool:acme/work, with other parameters: " in other.err


def test_what_was_launched_says_what_to_do_next(workspace, run):
    workspace.shell("acme/work", "echo hello")
    done = run("execute", "tool:acme/work", "--async")
    assert done.code == 0
    assert "started" in done.out
    command = done.out.rsplit("next", 1)[1].split()
    assert command[:3] == ["rye", "threads", "wait"]
    waited = run(*command[1:])
    assert waited.code == 0
    assert "completed" in waited.out
    assert "hello" in waited.out


def test_a_thread_that_failed_makes_wait_fail(workspace, run):
    thread_id = launched(workspace, run, "echo no >&2; exit 3")
    done = run("threads", "wait", thread_id, "--json")
    assert done.code == 1
    assert done.json["threads"][0]["status"] == "error"
    assert done.json["threads"][0]["result"]["error"] == "no"


def test_waiting_can_end_before_the_thread_does(workspace, run):
    thread_id = launched(workspace, run, "sleep 300")
    done = run("threads", "wait", thread_id, "--timeout", "0.2")
    assert done.code == 1
    assert "completed" not in done.out
    killed = run("threads", "kill", thread_id[:8], "--json")
    assert killed.json["threads"][0]["status"] == "killed"


def test_a_thread_is_shown_with_the_machine_that_ran_it_where_that_is_another_one(workspace, run):
    thread_id = launched(workspace, run)
    run("threads", "wait", thread_id)
    assert run("threads", "show", thread_id, "--json").json["host"] == os.uname().nodename
    assert "ran on" not in run("threads", "show", thread_id).out
    with closing(sqlite3.connect(next(workspace.root.rglob("threads.db")))) as database, database:
        database.execute("UPDATE threads SET host = 'gpu\x1b7'")
    assert "  ran on  gpu\ufffd7\n" in run("threads", "show", thread_id).out
    assert run("threads", "show", thread_id, "--json").json["machine"] == "gpu\x1b7"


def test_the_list_is_what_runs_and_all_is_all(workspace, run):
    assert run("threads", "list").out == "no running threads; list ended ones with --all\n"
    assert run("threads", "list", "--all").out == "no threads\n"
    assert not workspace.path("state").exists()
    thread_id = launched(workspace, run)
    run("threads", "wait", thread_id)
    assert run("threads", "list", "--json").json["threads"] == []
    (record,) = run("threads", "list", "--all", "--json").json["threads"]
    assert (record["thread_id"], record["status"]) == (thread_id, "completed")
    assert f"{thread_id}  completed" in run("threads", "list", "--all").out


def test_the_log_can_be_followed_to_its_end(workspace, run):
    os.mkfifo(workspace.project / "go")
    thread_id = launched(workspace, run, "echo one; cat go; echo three")
    shown = run("threads", "show", thread_id, "--json")
    assert shown.json["status"] in ("created", "running")
    (workspace.project / "go").write_text("two\n")
    assert run("threads", "log", "-f", thread_id).out == "one\ntwo\nthree\n"
    assert run("threads", "log", thread_id).out == "one\ntwo\nthree\n"


@pytest.mark.parametrize("command", ["show", "wait", "cancel", "kill", "log"])
def test_a_thread_that_never_existed_is_refused(workspace, run, command):
    done = run("threads", command, "no-such-thread")
    assert done.code == 2
    assert "There is no thread 'no-such-thread'" in done.err
    assert "rye threads list --all" in done.err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--thread", "fork"], "Tools can't be forked"),
        (["--thread", "spoon"], "Unknown thread mode 'spoon'"),
        (["--target", "remote"], "There are no remotes"),
        (["--target", "moon"], "Unknown target 'moon'"),
        (["--async", "--dry-run"], "dry_run with async is not supported"),
        (["--target", "remote:gpu", "--dry-run"], "dry_run with a remote target"),
    ],
)
def test_the_matrix_refuses_from_the_command_line_too(workspace, run, options, error):
    workspace.shell("acme/work", "echo hello")
    done = run("execute", "tool:acme/work", *options)
    assert (done.code, error in done.err) == (2, True)
    assert error in json.loads(run("execute", "tool:acme/work", *options, "--json").out)["error"]
