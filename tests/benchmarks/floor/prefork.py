"""The floor of a Python tool's call: a child that was forked ahead, from one poll loop."""

import os
import select
import socket
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["Prefork", "prefork"]

_TEMPLATE: Final = Path(__file__).with_name("template.py")


class _Child:
    """One child: its pid, how its end is seen, and this end of its streams."""

    __slots__ = ("output", "pidfd", "stdin", "still", "streams")

    def __init__(self, pid: int, stdin: int, streams: tuple[int, int]) -> None:
        self.pidfd = os.pidfd_open(pid)
        self.stdin = stdin
        self.streams = streams
        self.output: list[bytes] = []
        self.still = 3  # both streams and the process itself


class Prefork:
    """Calls of one tool, each in a fresh child of a template, with its output captured.

    Attributes:
        pid: The template.
    """

    def __init__(self, control: socket.socket, pid: int, spares: int) -> None:
        self.pid = pid
        self._control = control
        self._asked: deque[tuple[int, tuple[int, int]]] = deque()
        self._spares: deque[_Child] = deque()
        self._poll = select.epoll()
        for _ in range(spares):
            self._ask()
        self.settle()

    def settle(self) -> None:
        """Wait until each spare that was asked for is there."""
        while self._asked:
            self._adopt()

    def call(self, params: bytes) -> bytes:
        """One call. It is answered once its child is gone."""
        return self.calls(params, 1, 1)[0]

    def calls(self, params: bytes, count: int, at_once: int) -> list[bytes]:
        """So many calls, so many of them at once."""
        answers: list[bytes] = []
        running: dict[int, _Child] = {}
        for _ in range(at_once):
            self._begin(params, running)
        while len(answers) < count:
            for descriptor, _ in self._poll.poll():
                child = running[descriptor]
                if descriptor != child.pidfd and (piece := os.read(descriptor, 1 << 16)):
                    child.output.append(piece)
                    continue
                del running[descriptor]
                os.close(descriptor)  # which ends its place in the poll as well
                child.still -= 1
                if not child.still:
                    answers.append(b"".join(child.output))
                    if len(answers) + at_once <= count:
                        self._begin(params, running)
        return answers

    def close(self) -> None:
        """Let the spares go, which find no parameters."""
        self.settle()
        for child in self._spares:
            for descriptor in (child.stdin, child.pidfd, *child.streams):
                os.close(descriptor)
        self._poll.close()
        self._control.close()

    def _begin(self, params: bytes, running: dict[int, _Child]) -> None:
        if not self._spares:
            self._adopt()
        child = self._spares.popleft()
        os.write(child.stdin, params)
        os.close(child.stdin)
        for descriptor in (child.pidfd, *child.streams):
            running[descriptor] = child
            self._poll.register(descriptor, select.EPOLLIN)
        self._ask()

    def _ask(self) -> None:
        reads, writes = zip(os.pipe(), os.pipe(), os.pipe(), strict=True)
        theirs = [reads[0], writes[1], writes[2]]
        socket.send_fds(self._control, [b"f"], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self._asked.append((writes[0], (reads[1], reads[2])))

    def _adopt(self) -> None:
        pid = int.from_bytes(self._control.recv(4), "little")
        self._spares.append(_Child(pid, *self._asked.popleft()))


@contextmanager
def prefork(python: str, tool: Path, project: Path, *, spares: int) -> Iterator[Prefork]:
    """Start a template for a tool.

    Args:
        python: The interpreter.
        tool: The tool, which has `execute(params, project_path)`.
        project: What it is given.
        spares: How many children wait.

    Yields:
        What calls it.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [python, "-ISB", str(_TEMPLATE), str(tool), str(project)]
    process = subprocess.Popen(command, stdin=theirs.fileno())
    theirs.close()
    floor = Prefork(ours, process.pid, spares)
    try:
        yield floor
    finally:
        floor.close()
        process.wait()
