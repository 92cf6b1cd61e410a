"""A thread asks before it refunds, its process is killed, and the approval that was given counts.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic], the real one does.
"""

import os
import signal
import tempfile
import time
from contextlib import chdir
from pathlib import Path

from ryecore import AgentRunnerDeps, SyncRye, ToolRegistry, tool
from ryecore.llm import Usage
from ryecore.testing import ScriptedProvider, Turn, call, say

if KEY := os.environ.get("ANTHROPIC_API_KEY", ""):
    from ryecore.providers.anthropic import AnthropicProvider

REFUND, ANY = call("refund", {"order": 7, "usd": 20.0}), ["anthropic/*"]
DIRECTIVE = """```xml
<directive name="desk"><metadata><model id="claude-sonnet-4-5" provider="anthropic"/>
  <permissions><execute><tool>host/*</tool></execute></permissions></metadata></directive>
```
Order 7, of 20 USD, came broken. Refund it."""


@tool(needs_approval=True)
def refund(order: int, usd: float) -> str:
    """Refund an order."""
    Path("refunds.txt").write_text(f"{usd} USD for order {order}")
    return "refunded"


def open_rye(*script: Turn) -> SyncRye:
    scripted = ScriptedProvider(script, provider_id="anthropic", usage=Usage(400, 20))
    model, tools = AnthropicProvider() if KEY else scripted, ToolRegistry([refund])
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: model, key_for=lambda _: KEY, registry=tools, unpriced_models=ANY
    )
    return SyncRye.open(user_space=".", agent=deps)


with tempfile.TemporaryDirectory() as folder, chdir(folder):
    (place := Path(".ai/directives/shop")).mkdir(parents=True)
    (place / "desk.md").write_text(DIRECTIVE)
    with open_rye() as rye:
        rye.keys.generate("the example")
        rye.sign("directive:shop/desk")
    if (worker := os.fork()) == 0:  # another process, whose thread waits
        open_rye(REFUND).execute("directive:shop/desk", thread="fork")
    with open_rye(REFUND, say("Your 20 USD are on their way.")) as rye:
        while not (waiting := rye.threads.approvals()):
            time.sleep(0.1)
        print(waiting[0].tool_name, waiting[0].arguments, rye.threads.list(), sep="\n")
        os.kill(worker, signal.SIGKILL)  # a crash, or a new version that is rolled out
        os.wait()
        rye.threads.approve(waiting[0].thread_id, reason="it came broken")
        print(rye.threads.resume(waiting[0].thread_id), Path("refunds.txt").read_text(), sep="\n")
