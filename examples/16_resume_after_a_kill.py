"""A process is killed while a tool runs, and another resumes its thread: nothing is done twice.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic], the real one does.
"""

import os
import tempfile
from contextlib import chdir
from pathlib import Path

from ryecore import AgentRunnerDeps, SyncRye, ToolRegistry, tool
from ryecore.llm import Usage
from ryecore.testing import ScriptedProvider, Turn, call, say

if KEY := os.environ.get("ANTHROPIC_API_KEY", ""):
    from ryecore.providers.anthropic import AnthropicProvider

PAID, ANY = Path("paid.txt"), ["anthropic/*"]
DIRECTIVE = """```xml
<directive name="pay"><metadata><model id="claude-sonnet-4-5" provider="anthropic"/>
  <permissions><execute><tool>host/*</tool></execute></permissions></metadata></directive>
```
Pay invoice 7. Where you can't know whether that went well, see first what was paid."""


@tool
def pay(invoice: int) -> None:
    """Pay an invoice."""
    PAID.write_text(what_was_paid() + f"invoice {invoice}\n")
    os.kill(os.getpid(), 9)  # the process dies here, before the result is recorded


@tool
def what_was_paid() -> str:
    """List what was paid."""
    return PAID.read_text() if PAID.exists() else ""


def open_rye(*script: Turn) -> SyncRye:
    scripted = ScriptedProvider(script, provider_id="anthropic", usage=Usage(400, 20))
    model, tools = AnthropicProvider() if KEY else scripted, ToolRegistry([pay, what_was_paid])
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: model, key_for=lambda _: KEY, registry=tools, unpriced_models=ANY
    )
    return SyncRye.open(user_space=".", agent=deps)


with tempfile.TemporaryDirectory() as folder, chdir(folder):
    (place := Path(".ai/directives/bills")).mkdir(parents=True)
    (place / "pay.md").write_text(DIRECTIVE)
    with open_rye() as rye:
        rye.keys.generate("the example")
        rye.sign("directive:bills/pay")
    if os.fork() == 0:  # another process
        open_rye(call("pay", {"invoice": 7})).execute("directive:bills/pay", thread="fork")
    os.wait()
    with open_rye(call("what_was_paid"), say("Invoice 7 is paid.")) as rye:
        killed = rye.threads.list(all=True)[0].thread_id
        print(rye.threads.show(killed), rye.threads.resume(killed), what_was_paid(), sep="\n\n")
