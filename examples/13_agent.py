"""An agent with two tools, one of them signed: its events, and what it cost.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic,prices], the real one does.
"""

import os
import tempfile
from pathlib import Path

import anyio

from ryecore import AgentRunnerDeps, AgentSession, Rye, ToolDef
from ryecore.llm import Price, Usage
from ryecore.testing import ScriptedProvider, call, say

STOCK = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
echo '{"lamp": 4, "chair": 0}'
"""


async def price(article: str, pieces: int = 1) -> float:
    """The price in euros of some pieces of an article."""
    return {"lamp": 49.0, "chair": 120.0}[article] * pieces


def choose() -> tuple[str, AgentRunnerDeps]:
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic/claude-sonnet-4-5", AgentRunnerDeps.from_env()
    calls = [call("acme__stock"), call("price", {"article": "lamp", "pieces": 4})]
    scripted = ScriptedProvider([*calls, say("196 euros.")], usage=Usage(120, 30))
    return "scripted/m-1", AgentRunnerDeps(
        resolve_provider=lambda _: scripted,
        key_for=lambda _: "",
        price_of=lambda *_: Price(input="3", output="15"),
    )


async def main() -> None:
    model, deps = choose()
    with tempfile.TemporaryDirectory() as folder:
        (tools := Path(folder, "shop/.ai/tools/acme")).mkdir(parents=True)
        (tools / "stock.sh").write_text(STOCK)
        async with Rye.open(Path(folder, "shop"), user_space=Path(folder, "home")) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:acme/stock")
            session = AgentSession.open(
                model,
                deps=deps,
                tools=[price, await ToolDef.from_item(rye, "tool:acme/stock")],
                on_event=lambda event: print(" ", event.to_dict()),
            )
            reply = await session.send("What do all our lamps cost?")
            print(f"\n{reply} ({reply.turns} turns, ${reply.cost_usd:.6f})")


anyio.run(main)
