"""ryecore's managed threads: the same script, governed, with ledger, transcript and signatures."""

import resource
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from ryecore import Rye
from ryecore.state.model import Durability
from ryecore.tools import ToolRegistry, tool
from tests.benchmarks.peers.ryecore_agents import Fake
from tests.benchmarks.peers.script import PIECE, PROMPT, Run, add
from tests.scripted_host import ScriptedHost


class Threads:
    """Threads in a project of their own, which is opened with the first one, and stays open."""

    def __init__(
        self,
        model: Fake,
        *,
        has_tools: bool,
        durability: Durability = "process",
        state: str | None = None,
        read_only: bool = False,
    ) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each thread holds a file open
        self.stack = AsyncExitStack()
        self._rye: Rye | None = None
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        model.provider_id = "scripted"
        registry = ToolRegistry([tool(inline=True, read_only=read_only)(add)])
        self._stage = ScriptedHost(Path(folder), model=model, registry=registry)
        self._options = {"durability": durability, "state": state}
        granted = {} if has_tools else {"permissions": ""}
        limits = f'turns="{model.turns + 2}"'
        self.ref = self._stage.write("acme/adder", PROMPT, limits=limits, **granted)

    async def rye(self) -> Rye:
        if self._rye is None:
            opened = self._stage.open(**self._options)
            self._rye = await self.stack.enter_async_context(opened)
        return self._rye

    async def run(self) -> Any:
        """Run one to its end, and return its answer."""
        done: Any = await (await self.rye()).execute(self.ref, thread="fork")
        return done.text


def runner(turns: int) -> Run:
    return Threads(Fake(turns), has_tools=True).run


@asynccontextmanager
async def kept_runner(turns: int, durability: Durability = "process") -> AsyncIterator[Run]:
    threads = Threads(Fake(turns), has_tools=True, durability=durability)
    async with threads.stack:
        yield threads.run


def streamer(deltas: int) -> Run:
    threads = Threads(Fake(0, deltas), has_tools=False)

    async def run() -> int:
        thread = await (await threads.rye()).start(threads.ref)
        texts = [
            event.payload["text"] async for event in thread.events() if event.type == "token_delta"
        ]
        await thread.result()
        return "".join(texts).count(PIECE)

    return run
