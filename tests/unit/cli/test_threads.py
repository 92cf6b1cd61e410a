"""The commands of `rye threads`, as real processes."""

import subprocess

import pytest

from tests.unit.cli.conftest import COMMAND, environ


def launched(run, ref):
    thread_id = run("execute", ref, "--async", "--json").json["thread_id"]
    assert run("threads", "wait", thread_id).code == 0
    return thread_id


@pytest.mark.parametrize("command", ["show", "wait", "cancel", "kill", "log"])
def test_a_thread_that_never_existed_is_refused(house, run, command):
    thread_id = launched(run, house.shell("acme/hi", "echo hi"))
    done = run("threads", command, "nosuch")
    assert (done.code, done.out) == (2, "")
    assert "rye threads list" in done.err
    if command == "wait":
        assert run("threads", "wait", thread_id, "nosuch").code == 2


def test_a_log_is_printed_as_it_is_whatever_the_output_can_hold(house, run):
    thread_id = launched(run, house.shell("acme/hi", r"printf 'tide \342\206\221\r\n'"))
    assert run("threads", "log", thread_id).out == "tide ↑\r\n"
    plain = run("threads", "log", thread_id, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (plain.code, plain.out) == (0, "tide \\u2191\r\n")


def test_a_log_that_nobody_reads_on_is_no_traceback(house, run):
    thread_id = launched(run, house.shell("acme/long", "seq 200000"))
    done = subprocess.run(
        ["/bin/sh", "-c", '"$@" | head -n 1', "sh", *COMMAND, "threads", "log", thread_id],
        capture_output=True,
        text=True,
        check=False,
        cwd=house.project,
        env=environ(house),
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
