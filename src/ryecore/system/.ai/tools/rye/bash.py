# rye:signed:2026-11-28T17:20:55Z:9bc119113acd0f4006e7c8b7f1031201cf1df9202bc5c04c982477ce4a18dde7:50MxPc0RWe7s76g9AIpB3I1BfcH7HvD3L2bKMael7if7d7kxkNNhAfFVWru6pcss2wAQC3QLZQ7XMWvM1xYFDg:a50d0ff255b90b74
"""Run one shell command in the project, bounded in time, output and memory.

The process is started with posix_spawn and read with poll: a tool starts without bytecode
caches, so every import that is not needed (subprocess above all) would cost each call.

The command stays in this tool's process group, which ends as a whole when the tool does: so
nothing of it survives, however the tool ends.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/script"
__category__ = "rye"
__tool_description__ = (
    "Run a bash command in the project and return its output and exit code; "
    "the command gets no input and ends at the timeout."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100000,
            "description": "What bash runs, as for `bash -c`.",
            "x-rye-script": "bash",
        },
        "args": {
            "type": "array",
            "maxItems": 1000,
            "default": [],
            "items": {"type": "string", "maxLength": 100000},
            "description": 'Values for the command, which it reads as "$1", "$2" and on.',
        },
        "env": {
            "type": "object",
            "maxProperties": 100,
            "default": {},
            "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "additionalProperties": {"type": "string", "maxLength": 100000},
            "description": "Variables for the command, by name.",
        },
        "timeout": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 3600,
            "default": 120,
            "description": "Seconds after which the command and what it started are ended.",
        },
        "working_dir": {
            "type": "string",
            "maxLength": 4096,
            "description": "Folder to run in, relative to the project and inside it.",
        },
    },
    "required": ["command"],
    "additionalProperties": False,
}

KEPT_BYTES = 25 * 1024  # of the head and of the tail of each stream
GRACE_S = 1.0  # between TERM and KILL
LINGER_S = 0.25  # for output that is still on its way once the command has ended


class BadInput(Exception):
    """The command can't be run; the text says what to do next."""


class Stream:
    """One output of the command: its head and its tail, and how much came in all."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()

    def read(self) -> bool:
        """Read what has arrived; return False once the stream has ended."""
        piece = os.read(self.descriptor, 65536)
        self.total += len(piece)
        room = KEPT_BYTES - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        if len(self._tail) > 8 * KEPT_BYTES:
            del self._tail[:-KEPT_BYTES]
        return bool(piece)

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return self.total > 2 * KEPT_BYTES

    def text(self) -> str:
        """The output; bytes that aren't UTF-8 are written as backslash escapes."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "backslashreplace")
        head, tail = bytes(self._head), bytes(self._tail[-KEPT_BYTES:])
        # A character that the cut goes through is left out, not shown as an escape.
        for back in range(1, 4):
            if head[-back] >= 0xC0:
                size = 2 if head[-back] < 0xE0 else 3 if head[-back] < 0xF0 else 4
                head = head[:-back] if size > back else head
                break
        start = 0
        while start < 3 and 0x80 <= tail[start] < 0xC0:
            start += 1
        tail = tail[start:]
        left_out = self.total - len(head) - len(tail)
        return (
            head.decode("utf-8", "backslashreplace")
            + f"\n[... {left_out} bytes left out ...]\n"
            + tail.decode("utf-8", "backslashreplace")
        )


class Command:
    """A running command, in this tool's own process group."""

    def __init__(self, command: str, args: list[str], env: dict[str, str]) -> None:
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.out, self.err = Stream(out_read), Stream(err_read)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out_write, 1),
            (os.POSIX_SPAWN_DUP2, err_write, 2),
        ]
        try:
            self.pid = os.posix_spawnp(
                "/bin/bash" if os.access("/bin/bash", os.X_OK) else "bash",
                ["bash", "-c", "--", command, "bash", *args],
                {**os.environ, **env},
                file_actions=actions,
                # Python ignores these two; a command expects to be ended by them.
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        finally:
            os.close(out_write)
            os.close(err_write)
        self.exit_code: int | None = None
        self.still_held = False  # whether something held the pipes when the reading stopped

    def reap(self) -> None:
        """Learn the shell's exit code, if it has ended; negative is a signal."""
        if self.exit_code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_code = os.waitstatus_to_exitcode(status)

    def end(self) -> None:
        """Ask the command, and all that it started, to end; this tool goes on."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)

    def kill(self) -> None:
        """End the shell at once; what it started ends with this tool's group."""
        if self.exit_code is None:
            os.kill(self.pid, signal.SIGKILL)


def enter(project: str, inside: str) -> None:
    """Make a folder of the project, inside it once links are resolved, the working folder."""
    if "\0" in inside:
        raise BadInput("working_dir contains a NUL character; give a plain path.")
    root = os.path.realpath(project)
    folder = os.path.realpath(os.path.join(root, inside))
    if os.path.commonpath([root, folder]) != root:
        raise BadInput(
            f"working_dir {inside!r} lies outside the project {root}; "
            "give a folder inside it, relative to the project."
        )
    try:
        os.chdir(folder)
    except OSError as failure:
        raise BadInput(
            f"working_dir {inside!r} can't be entered in the project {root}: {failure.strerror}."
        ) from failure


def watch(command: Command, timeout: float, wake: int, told_to_end: list[int]) -> bool:
    """Read both streams until the command is over, ending it where it must end.

    Return whether it ran into the timeout, in seconds. `wake` is a descriptor that is readable when
    a signal came in; `told_to_end` gets a signal's number once this tool itself is told to end.
    """
    poll = select.poll()
    open_streams = {stream.descriptor: stream for stream in (command.out, command.err)}
    for descriptor in (*open_streams, wake):
        poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + timeout
    timed_out = False
    ending = killed = False  # TERM was sent, KILL was sent
    over: float | None = None  # when to stop reading, once the command has ended
    while True:
        now = time.monotonic()
        command.reap()
        exited = command.exit_code is not None
        if not ending and not exited and (told_to_end or now >= deadline):
            timed_out = not told_to_end
            command.end()
            ending, deadline = True, now + GRACE_S
        elif ending and not killed and now >= deadline:
            command.kill()
            killed = True
        if over is None and (killed or exited):
            over = now + LINGER_S
        if over is not None and (now >= over or not open_streams):
            command.still_held = bool(open_streams)
            return timed_out
        wait = (deadline if over is None else over) - now
        for descriptor, _ in poll.poll(max(0.0, wait) * 1000 + 1):
            if descriptor == wake:
                os.read(wake, 512)
            elif not open_streams[descriptor].read():
                poll.unregister(descriptor)
                del open_streams[descriptor]


def outcome(
    command: Command, timeout: float, timed_out: bool, told_to_end: list[int]
) -> dict[str, object]:
    """Return the tool's result."""
    code = command.exit_code if command.exit_code is not None else -signal.SIGKILL
    result: dict[str, object] = {
        "success": code == 0 and not timed_out and not told_to_end,
        "stdout": command.out.text(),
        "stderr": command.err.text(),
        "exit_code": code if code >= 0 else 128 - code,
        "timed_out": timed_out,
        "truncated": command.out.truncated or command.err.truncated,
    }
    if timed_out or told_to_end or code < 0:
        result["effect_unknown"] = True
    if timed_out:
        result["error"] = (
            f"The command ran longer than {timeout:g} s and was ended; what it printed until then "
            "is kept. Give a longer timeout (at most 3600) or do less at once."
        )
    elif told_to_end:
        name = signal.Signals(told_to_end[0]).name
        result["error"] = f"The tool was told to end ({name}), so the command was ended too."
    elif code < 0:
        result["error"] = f"The command was killed by {signal_name(-code)}."
    elif code:
        result["error"] = f"The command ended with exit code {code}; see stderr and stdout."
    if not timed_out and not told_to_end and command.still_held:
        result["note"] = (
            "Processes that the command started in the background were ended with it; "
            "their further output is lost."
        )
    return result


def signal_name(number: int) -> str:
    """A signal's name, for example SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_texts(values: object) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def run(parameters: dict[str, object], project: str, told_to_end: list[int]) -> dict[str, object]:
    """Run the command that the parameters name, and return the tool's result.

    `told_to_end` gets a signal's number once this tool is told to end.
    """
    text = parameters.get("command")
    timeout = parameters.get("timeout", 120)
    inside = parameters.get("working_dir", ".")
    args, env = parameters.get("args", []), parameters.get("env", {})
    if not is_texts(args) or not isinstance(env, dict) or not is_texts(list(env.values())):
        raise BadInput("Give args as a list of strings, and env as an object of strings.")
    if not isinstance(text, str) or not text or not isinstance(inside, str):
        raise BadInput("Give the command, and working_dir where it is used, as a string.")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise BadInput("Give the timeout as a number of seconds.")
    if not 0 < timeout <= 3600:
        raise BadInput("Give a timeout above 0 and of at most 3600 seconds.")

    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: told_to_end.append(number))

    enter(project, inside)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # started by hand: a group of its own, as its runtime gives it
    try:
        command = Command(text, args, env)
    except FileNotFoundError:
        raise BadInput("bash was not found: install it, or put its folder on PATH.") from None
    except OSError as failure:
        raise BadInput(
            f"The command could not be started: {failure.strerror}. "
            "One that is very long belongs in a script file that the command runs."
        ) from failure
    except ValueError as failure:
        raise BadInput(f"The command could not be started: {failure}.") from failure
    timed_out = watch(command, timeout, wake_read, told_to_end)
    return outcome(command, timeout, timed_out, told_to_end)


def main() -> int:
    """Read the parameters from stdin, run the command, print the result."""
    told_to_end: list[int] = []
    try:
        if len(sys.argv) != 3 or sys.argv[1] != "--project-path":
            raise BadInput("Usage: bash.py --project-path PROJECT, with the parameters on stdin.")
        try:
            parameters = json.loads(sys.stdin.buffer.read())
        except ValueError as failure:
            raise BadInput(
                f"The parameters on stdin aren't a JSON document: {failure}."
            ) from failure
        if not isinstance(parameters, dict):
            raise BadInput("The parameters on stdin must be one JSON object.")
        result = run(parameters, sys.argv[2], told_to_end)
    except BadInput as refused:
        result = {"success": False, "error": str(refused)}
    try:
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter complains at its exit
    return 128 + told_to_end[0] if told_to_end else 0


if __name__ == "__main__":
    sys.exit(main())
