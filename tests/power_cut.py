"""Two threads at once with machine durability, on a disk whose contents are known at each sync.

`python -m tests.power_cut ROOT`, with the library that `power_cut.c` makes in LD_PRELOAD, prints
each request of a model and each call of a tool with the number of syncs before it, as JSON.
"""

import asyncio
import ctypes
import json
import sys
from pathlib import Path
from typing import Final

from ryecore.llm.parts import ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.testing import Turn, call, say
from ryecore.tools import tool
from tests.scripted_host import ScriptedHost

TURNS: Final = 4


def host(root: Path, effects: list[tuple[str, int]]) -> ScriptedHost:
    """A host whose model and tool note how many syncs there were before them."""
    library = ctypes.CDLL(None)

    def note(kind: str) -> None:
        syncs = getattr(library, "power_cut_syncs", None)
        effects.append((kind, syncs() if syncs else 0))

    def model(request: LlmRequest) -> Turn:
        note("model_call")
        parts = [part for one in request.messages for part in one.parts]
        done = sum(isinstance(part, ToolResultPart) for part in parts)
        return call("count", {"number": done}) if done < TURNS - 1 else say("done")

    @tool(inline=True)
    def count(number: int) -> int:
        """Count."""
        note("tool_call_start")
        return number + 1

    made = ScriptedHost(root, model=model, tools=[count])
    made.write("acme/counts")
    return made


async def _run(root: Path) -> None:
    effects: list[tuple[str, int]] = []
    async with host(root, effects).open(durability="machine") as rye:
        runs = [rye.execute("directive:acme/counts", {}, thread="fork") for _ in range(2)]
        for done in await asyncio.gather(*runs):
            assert done.success, done
    print(json.dumps(effects))


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1])))
