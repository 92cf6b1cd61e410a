"""The `rye` command, in this process and as a process of its own."""

import io
import json
import os
import pty
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import frozen

from ryecore.cli.commands import rye
from tests.forking import SERVERS, Forked, can_fork
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


@pytest.fixture
def run(workspace: Workspace, forking_interpreter: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process, in the project's folder; exceptions leave it."""
    monkeypatch.chdir(workspace.project)
    monkeypatch.setattr(sys, "executable", forking_interpreter)

    def run_command(*args: str, stdin: str | bytes = b"", **variables: str) -> Done:
        given = stdin.encode() if isinstance(stdin, str) else stdin
        with surroundings(given, {**environ(workspace), **variables}) as (out, err):
            with pytest.raises(SystemExit) as ending:
                rye.main([*args], prog_name="rye")
            code = ending.value.code
            assert isinstance(code, int)
            return Done(code, out.getvalue().decode(), err.getvalue().decode())

    return run_command


@contextmanager
def surroundings(stdin: bytes, env: Mapping[str, str]) -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Give this process the streams, the environment and the warnings of a new one meanwhile."""
    out, err = io.BytesIO(), io.BytesIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for name, stream, errors in (
            ("stdin", io.BytesIO(stdin), "surrogateescape"),
            ("stdout", out, "surrogateescape"),
            ("stderr", err, "backslashreplace"),
        ):
            text = io.TextIOWrapper(stream, "utf-8", errors, write_through=True)
            patch.setattr(sys, name, text)
        for name in set(os.environ) - set(env):
            patch.delenv(name)
        for name, value in env.items():
            patch.setenv(name, value)
        warnings.resetwarnings()
        yield out, err


def start(
    workspace: Workspace, *args: str, env: Mapping[str, str] | None = None, **streams: Any
) -> "subprocess.Popen[bytes]":
    """Start the command as a process, forked unless its environment is read as Python starts."""
    variables = {**environ(workspace), **(env or {})}
    wanted = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options: dict[str, Any] = {"cwd": workspace.project, "env": variables, **wanted, **streams}
    if can_fork(variables):
        return Forked(["ryecore.cli", *args], imported=SERVERS, **options)
    return subprocess.Popen[bytes]([*COMMAND, *args], **options)


def run_on_terminal(
    workspace: Workspace, *args: str, typed: str | None = None, **variables: str
) -> str:
    """What a person sees of the command in a terminal, who has typed something."""
    leader, follower = pty.openpty()
    stdin = subprocess.DEVNULL if typed is None else follower
    with start(workspace, *args, env=variables, stdin=stdin, stdout=follower, stderr=follower):
        os.close(follower)
        os.write(leader, (typed or "").encode())
        shown = read_all(leader)
    os.close(leader)
    return shown


@pytest.fixture
def run_process(workspace: Workspace) -> Run:
    """Runs the command as a process, and sees that it never shows a traceback."""

    def run_command(*args: str, **variables: str) -> Done:
        with start(workspace, *args, env=variables) as started:
            try:
                out, err = started.communicate(timeout=60)
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
