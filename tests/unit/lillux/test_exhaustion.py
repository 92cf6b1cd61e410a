"""No descriptor, process or thread is left: an error of ours says so, and what to do."""

import errno
import os
import subprocess
import sys

import pytest

from ryecore.lillux.exhaustion import exhaustion_of
from tests.house import House


@pytest.mark.parametrize(
    ("problem", "step"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "ulimit -n"),
        (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "ulimit -u"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "memory"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (ExceptionGroup("some", [ValueError(), OSError(errno.EMFILE, "x")]), "ulimit -n"),
    ],
)
def test_what_is_used_up_is_named_with_its_next_step(problem: Exception, step: str) -> None:
    found = exhaustion_of(problem)
    assert found is not None
    assert step in found.next_step


def test_other_failures_are_left_as_they_are() -> None:
    others: tuple[Exception, ...] = (OSError(errno.ENOENT, "x"), RuntimeError("no"))
    for problem in (*others, ExceptionGroup("g", others)):
        assert exhaustion_of(problem) is None


@pytest.mark.parametrize("most", [8, 12, 16, 24])
def test_a_command_without_descriptors_shows_no_traceback(house: House, most: int) -> None:
    script = f'ulimit -n {most}; exec "$@"'
    for command in (["execute", "rye/bash", "command=true"], ["threads", "list"]):
        done = subprocess.run(
            ["bash", "-c", script, "-", sys.executable, "-m", "ryecore.cli", *command],
            cwd=house.project,
            env={**house.environ, "USER_SPACE": str(house.user)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == 0 or "ulimit" in done.stderr, done.stderr
