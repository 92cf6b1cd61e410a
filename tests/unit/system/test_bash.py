"""rye/bash: a command in the project, bounded in time, output and memory."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix import IS_SOAK
from tests.unit.system.tools import RYE, bash, end, start_bash

KIB = 1024


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def ends(pid: int) -> bool:
    """Whether a process has ended, or does so in time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(process, select.POLLIN)
    ended = bool(poll.poll(10_000))
    os.close(process)
    return ended


def test_answers_output_and_exit_code(project: Path) -> None:
    result = bash(project, "echo out; echo err >&2")
    assert result == {
        "success": True,
        "stdout": "out\n",
        "stderr": "err\n",
        "exit_code": 0,
        "timed_out": False,
        "truncated": False,
    }


def test_a_failing_command_is_a_failed_run_with_its_code(project: Path) -> None:
    result = bash(project, "echo why >&2; exit 3")
    assert (result["success"], result["exit_code"], result["stderr"]) == (False, 3, "why\n")
    assert "exit code 3" in result["error"]


def test_runs_in_the_project_with_empty_input(project: Path) -> None:
    result = bash(project, "pwd; cat; readlink /proc/self/fd/0")
    assert result["stdout"] == f"{project}\n/dev/null\n"


def test_it_is_bash_and_the_command_is_not_rewritten(project: Path) -> None:
    result = bash(project, "[[ a == a ]] && echo '${HOME} {project_path}' \"$0\"")
    assert result["stdout"] == "${HOME} {project_path} bash\n"


def test_working_dir_is_below_the_project(project: Path) -> None:
    (project / "sub").mkdir()
    assert bash(project, "pwd", working_dir="sub")["stdout"] == f"{project}/sub\n"


@pytest.mark.parametrize("inside", ["..", "/", "link", "../project-evil", "sub/../../other"])
def test_working_dir_outside_is_refused(project: Path, inside: str) -> None:
    for name in ("project-evil", "other"):
        (project.parent / name).mkdir()
    (project / "link").symlink_to(project.parent)
    result = bash(project, "pwd", working_dir=inside)
    assert not result["success"]
    assert "outside the project" in result["error"]
    assert str(project) in result["error"]


def test_working_dir_that_is_no_folder_is_refused(project: Path) -> None:
    (project / "file").write_text("")
    for inside in ("file", "missing", "a\0b"):
        result = bash(project, "pwd", working_dir=inside)
        assert not result["success"]
        assert "working_dir" in result["error"]


def test_the_timeout_ends_the_command_and_keeps_its_output(project: Path) -> None:
    result = bash(project, "echo before; sleep 60; echo after", timeout=0.3)
    assert (result["success"], result["timed_out"]) == (False, True)
    assert result["stdout"] == "before\n"
    assert "longer than 0.3 s" in result["error"]


def test_the_timeout_ends_what_the_command_started(project: Path) -> None:
    result = bash(project, "sleep 600 & echo $!; wait", timeout=0.3)
    assert result["timed_out"]
    assert ends(int(result["stdout"]))


def test_one_that_ignores_term_is_killed(project: Path) -> None:
    result = bash(project, "trap '' TERM; echo $$; while :; do sleep 0.1; done", timeout=0.3)
    assert result["timed_out"]
    assert result["exit_code"] == 128 + signal.SIGKILL
    assert ends(int(result["stdout"]))


def test_a_child_that_ignores_term_is_killed_though_the_shell_ended(project: Path) -> None:
    result = bash(
        project, "(trap '' TERM; echo $BASHPID; while :; do sleep 0.1; done) & wait", timeout=0.3
    )
    assert result["timed_out"]
    assert ends(int(result["stdout"]))


def test_a_grandchild_that_left_the_group_cannot_hold_it_up(project: Path) -> None:
    result = bash(project, "setsid sleep 600 & echo $!; wait", timeout=0.3)
    assert result["timed_out"]
    end(int(result["stdout"]))


def test_a_background_process_that_holds_the_pipes_does_not_delay_the_answer(
    project: Path,
) -> None:
    result = bash(project, "sleep 600 & echo $!", timeout=30)
    assert result["success"]
    assert "background" in result["note"]
    assert ends(int(result["stdout"]))


def test_a_large_output_takes_little_memory(project: Path) -> None:
    size = 1_000_000_000 if IS_SOAK else 300_000_000
    result = bash(
        project,
        f"echo first; head -c {size} /dev/zero | tr '\\0' x; echo; echo last",
        memory_limit_kib=256 * KIB,
    )
    out = result["stdout"]
    assert result["success"]
    assert result["truncated"]
    assert out.startswith("first\nxxx")
    assert out.endswith("xxx\nlast\n")
    total = size + len("first\n\nlast\n")
    assert f"\n[... {total - 50 * KIB} bytes left out ...]\n" in out
    assert len(out) < 51 * KIB


def test_each_stream_has_its_own_bound(project: Path) -> None:
    result = bash(project, f"head -c {50 * KIB} /dev/zero | tr '\\0' x; seq 20000 >&2")
    assert result["stdout"] == "x" * 50 * KIB
    assert result["truncated"]
    assert result["stderr"].startswith("1\n2\n")
    assert result["stderr"].endswith("\n19999\n20000\n")


def test_the_cut_splits_no_character(project: Path) -> None:
    for shift in range(4):
        text = "x" * shift + "€" * 40000
        (project / "text").write_text(text)
        out = bash(project, "cat text")["stdout"]
        head, middle, tail = out.split("\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        left_out = len(text.encode()) - len((head + tail).encode())
        assert middle == f"[... {left_out} bytes left out ...]"


def test_both_pipes_are_drained_at_once(project: Path) -> None:
    result = bash(project, "seq 50000 >&2; seq 50000; seq 50000 >&2", timeout=30)
    assert result["success"]


def test_invalid_utf8_stays_visible(project: Path) -> None:
    assert bash(project, "printf 'a\\xff\\xc3b'")["stdout"] == "a\\xff\\xc3b"


def test_a_signal_is_named(project: Path) -> None:
    result = bash(project, "kill -SEGV $$")
    assert result["exit_code"] == 128 + signal.SIGSEGV
    assert "SIGSEGV" in result["error"]


def test_a_command_in_a_pipe_ends_by_sigpipe_quietly(project: Path) -> None:
    result = bash(project, "yes | head -n 1")
    assert (result["stdout"], result["stderr"]) == ("y\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_tool_ends_the_command_too(project: Path, number: signal.Signals) -> None:
    os.mkfifo(project / "started")
    process = start_bash(project)
    assert process.stdin is not None
    process.stdin.write(json.dumps({"command": "echo kept; echo $$ >started; sleep 60"}).encode())
    process.stdin.close()
    process.stdin = None
    command = int((project / "started").read_text())
    process.send_signal(number)
    out, _ = process.communicate()
    assert ends(command)
    assert process.returncode == 128 + number
    result = json.loads(out)
    assert not result["success"]
    assert result["stdout"] == "kept\n"
    assert number.name in result["error"]


@pytest.mark.parametrize(
    "document",
    [
        b"no JSON",
        b"[]",
        b"{}",
        b'{"command": 1}',
        b'{"command": ""}',
        b'{"command": "a", "timeout": "long"}',
        b'{"command": "a", "timeout": 0}',
        b'{"command": "a", "timeout": Infinity}',
        b'{"command": "a", "timeout": NaN}',
        b'{"command": "a", "working_dir": 1}',
        b'{"command": "a\\u0000b"}',
        b'{"command": "\\ud800"}',
        json.dumps({"command": ":" * 200000}).encode(),
        b"\xff",
    ],
)
def test_bad_input_is_an_error_and_no_traceback(project: Path, document: bytes) -> None:
    process = start_bash(project)
    out, err = process.communicate(document)
    assert (process.returncode, err) == (0, b"")
    result = json.loads(out)
    assert result["success"] is False
    assert result["error"]


def test_bad_arguments_are_an_error() -> None:
    done = subprocess.run(
        [sys.executable, str(RYE / "bash.py")], input=b"{}", capture_output=True, check=False
    )
    assert json.loads(done.stdout)["success"] is False
