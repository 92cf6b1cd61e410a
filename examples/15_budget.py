"""A budget that stops a thread: the most a request can cost is held, then its cost is charged.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic,prices], the real one does.
"""

import os
import tempfile
from itertools import count
from pathlib import Path

from ryecore import AgentRunnerDeps, SyncRye, ToolRegistry, tool
from ryecore.llm import Price, Usage
from ryecore.testing import ScriptedProvider, call

if KEY := os.environ.get("ANTHROPIC_API_KEY", ""):
    from ryecore.providers.anthropic import AnthropicProvider

DIRECTIVE = """```xml
<directive name="read_all"><metadata>
  <model id="claude-sonnet-4-5" provider="anthropic"/> <limits spend="0.05"/>
  <permissions><execute><tool>host/read_page</tool></execute></permissions></metadata></directive>
```
Read page after page, one at a time, as long as each names a next one."""


@tool
async def read_page(number: int) -> str:
    """Read one page of the book."""
    return f"Page {number}. " + "The sea comes and goes. " * 90 + f"Go on with page {number + 1}."


def scripted() -> ScriptedProvider:
    pages = (call("read_page", {"number": n}, usage=Usage(500 + 600 * n, 40)) for n in count())
    return ScriptedProvider(pages)


model, tools = AnthropicProvider() if KEY else scripted(), ToolRegistry([read_page])
deps = AgentRunnerDeps(
    resolve_provider=lambda _: model,
    key_for=lambda _: KEY,
    registry=tools,
    price_of=lambda *_: None if KEY else Price(input="3", output="15"),
)
with tempfile.TemporaryDirectory() as home:
    (place := Path(home, ".ai/directives/book")).mkdir(parents=True)
    (place / "read_all.md").write_text(DIRECTIVE)
    with SyncRye.open(home, user_space=home, agent=deps) as rye:
        rye.keys.generate("the example")
        rye.sign("directive:book/read_all")
        thread = rye.start("directive:book/read_all")
        print(thread.result(), "", thread, "", sep="\n")
        for one in rye.threads.charges(thread.thread_id):
            held, spent = one.held.spend_usd, one.actual.spend_usd
            print(f"  turn {one.turn:<2}  held ${held:.4f}  spent ${spent:.4f}  {one.mark}")
