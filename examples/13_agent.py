"""An agent with two tools, one of them signed: its events, and what it cost.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic,prices], the real one does.
"""

import os
import tempfile
from pathlib import Path

import anyio

from ryecore import Agent, AgentRunnerDeps, AgentSession, Rye, ToolDef, ToolRegistry, tool
from ryecore.llm import LlmProvider, Price, Usage
from ryecore.testing import ScriptedProvider, call, say

KEY = os.environ.get("ANTHROPIC_API_KEY", "")
STOCK = """\
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
echo '{"lamp": 4, "chair": 0}'
"""


@tool
async def price(article: str, pieces: int = 1) -> float:
    """The price in euros of some pieces of an article."""
    return {"lamp": 49.0, "chair": 120.0}[article] * pieces


def choose() -> tuple[str, LlmProvider]:
    if KEY:
        from ryecore.providers.anthropic import AnthropicProvider as Provider

        return "claude-sonnet-4-5", Provider()
    calls = [call("acme__stock"), call("price", {"article": "lamp", "pieces": 4})]
    return "m-1", ScriptedProvider([*calls, say("196 euros.")], usage=Usage(120, 30))


async def main() -> None:
    model, provider = choose()
    with tempfile.TemporaryDirectory() as folder:
        (tools := Path(folder, "shop/.ai/tools/acme")).mkdir(parents=True)
        (tools / "stock.sh").write_text(STOCK)
        async with Rye.open(Path(folder, "shop"), user_space=Path(folder, "home")) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:acme/stock")
            deps = AgentRunnerDeps(
                resolve_provider=lambda _: provider,
                key_for=lambda _: KEY,
                registry=ToolRegistry([price, await ToolDef.from_item(rye, "tool:acme/stock")]),
                price_of=lambda *_: None if KEY else Price(input="3", output="15"),
            )
            clerk = Agent(name="clerk", provider="p", model=model, tools=["acme__stock", "price"])
            session = AgentSession(clerk, deps, on_event=lambda event: print(" ", event.to_dict()))
            reply = await session.send("What do all our lamps cost?")
            print(f"\n{reply} ({reply.turns} turns, ${reply.cost_usd:.6f})")


anyio.run(main)
