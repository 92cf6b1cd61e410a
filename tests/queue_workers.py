"""Workers of queues in processes of their own, for tests."""

import json
import queue
import shutil
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

from tests.forking import WORKERS, Forked
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

__all__ = ["Workers", "copied", "rye_command", "write_remotes"]


def write_remotes(workspace: Workspace, state: str) -> None:
    """Make the queue `default` of a state the remotes `queue` and `urgent`."""
    queue = {"queue": f"{state}&queue=default", "priority": 5}
    remotes = {"remotes": {"queue": queue, "urgent": {**queue, "priority": 1}}}
    workspace.write("config/remotes/remotes.yaml", json.dumps(remotes))


class Workers:
    """The workers of a test, which end with it."""

    def __init__(self, planned: PlannedWorkspace) -> None:
        self._planned = planned
        self._ended = ExitStack()
        self.log: queue.SimpleQueue[str] = queue.SimpleQueue()
        """The lines that all of them have logged since they began."""

    def start(self, *options: str, project: Path | None = None, **more: Any) -> Forked:
        """Start a worker, and wait until it takes runs."""
        folder = project or self._planned.workspace.project
        arguments = ("node", "work", "--deps", FACTORY, "--project", str(folder), *options)
        given = {"stderr": subprocess.PIPE, "imported": WORKERS, **more}
        worker = self._planned.fork("ryecore.cli", *arguments, **given)
        self._ended.enter_context(worker)
        self._ended.callback(worker.kill)
        assert worker.stderr is not None
        awaited = {"ryecore works as", *(["ryecore serves"] if "--metrics" in options else ())}
        self.said: list[str] = []
        while awaited:
            line = worker.stderr.readline().decode()
            if not line.startswith("ryecore "):
                raise AssertionError(line + worker.stderr.read().decode())
            self.said.append(line)
            awaited = {one for one in awaited if not line.startswith(one)}
        threading.Thread(target=self._read, args=(worker.stderr,), daemon=True).start()
        return worker

    def _read(self, lines: IO[bytes]) -> None:
        """Read what a worker logs, so that it never waits for a full pipe."""
        with suppress(ValueError):  # it was closed
            for line in lines:
                self.log.put(line.decode())

    def close(self) -> None:
        """End them all."""
        self._ended.close()


def rye_command(planned: PlannedWorkspace, *arguments: str) -> str:
    """What a command of `rye` in the project prints."""
    command = ["ryecore.cli", *arguments, "--project", str(planned.workspace.project)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "imported": WORKERS}
    with planned.fork(*command, **pipes) as process:
        printed, _ = process.communicate()
    return printed.decode()


def copied(planned: PlannedWorkspace) -> tuple[Path, dict[str, str]]:
    """A copy of the workspace, as another machine has it, and its environment."""
    elsewhere = planned.root.with_name(f"{planned.root.name}-elsewhere")
    shutil.copytree(planned.root, elsewhere)
    return elsewhere, {
        name: text.replace(str(planned.root), str(elsewhere))
        for name, text in planned.environ.items()
    }
