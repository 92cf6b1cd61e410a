"""The tasks at one server that calls wait for, each in a file of user space while one does.

A task outlives the process that waits for it, where the server does. Its file is locked by that
process, so that the next session with the server finds the tasks whose process is gone.

Source: ADR 052.
"""

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from ryecore.mcp_client.tokens import canonical_url, check_private, make_private

__all__ = ["KeptTask", "OpenTasks"]

_FOLDER: Final = Path(".ai/state/mcp/tasks")
_KEPT_S: Final = 7 * 24 * 3600
"""The seconds after which a task is given up whose server could not be told."""


class KeptTask:
    """A task's file, locked by this process until it is closed.

    Attributes:
        task_id: The server's id of the task.
        tool: What the server calls its tool.
    """

    def __init__(self, path: Path, descriptor: int, document: Mapping[str, Any]) -> None:
        self._path = path
        self._descriptor = descriptor
        self.task_id = str(document.get("task_id"))
        self.tool = str(document.get("tool"))

    def forget(self) -> None:
        """Remove the file: the task has ended, or the server knows that nobody waits for it."""
        with suppress(OSError):
            self._path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class OpenTasks:
    """The tasks at one server.

    Args:
        user_space: The folder that holds the user's `.ai`.
        url: The server's URL.
    """

    def __init__(self, user_space: Path, url: str) -> None:
        name = hashlib.sha256(canonical_url(url).encode()).hexdigest()[:32]
        self._folder = user_space / _FOLDER / name

    def keep(self, task_id: str, tool: str) -> KeptTask | None:
        """Write a task's file; None where that can't be done, so that nobody finds it later."""
        name = secrets.token_hex(8)
        begun, path = self._folder / f".{name}", self._folder / f"{name}.json"
        document = {"task_id": task_id, "tool": tool}
        try:
            make_private(self._folder)
            descriptor = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # before it can be found
            os.write(descriptor, json.dumps(document).encode())
            begun.rename(path)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                begun.unlink()
            return None
        return KeptTask(path, descriptor, document)

    def left(self) -> Iterator[KeptTask]:
        """Yield the tasks whose process is gone, each locked until it is closed."""
        try:
            check_private(self._folder)
            paths = sorted(self._folder.glob("*.json"))
        except OSError:
            return
        for path in paths:
            with suppress(OSError, ValueError):
                descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if time.time() - os.fstat(descriptor).st_mtime > _KEPT_S:
                        path.unlink()  # this time is the last
                    document = json.loads(os.read(descriptor, 64 * 1024))
                except BaseException:
                    os.close(descriptor)
                    raise
                if isinstance(document, dict):
                    yield KeptTask(path, descriptor, document)
                else:
                    os.close(descriptor)
