"""Running the system's tools as they run in earnest: each call in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any

from ryecore.lillux import ProcessSpec, run_process_sync

RYE = Path(__file__).parents[3] / "src/ryecore/system/.ai/tools/rye"
FILE_SYSTEM = RYE / "file-system"
FILE_TOOLS = ("read", "write", "edit", "list", "glob", "grep")

# Loads a function tool from its path and answers each line of parameters with a line of result.
LOADER = """
import importlib.util, json, sys
name, project, settings = sys.argv[1:]
spec = importlib.util.spec_from_file_location("tool", name)
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
vars(tool).update(json.loads(settings))
for line in sys.stdin:
    print(json.dumps(tool.execute(json.loads(line), project)), flush=True)
"""

# Loads it once, as a warm template does, and forks for each line: project, settings, parameters.
TEMPLATE = """
import importlib.util, json, os, sys, tempfile, traceback
spec = importlib.util.spec_from_file_location("tool", sys.argv[1])
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
for line in sys.stdin:
    if os.fork() == 0:
        project, settings, params = json.loads(line)
        vars(tool).update(settings)
        result = None
        with tempfile.TemporaryFile() as err:
            os.dup2(err.fileno(), 2)
            try:
                result = tool.execute(params, project)
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            err.seek(0)
            print(json.dumps([result, err.read().decode()]), flush=True)
        os._exit(0)
    os.wait()
"""

Result = dict[str, Any]


def environment() -> dict[str, str]:
    """What a tool's process sees: its anchor comes first."""
    return {**os.environ, "PYTHONPATH": str(FILE_SYSTEM), "PYTHONDONTWRITEBYTECODE": "1"}


def loader(name: str, project: Path, settings: dict[str, object] | None = None) -> list[str]:
    path = str(FILE_SYSTEM / f"{name}.py")
    return [sys.executable, "-c", LOADER, path, str(project), json.dumps(settings or {})]


_templates: "dict[tuple[object, ...], subprocess.Popen[str]]" = {}


def template(name: str) -> "subprocess.Popen[str]":
    """A process that forks for each call of a file tool by this thread, until `end_templates`."""
    variables = {**os.environ}
    variables.pop("PYTEST_CURRENT_TEST", None)
    key = (name, frozenset(variables.items()), get_ident())
    if key not in _templates:
        command = [sys.executable, "-c", TEMPLATE, str(FILE_SYSTEM / f"{name}.py")]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        _templates[key] = subprocess.Popen(command, text=True, env=environment(), **pipes)
    return _templates[key]


def end_templates() -> None:
    """End all processes of `template`."""
    while _templates:
        _templates.popitem()[1].communicate()


def call_template(name: str, asked: list[object]) -> tuple[Result | None, str]:
    """What a forked call of a file tool gives, and what it wrote on its standard error."""
    process = template(name)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(asked) + "\n")
    process.stdin.flush()
    result, errors = json.loads(process.stdout.readline())
    return result, errors


def call(
    name: str,
    project: Path,
    *,
    config: dict[str, object] | None = None,
    settings: dict[str, object] | None = None,
    prepare: Callable[[], None] | None = None,
    **params: object,
) -> Result:
    """Call a file tool in a process of its own, forked where nothing has to be prepared.

    Args:
        name: The tool's name.
        project: The project's folder.
        config: The resolved config.
        settings: Constants of the tool that are set otherwise, such as a time bound.
        prepare: Runs in the child before the tool does.
        **params: The tool's parameters.
    """
    given = {**params, "resolved_config": config or {}}
    if prepare is None:
        forked, errors = call_template(name, [str(project), settings or {}, given])
        assert not errors
        assert forked is not None
        assert forked["success"] or forked["error"]
        return forked
    done = subprocess.run(
        loader(name, project, settings),
        input=json.dumps(given),
        capture_output=True,
        text=True,
        env=environment(),
        preexec_fn=prepare,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    result: Result = json.loads(done.stdout)
    assert result["success"] or result["error"]
    return result


class Serving:
    """One process that answers many calls of a tool, for tests with many examples."""

    def __init__(self, name: str, project: Path) -> None:
        self._process = subprocess.Popen(
            loader(name, project),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def __enter__(self) -> "Serving":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def call(self, **params: object) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(params) + "\n")
        self._process.stdin.flush()
        result: Result = json.loads(self._process.stdout.readline())
        return result


BASH = (str(RYE / "bash.py"), "--project-path")


def start_bash(project: Path) -> "subprocess.Popen[bytes]":
    """Start rye/bash by hand, to send it signals."""
    return subprocess.Popen(
        [sys.executable, *BASH, str(project)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def bash(
    project: Path, command: str, *, memory_limit_kib: int | None = None, **params: object
) -> Result:
    """Run a command with rye/bash, under lillux as its runtime does."""
    limit = "" if memory_limit_kib is None else f"ulimit -v {memory_limit_kib}; "
    done = run_process_sync(
        ProcessSpec(
            "/bin/sh",
            ("-c", f'{limit}exec "$0" "$@"', sys.executable, "-B", *BASH, str(project)),
            cwd=str(project),
            env=os.environ,
            stdin=json.dumps({"command": command, **params}).encode(),
        )
    )
    assert not done.stderr, done.stderr
    assert done.exit_code == 0
    result: Result = json.loads(done.stdout)
    return result


def end(pid: int) -> None:
    """End a process that a test left in the background on purpose."""
    os.kill(pid, signal.SIGKILL)
