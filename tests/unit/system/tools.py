"""Running the system's tools as they run in earnest: each call in a fresh process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

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

Result = dict[str, Any]


def environment() -> dict[str, str]:
    """What a tool's process sees: its anchor comes first."""
    return {**os.environ, "PYTHONPATH": str(FILE_SYSTEM), "PYTHONDONTWRITEBYTECODE": "1"}


def loader(name: str, project: Path, settings: dict[str, object] | None = None) -> list[str]:
    path = str(FILE_SYSTEM / f"{name}.py")
    return [sys.executable, "-c", LOADER, path, str(project), json.dumps(settings or {})]


def call(
    name: str,
    project: Path,
    *,
    config: dict[str, object] | None = None,
    settings: dict[str, object] | None = None,
    prepare: Callable[[], None] | None = None,
    **params: object,
) -> Result:
    """Call a file tool in a process of its own.

    Args:
        name: The tool's name.
        project: The project's folder.
        config: The resolved config.
        settings: Constants of the tool that are set otherwise, such as a time bound.
        prepare: Runs in the child before the tool does.
        **params: The tool's parameters.
    """
    done = subprocess.run(
        loader(name, project, settings),
        input=json.dumps({**params, "resolved_config": config or {}}),
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


def start_bash(
    project: Path, prepare: Callable[[], None] | None = None
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, str(RYE / "bash.py"), "--project-path", str(project)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=prepare,  # noqa: PLW1509 - it only sets limits of the child
    )


def bash(
    project: Path,
    command: str,
    prepare: Callable[[], None] | None = None,
    **params: object,
) -> Result:
    """Run a command with rye/bash."""
    process = start_bash(project, prepare)
    document = json.dumps({"command": command, **params})
    out, err = process.communicate(document.encode())
    assert not err, err
    assert process.returncode == 0
    result: Result = json.loads(out)
    return result


def end(pid: int) -> None:
    """End a process that a test left in the background on purpose."""
    os.kill(pid, signal.SIGKILL)
