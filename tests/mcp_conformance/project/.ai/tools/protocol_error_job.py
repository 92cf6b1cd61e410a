"""Ends the process that runs it, so that nobody is left to return its result."""

import os
import signal
from pathlib import Path

__executor_id__ = "rye/core/runtimes/python/function"
__task_support__ = "required"


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def execute(params, project_path):
    pid = os.getppid()
    while b"ryecore.thread_worker" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = parent_of(pid)
    os.kill(pid, signal.SIGKILL)
    signal.pause()
