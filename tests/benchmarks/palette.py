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
from tests.house import House
from tests.unit.threads.desk import Desk

_TOOLS = tuple(f"acme/tool{number}" for number in range(5))
_CALLS = 20


def _furnish(house: House) -> None:
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
        "required": ["text"],
    }
    for item_id in _TOOLS:
        body = "def execute(params, project_path):\n    return 1"
        house.python(item_id, body, description="Say it loudly.", config_schema=schema)


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as root, asyncio.Runner() as runner:
        house = House(Path(root))
        _furnish(house)
        rye = house.open()
        desk = Desk(rye)
        builder = PaletteBuilder(desk)
        by_name = [f"rye.execute.tool.{item_id.replace('/', '.')}" for item_id in _TOOLS]

        def many(one: Callable[[], Awaitable[object]]) -> Callable[[], None]:
            async def all_of_them() -> None:
                for _ in range(_CALLS):
                    await one()

            return lambda: runner.run(all_of_them())

        async def chains() -> None:
            for item_id in _TOOLS:
                await desk.chain(f"tool:{item_id}")

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
