"""What the tests of lillux share: real programs, and looks at the system from outside."""

import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ryecore.lillux import ProcessSpec

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def shell(script: str, *args: str, **options: object) -> ProcessSpec:
    """A shell that runs `script`, with its `args` as $1 and on."""
    options.setdefault("cwd", "/")
    options.setdefault("env", PATH)
    return ProcessSpec("/bin/sh", ("-c", script, "sh", *args), **options)  # type: ignore[arg-type]


def wait_until_dead(*pids: int) -> None:
    """Wait, without polling, for processes that have been killed already."""
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([fd], [], [], 30)
            assert ready, f"{pid} lives"
        finally:
            os.close(fd)


_others: set[int] = set()


def children() -> set[int]:
    """The children of this process, zombies too, without those of `leave_out_children`."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found - _others


@contextmanager
def leave_out_children() -> Iterator[None]:
    """Within the block, `children` leaves out those that are there at its start.

    Tests of other modules may have started servers in this process, which go on, and what they
    have killed may still have to be reaped.
    """
    _others.update(children())
    try:
        yield
    finally:
        _others.clear()


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def wait_for_fds(count: int) -> None:
    """Wait until no more than so many descriptors are open.

    The reactor's thread closes those of a run that has ended when it comes to it, and nothing tells
    of that.
    """
    deadline = time.monotonic() + 10
    while (left := open_fds()) > count:
        assert time.monotonic() < deadline, f"{left} descriptors are open, and {count} were"
        time.sleep(0.005)
