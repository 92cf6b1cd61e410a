"""A process that runs threads, on a model that does what a directive's body says.

The body ends with a line `PLAN` and a JSON list of steps: `[tool, arguments]`, or a list of those
for calls at once. After the last one the model says what the last results were. Each process that
has `HOME` in a workspace's user space can rebuild it: `deps_factory="tests.thread_host:deps"`.

`python -m tests.thread_host ROOT JSON` runs threads as a host does: `{"runs": [[ref, ...], ...]}`,
those of one list at once. With `--leave-nothing` behind it, an open descriptor is a failure.
"""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from ryecore import AgentRunnerDeps, Rye
from ryecore.lillux import watch
from ryecore.llm.cost import Price
from ryecore.llm.parts import ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.state.store import ThreadStore
from ryecore.testing import FunctionProvider, Turn, call, say
from ryecore.tools import ToolRegistry, tool
from tests.forking import ROOT, Forked
from tests.scripted_host import directive
from tests.unit.lillux.system import open_fds, wait_for_fds
from tests.workspace import Workspace

__all__ = ["FACTORY", "PlannedWorkspace", "deps", "serve"]

FACTORY: Final = "tests.thread_host:deps"
USAGE: Final = Usage(1000, 100)
COST: Final = 1000 * 100 + 100 * 500
"""What one answer costs, in microcents."""

_LOOK_S: Final = 0.02
_PERMITS: Final = "<execute><directive>acme/*</directive><tool>*</tool></execute>"


class PlannedWorkspace:
    """A workspace whose threads do what their directives' plans say, in whichever process."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.root = workspace.root
        workspace.environ["PYTHONPATH"] = os.pathsep.join(sys.path)

    def write(self, name: str, *plan: Any, permissions: str = _PERMITS, **more: Any) -> str:
        """Write and sign a directive; its canonical ref."""
        body = f"I am {name}.\n\nPLAN\n{json.dumps(plan)}"
        text = directive(name, body, permissions=permissions, **more)
        self.workspace.write(f"directives/acme/{name}.md", text)
        return f"directive:acme/{name}"

    def open(self, **options: Any) -> Rye:
        """A Rye of the workspace in this process."""
        return self.workspace.open(**{**_deps(self.root), "deps_factory": FACTORY, **options})

    def store(self) -> ThreadStore:
        """The workspace's threads."""
        return ThreadStore.open(self.workspace.project / ".ai", self.workspace.user / ".ai")

    def command(self, *runs: list[str]) -> list[str]:
        """The command of a process that runs threads."""
        return [sys.executable, "-m", "tests.thread_host", str(self.root), json.dumps(runs)]

    def fork(self, program: str, *arguments: str, **options: Any) -> Forked:
        """A process of its own, with what it needs imported already.

        Args:
            program: A module's name, or a Python program that is run from a file.
            arguments: Its arguments.
            options: As for `subprocess.Popen`.
        """
        if "\n" in program:
            path = self.root / f"program-{hashlib.sha256(program.encode()).hexdigest()[:8]}.py"
            path.write_text(program)
            program = str(path)
        return Forked([program, *arguments], **{"env": self.environ, "cwd": ROOT, **options})

    def host(self, *runs: list[str], **options: Any) -> Forked:
        """A process that runs threads."""
        return self.fork("tests.thread_host", str(self.root), json.dumps(runs), **options)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of such a process."""
        return {**os.environ, **self.workspace.environ}

    def allow(self, name: str) -> None:
        """Let all threads go on that wait at a gate."""
        (self.root / f"{name}.go").touch()

    async def begun(self, name: str) -> None:
        """Wait until a thread has come to a gate."""
        await _there(self.root / f"{name}.begun")


async def _there(path: Path) -> None:
    with suppress(OSError):  # the processes of a user watch 128 folders at most, those of all tests
        async with watch(path) as watcher:
            while not path.exists():
                await watcher.changed()
    while not path.exists():  # else a gate would fail, and its thread go on
        await anyio.sleep(_LOOK_S)


def deps() -> Mapping[str, Any]:
    """What a detached process gives to `Rye.open`."""
    return _deps(Path(os.environ["HOME"]).parent)


def _deps(root: Path) -> Mapping[str, Any]:
    @tool
    async def gate(name: str) -> str:
        """Say that one is here, and wait until one may go on."""
        (root / f"{name}.begun").touch()
        await _there(root / f"{name}.go")
        return f"passed {name}"

    @tool
    async def mark(text: str) -> str:
        """Leave a mark."""
        with (root / "marks").open("a") as file:
            file.write(text + "\n")
        return f"marked {text}"

    provider = FunctionProvider(_model, provider_id="scripted", usage=USAGE)
    return {
        "agent": AgentRunnerDeps(
            resolve_provider={"scripted": provider}.get,
            key_for=lambda _: "sk-host-0123456789abcdef",
            registry=ToolRegistry([gate, mark]),
            price_of=lambda _provider, _model: Price("1", "5"),
        )
    }


def _model(request: LlmRequest) -> Turn:
    said = next(one.text for one in request.messages if "PLAN\n" in one.text)
    plan, _ = json.JSONDecoder().raw_decode(said.partition("PLAN\n")[2])
    came = {
        part.call_id: part.text
        for message in request.messages
        for part in message.parts
        if isinstance(part, ToolResultPart)
    }
    for number, step in enumerate(plan):
        if f"{number}.0" not in came:
            calls = [step] if isinstance(step[0], str) else step
            turns = [
                call(name, arguments, call_id=f"{number}.{place}")
                for place, (name, arguments) in enumerate(calls)
            ]
            return sum(turns[1:], turns[0])
    return say(json.dumps(list(came.values())))


async def serve(root: Path, runs: list[list[str]]) -> list[dict[str, Any]]:
    """Run threads, and give back what came of each."""
    done: list[dict[str, Any]] = []
    async with Rye.open(
        root / "project",
        user_space=root / "user",
        environ={name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH")},
        deps_factory=FACTORY,
        **_deps(root),
    ) as rye:

        async def run(ref: str) -> None:
            done.append((await rye.execute(ref, thread="fork")).to_dict())

        for together in runs:
            async with anyio.create_task_group() as group:
                for ref in together:
                    group.start_soon(run, ref)
    return done


if __name__ == "__main__":
    before = open_fds()
    results = anyio.run(serve, Path(sys.argv[1]), json.loads(sys.argv[2]))
    if sys.argv[3:] == ["--leave-nothing"]:
        wait_for_fds(before)
    print(json.dumps({"results": results}))
