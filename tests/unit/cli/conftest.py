"""The `rye` command as a real process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from tests.forking import Forked, can_fork
from tests.workspace import Workspace

COMMAND = [sys.executable, "-m", "ryecore.cli"]


@frozen
class Done:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its one JSON document."""
        document: dict[str, Any] = json.loads(self.out)
        return document


Run = Callable[..., Done]


def environ(workspace: Workspace) -> dict[str, str]:
    return {**workspace.environ, "USER_SPACE": str(workspace.user)}


@pytest.fixture(scope="module")
def forked_with() -> dict[str, Any]:
    """More options of `Forked` for the commands of a module."""
    return {}


@pytest.fixture
def run(workspace: Workspace, forked_with: dict[str, Any]) -> Run:
    """Runs the command in the project's folder, and sees that it never shows a traceback."""

    def run_command(*args: str, stdin: str | bytes = b"", **variables: str) -> Done:
        env = {**environ(workspace), **variables}
        streams: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        started: subprocess.Popen[bytes] = (
            Forked(
                ["ryecore.cli", *args],
                **forked_with,
                cwd=workspace.project,
                env=env,
                **streams,
            )
            if can_fork(env)
            else subprocess.Popen([*COMMAND, *args], cwd=workspace.project, env=env, **streams)
        )
        with started:
            try:
                out, err = started.communicate(
                    stdin.encode() if isinstance(stdin, str) else stdin, timeout=60
                )
            except BaseException:
                started.kill()
                raise
        assert b"Traceback" not in err, err.decode()
        return Done(started.returncode, out.decode(), err.decode())

    return run_command


def read_all(descriptor: int) -> str:
    """What comes from a descriptor until its other side is closed."""
    parts = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # a terminal whose other side has gone
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()
