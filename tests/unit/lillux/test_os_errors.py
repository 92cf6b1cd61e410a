"""An errno becomes an error that says what happened and what to do."""

import errno
import subprocess
import sys

import pytest

from ryecore.lillux.os_errors import exhaustion_of
from tests.matrix import in_turn
from tests.workspace import Workspace


@pytest.mark.parametrize(
    ("problem", "what", "step"),
    [
        (OSError(errno.EMFILE, "x"), "too many open files", "ulimit -n"),
        (OSError(errno.ENFILE, "x"), "whole machine", "fs.file-max"),
        (OSError(errno.EAGAIN, "x"), "process or thread", "ulimit -u"),
        (OSError(errno.ENOMEM, "x"), "No memory", "memory"),
        (RuntimeError("can't start new thread"), "process or thread", "ulimit -u"),
        (ExceptionGroup("some", [ValueError(), OSError(errno.EMFILE, "x")]), "files", "ulimit -n"),
    ],
)
def test_what_is_used_up_is_named_with_its_next_step(
    problem: Exception, what: str, step: str
) -> None:
    found = exhaustion_of(problem)
    assert found is not None
    assert what in found.message
    assert step in found.next_step


def test_other_failures_are_left_as_they_are() -> None:
    others: tuple[Exception, ...] = (
        OSError(errno.ENOENT, "x"),
        OSError(errno.ENOSPC, "x"),
        OSError(),
        RuntimeError("no"),
    )
    for problem in (*others, ExceptionGroup("g", others)):
        assert exhaustion_of(problem) is None


@pytest.mark.parametrize(
    ("most", "command"),
    in_turn([8, 12, 16, 24], [["execute", "rye/bash", "command=true"], ["threads", "list"]]),
)
def test_a_command_without_descriptors_shows_no_traceback(
    workspace: Workspace, most: int, command: list[str]
) -> None:
    script = f'ulimit -n {most}; exec "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "-", sys.executable, "-m", "ryecore.cli", *command],
        cwd=workspace.project,
        env={**workspace.environ, "USER_SPACE": str(workspace.user)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "ulimit" in done.stderr, done.stderr
