"""Hosts of processes, each a Python process of its own, for tests of what happens to them."""

import os
import select
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ryecore.lillux import (
    ProcessSpec,
)

__all__ = [
    "PATH",
    "PRELUDE",
    "ends",
    "host",
    "lines_of",
    "read_words",
    "shell",
    "threads",
]

PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

PRELUDE = """
import asyncio, os, signal, sys, threading, time
from ryecore.lillux import ProcessSpec, run_process, run_process_sync, spawn_detached

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

def shell(script, *args, **options):
    return ProcessSpec("/bin/sh", ("-c", script, "sh", *args), cwd="/", env=ENV, **options)

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def shell(script: str, *args: str, **options: object) -> ProcessSpec:
    return ProcessSpec("/bin/sh", ("-c", script, "sh", *args), cwd="/", env=PATH, **options)  # type: ignore[arg-type]


@contextmanager
def host(code: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python process with the library at hand. Whatever is left of it is killed."""
    source = PRELUDE + textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-c", source, *args], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_of(code: str, *args: str, timeout_s: float = 60) -> list[str]:
    """What a host printed that ended well."""
    with host(code, *args) as process:
        out, _ = process.communicate(timeout=timeout_s)
        assert process.returncode == 0, out.decode()
        return out.decode().splitlines()


def ends(pid: int, within_s: float = 10) -> bool:
    """Whether a process ends, or has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], within_s)[0])
    finally:
        os.close(fd)


def read_words(process: subprocess.Popen[bytes]) -> list[str]:
    assert process.stdout
    return process.stdout.readline().decode().split()


def threads() -> list[str]:
    """The names of this process's threads, but for workers of event loops, which end when idle.

    A worker is known by its Python name: before Python 3.14 the kernel doesn't know that.
    """
    workers = {
        str(one.native_id)
        for one in threading.enumerate()
        if one.name.startswith(("Trio thread", "AnyIO worker"))
    }
    names = []
    for task in Path("/proc/self/task").iterdir():
        if task.name not in workers:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                names.append((task / "comm").read_text())
    return sorted(names)
