"""A small host of warm templates: one call after another, with the real runtimes and interpreters.

It speaks the protocol of the native pool, and counts what a child costs.
"""

import array
import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen
from ruamel.yaml import YAML

from ryecore.items.spaces import built_in_space
from tests.interpreter import PYTHON

__all__ = ["PYTHONS", "RUNTIMES", "Call", "Ended", "Refused", "Template", "python_call"]

RUNTIMES = built_in_space().root / "tools/rye/core/runtimes/python"
WAIT_S = 20.0


def _pythons() -> dict[str, str]:
    """The interpreters of this machine, by version; the one that runs this always."""
    found = {"{}.{}".format(*sys.version_info[:2]): PYTHON}
    for path in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")):
        found.setdefault(".".join(path.parts[-3].split(".")[:2]), str(path))
    if Path("/usr/bin/python3").exists():
        found["system"] = "/usr/bin/python3"
    return found


PYTHONS = _pythons()


class Refused(Exception):
    """What is said by a template that can't be one."""


@frozen
class Ended:
    """How a call ended.

    Attributes:
        code: The exit code; negative is a signal.
        usage: What the process cost.
    """

    code: int
    out: str
    err: str
    usage: resource.struct_rusage = field(eq=False, repr=False)


@frozen
class Call:
    """One way to start a tool.

    Attributes:
        argv: The command line of a cold start.
        warm_argv: The one of a template.
        settings: What a template is told.
    """

    argv: Sequence[str]
    warm_argv: Sequence[str]
    settings: Mapping[str, Any]
    cwd: str
    env: Mapping[str, str]

    def cold(self, given: bytes = b"{}") -> Ended:
        """Start it as ever."""
        child = subprocess.Popen(
            self.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.cwd,
            env=self.env,
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            child.stdin.write(given)
            child.stdin.close()
        except BrokenPipeError:
            pass
        out, err = _drain(child.stdout.fileno(), child.stderr.fileno())
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        child.stdout.close()
        child.stderr.close()
        return Ended(child.returncode, out, err, usage)


def python_call(
    runtime: str,
    tool: Path,
    *,
    python: str = PYTHON,
    project: str = "/tmp",
    env: Mapping[str, str] | None = None,
    preload: Sequence[str] = (),
    leading_imports: bool = True,
) -> Call:
    """How python/function or python/script starts a tool.

    Args:
        runtime: `function` or `script`.
        tool: The tool's file.
        python: The interpreter.
        project: The project's folder, which is the working folder.
        env: The environment besides PATH.
        preload: Modules that a template imports.
        leading_imports: Whether a template imports what the tool begins with.
    """
    declared = YAML(typ="safe", pure=True).load((RUNTIMES / f"{runtime}.yaml").read_text())
    values = {
        "{nowhere}": str(tool.parent / "nowhere"),
        "{tool_path}": str(tool),
        "{tool_source}": str(tool),
        "{project_path}": project,
    }
    args = [values.get(arg, arg) for arg in declared["config"]["args"]]
    script = next(arg for arg in args if "\n" in arg)

    def argv(at_the_mark: str) -> list[str]:
        filled = script.replace("{fork_point}", at_the_mark)
        return [python, *(filled if arg is script else arg for arg in args)]

    settings = {"preload": [*preload], "tool": str(tool) if leading_imports else None}
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(env or {})}
    return Call(argv(""), argv(declared["warm"]["fork_point"]), settings, project, env)


class Template:
    """A template process of this test's own, and the calls that it forks.

    Raises:
        Refused: If it can't be one.
    """

    def __init__(self, call: Call, program: bytes | None = None) -> None:
        if program is None:
            program = (RUNTIMES / "template.py").read_bytes()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(WAIT_S)
        at = theirs.fileno()
        self._printed, printing = os.pipe()
        self.process = subprocess.Popen(
            call.warm_argv,
            stdin=subprocess.DEVNULL,
            stdout=printing,
            stderr=printing,
            close_fds=False,
            preexec_fn=lambda: _hand_over(at),  # noqa: PLW1509 - no thread of the tests forks
            cwd=call.cwd,
            env=call.env,
            start_new_session=True,
        )
        theirs.close()
        os.close(printing)
        try:  # one that can't begin may have ended before it is told anything
            self._control.send(program)
            self._control.send(json.dumps(call.settings).encode())
            word, *rest = self._control.recv(1 << 20).split(b"\0")
        except (ConnectionError, TimeoutError):
            word, rest = b"", []
        said = b""
        if select.select([self._printed], [], [], 0)[0]:
            said = os.read(self._printed, 4096)
        if word != b"ready" or said:
            self.close()
            raise Refused(b" ".join([*rest, said]).decode())
        self.files = [os.fsdecode(path) for path in rest]

    def __enter__(self) -> "Template":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def spare(self, out: int | None = None) -> "Spare":
        """Fork a child ahead of its call.

        Args:
            out: What the child's output is, in place of a pipe.
        """
        feeding, reading, failing, going = os.pipe(), os.pipe(), os.pipe(), os.pipe()
        theirs = [feeding[0], out if out is not None else reading[1], failing[1], going[0]]
        try:
            self._control.sendmsg(
                [b"fork"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", theirs))]
            )
            answer = self._control.recv(4096)
        finally:
            for descriptor in (feeding[0], reading[1], failing[1], going[0]):
                os.close(descriptor)
        if not answer.isdigit():
            raise Refused(answer.decode())
        return Spare(int(answer), feeding[1], going[1], reading[0], failing[0])

    def call(self, given: bytes = b"{}") -> Ended:
        """One call in a child of its own."""
        spare = self.spare()
        spare.go(given)
        return spare.end()

    def close(self) -> None:
        """End the template; it goes by itself once its socket is closed."""
        self._control.close()
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise
        finally:
            os.close(self._printed)


@frozen
class Spare:
    """A child that waits for its call."""

    pid: int
    _stdin: int
    _going: int
    _stdout: int
    _stderr: int

    def go(self, given: bytes = b"{}") -> None:
        """Begin the call."""
        os.write(self._going, b"g")
        os.close(self._going)
        try:
            with open(self._stdin, "wb", buffering=0) as feeding:
                feeding.write(given)
        except BrokenPipeError:
            pass

    def dismiss(self) -> None:
        """Have no call for it."""
        os.close(self._going)
        os.close(self._stdin)

    def end(self) -> Ended:
        """Wait for its end."""
        out, err = _drain(self._stdout, self._stderr)
        _, status, usage = os.wait4(self.pid, 0)
        os.close(self._stdout)
        os.close(self._stderr)
        return Ended(os.waitstatus_to_exitcode(status), out, err, usage)


def _hand_over(control: int) -> None:
    """In a child before its exec: leave it the control socket as 3, and nothing else."""
    if control != 3:
        os.dup2(control, 3)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 3:
            with contextlib.suppress(OSError):  # the listing's own
                os.set_inheritable(int(name), False)
    os.set_inheritable(3, True)


def _drain(*descriptors: int) -> list[str]:
    """What comes in from each until it is closed."""
    texts = {descriptor: bytearray() for descriptor in descriptors}
    still = set(descriptors)
    while still:
        readable, _, _ = select.select(still, [], [], WAIT_S)
        assert readable, "the call doesn't end"
        for descriptor in readable:
            piece = os.read(descriptor, 65536)
            texts[descriptor] += piece
            if not piece:
                still.discard(descriptor)
    return [text.decode("utf-8", "replace") for text in texts.values()]
