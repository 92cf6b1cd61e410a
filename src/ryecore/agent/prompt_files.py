"""Read a file for a prompt, within what the host allows.

Source: docs/design/agent-node.md#what-the-host-injects; decision 60.
"""

import os
import stat
from functools import partial
from pathlib import Path

import anyio.to_thread

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.prompts import ReadFile, TemplateMiss
from ryecore.tools.paths import resolve_path

__all__ = ["file_reader"]


def file_reader(deps: AgentRunnerDeps) -> ReadFile | None:
    """What `read_file` in a prompt reads with; None where the host doesn't allow it."""
    allowed = deps.resolver_capabilities
    if allowed is None or not allowed.read_file:
        return None
    confined = deps.fs_scope != "unrestricted"
    root = allowed.root(deps.fs_scope)
    if confined and root is None:
        return None
    return partial(_read, root, allowed.max_file_bytes, confined=confined)


async def _read(root: Path | None, max_bytes: int, name: str, *, confined: bool) -> str:
    return await anyio.to_thread.run_sync(_read_now, root, max_bytes, name, confined)


def _read_now(root: Path | None, max_bytes: int, name: str, confined: bool) -> str:
    try:
        path = resolve_path(name, root, confined=confined, writing=False)
        if Path(path).name.startswith(".env"):
            raise ValueError("it holds secrets by its name")
        # Non-blocking, so that a pipe that nobody writes to can't hold the run.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("it is no file")
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ValueError(f"it is larger than {max_bytes:,} bytes")
        return content.decode()
    except UnicodeDecodeError:
        why = "it is no UTF-8 text"
    except OSError as problem:
        why = (problem.strerror or "it can't be read").lower()
    except ValueError as problem:
        why = str(problem)
    raise TemplateMiss(f"the file {name[:200]!r} can't be read: {why}.")
