"""The palette of a thread: five signed tools by name, and the same five by a wildcard.

The floor is what no palette can leave out: that the five chains still hold, every file of them read
and hashed again.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ryecore.threads.calls.palette import PaletteBuilder
from tests.benchmarks.harness import compare
from tests.unit.threads.palette_caller import RecordingDispatcher
from tests.workspace import Workspace

_TOOLS = tuple(f"acme/tool{number}" for number in range(5))
_CALLS = 20


def _furnish(workspace: Workspace) -> None:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["text"],
    }
    for item_id in _TOOLS:
        body = "def execute(params, project_path):\n    return 1"
        workspace.python(item_id, body, description="Say it loudly.", config_schema=schema)


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as root, asyncio.Runner() as runner:
        workspace = Workspace(Path(root))
        _furnish(workspace)
        rye = workspace.open()
        dispatcher = RecordingDispatcher(rye)
        builder = PaletteBuilder(dispatcher)
        by_name = [f"rye.execute.tool.{item_id.replace('/', '.')}" for item_id in _TOOLS]

        def many(one: Callable[[], Awaitable[object]]) -> Callable[[], None]:
            async def all_of_them() -> None:
                for _ in range(_CALLS):
                    await one()

            return lambda: runner.run(all_of_them())

        async def chains() -> None:
            for item_id in _TOOLS:
                await dispatcher.chain(f"tool:{item_id}")

        goals = {"palette_by_name_x20": "<= 6 ms: 300 us each", "palette_by_wildcard_x20": "none"}
        grants = (by_name, ["rye.execute.tool.acme.*"])
        for (name, goal), granted in zip(goals.items(), grants, strict=True):
            compare(
                name,
                many(partial(builder.build, granted)),
                many(chains),
                goal=goal,
                unit="ms",
            )
        runner.run(rye.aclose())
