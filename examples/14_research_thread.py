"""A directive that researches in a thread of its own: it starts a child, and returns its outputs.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic,prices], the real one does.
"""

import os
import tempfile
from pathlib import Path

from ryecore import AgentRunnerDeps, SyncRye, ToolRegistry, tool
from ryecore.llm import Price, Usage
from ryecore.testing import ScriptedProvider, call

if KEY := os.environ.get("ANTHROPIC_API_KEY", ""):
    from ryecore.providers.anthropic import AnthropicProvider

DIRECTIVE = """```xml
<directive name="{}"><metadata>
  <model id="claude-sonnet-4-5" provider="anthropic"/> <limits turns="6" spend="{}"/>
  <permissions><execute>{}<tool>host/*</tool></execute></permissions></metadata>
  <outputs><output name="answer" required="true">In a sentence.</output></outputs></directive>
```
{}"""
MAY = "<directive>sea/*</directive>"
ASK = 'Execute directive:sea/look_up with thread "fork". How often is it high water in a day?'
LOOK = "Read the page about tides, and say how long it takes from one high water to the next."


@tool
async def read_page(topic: str) -> str:
    """Read the page about a topic."""
    return f"{topic}: from high water to high water it takes 12 hours and 25 minutes."


def scripted() -> ScriptedProvider:
    fork = call("rye_execute", {"item_id": "directive:sea/look_up", "thread": "fork"})
    found = [call("rye_directive_return", {"answer": one}) for one in ("12 h 25 min.", "Twice.")]
    script = [fork, call("read_page", {"topic": "tides"}), *found]
    return ScriptedProvider(script, usage=Usage(900, 60))


model, tools = AnthropicProvider() if KEY else scripted(), ToolRegistry([read_page])
deps = AgentRunnerDeps(
    resolve_provider=lambda _: model,
    key_for=lambda _: KEY,
    registry=tools,
    price_of=lambda *_: None if KEY else Price(input="3", output="15"),
)
with tempfile.TemporaryDirectory() as home:
    (place := Path(home, ".ai/directives/sea")).mkdir(parents=True)
    (place / "report.md").write_text(DIRECTIVE.format("report", 0.5, MAY, ASK))
    (place / "look_up.md").write_text(DIRECTIVE.format("look_up", 0.2, "", LOOK))
    with SyncRye.open(home, user_space=home, agent=deps) as rye:
        rye.keys.generate("the example")
        rye.sign("directive:sea/*")
        thread = rye.start("directive:sea/report")
        for event in thread.events():
            print(f"  {event.type:<17}", event.payload.get("tool", ""))
        print("", thread.result(), "", thread, sep="\n")
