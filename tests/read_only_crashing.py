"""A thread that reads and writes in turn, in a process that may be killed at any time.

`python -m tests.read_only_crashing ROOT STATE` runs it, or resumes it.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio

from ryecore import AgentRunnerDeps, Rye
from ryecore.errors import StateError
from ryecore.llm.cost import Price
from ryecore.llm.parts import ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.testing import FunctionProvider, Turn, call, say
from ryecore.tools import ToolRegistry, tool
from tests.killing import append_line, lines_of
from tests.scripted_host import directive
from tests.workspace import Workspace

__all__ = ["EFFECTS", "LOOKS", "furnish", "options", "resume_or_begin"]

EFFECTS: Final = "effects"
LOOKS: Final = "looks"
_STEPS: Final = (("a", "look"), ("b", "mark"), ("c", "look"), ("d", "mark"))
_AGAIN: Final = ("not run", "may be called again")
_REF: Final = "directive:acme/looks"


def furnish(root: Path) -> Workspace:
    """Make the workspace."""
    root.mkdir()
    workspace = Workspace(root)
    text = directive("looks", limits='turns="9" spend="5"')
    workspace.write("directives/acme/looks.md", text)
    return workspace


def options(root: Path) -> Mapping[str, Any]:
    """What `Rye.open` is given."""

    @tool(read_only=True)
    async def look(name: str) -> str:
        """Look at something."""
        append_line(root / LOOKS, name)
        return f"seen {name}"

    @tool
    async def mark(name: str) -> str:
        """Leave a mark that can't be taken back."""
        append_line(root / EFFECTS, name)
        return f"marked {name}"

    def model(request: LlmRequest) -> Turn:
        came = {
            part.call_id: part.text
            for message in request.messages
            for part in message.parts
            if isinstance(part, ToolResultPart)
        }
        for name, called in _STEPS:
            if name not in came or any(one in came[name] for one in _AGAIN):
                return call(called, {"name": name}, call_id=name, usage=Usage(1000, 50))
        return say("done", usage=Usage(1000, 50))

    provider = FunctionProvider(model, provider_id="scripted")
    agent = AgentRunnerDeps(
        resolve_provider={"scripted": provider}.get,
        key_for=lambda _: "sk-look-0123456789abcdef",
        registry=ToolRegistry([look, mark]),
        price_of=lambda _provider, _model: Price("1", "5"),
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(root)}
    return {"user_space": root / "user", "environ": environ, "agent": agent}


async def resume_or_begin(rye: Rye) -> Any:
    """Resume the newest thread that has begun; where none has, begin anew."""
    for row in await rye.threads.list(all=True):
        if row.status == "completed":
            return None
        try:
            return await rye.threads.resume(row.thread_id)
        except StateError as error:
            if "has left nothing to continue from" not in str(error):
                raise
    return await rye.execute(_REF, thread="fork")


async def _run(root: Path, state: str) -> None:
    async with Rye.open(root / "project", state=state, **options(root)) as rye:
        done = await resume_or_begin(rye)
    assert done.text == "done", done
    assert lines_of(root / EFFECTS) == ["b", "d"]


if __name__ == "__main__":
    anyio.run(_run, Path(sys.argv[1]), sys.argv[2])
