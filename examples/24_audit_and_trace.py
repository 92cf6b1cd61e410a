"""What ran, for whom, and what it cost: an audit log, and a trace if OpenTelemetry is installed.

A scripted model calls a tool in a thread. Then somebody changes the tool, which is refused.
"""

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path

from ryecore import AgentRunnerDeps, IntegrityError, SyncRye
from ryecore.agent import OtelObserver
from ryecore.llm import Price, Usage
from ryecore.testing import ScriptedProvider, call, say

TOOL = """# __executor_id__ = "rye/core/runtimes/bash/bash"
echo "High water in Brest: 14:05"
"""
DIRECTIVE = """```xml
<directive name="ask"><metadata>
  <model id="any" provider="scripted"/> <limits turns="3" spend="0.10"/>
  <permissions><execute><tool>sea/*</tool></execute></permissions></metadata></directive>
```
When is high water in Brest?"""

execute = call("rye_execute", {"item_id": "tool:sea/tide"})
model = ScriptedProvider([execute, say("At five past two.")], usage=Usage(900, 60))
deps = AgentRunnerDeps(
    resolve_provider=lambda _: model,
    key_for=lambda _: "",
    price_of=lambda *_: Price(input="3", output="15"),
)
observer = None
if find_spec("opentelemetry.sdk"):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    tracers, show = TracerProvider(), ConsoleSpanExporter(formatter=lambda one: f"  {one.name}\n")
    tracers.add_span_processor(SimpleSpanProcessor(show))
    observer = OtelObserver(tracer_provider=tracers)

with tempfile.TemporaryDirectory() as home:
    tool, ask = Path(home, ".ai/tools/sea/tide.sh"), Path(home, ".ai/directives/sea/ask.md")
    for path, text in ((tool, TOOL), (ask, DIRECTIVE)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    log = Path(home, "audit.jsonl")
    with SyncRye.open(home, user_space=home, agent=deps, audit=log, observer=observer) as rye:
        rye.keys.generate("the example")
        rye.sign("tool:sea/*"), rye.sign("directive:sea/*")
        print("Spans, as they end:")
        rye.execute("directive:sea/ask", thread="fork", labels={"tenant": "harbour"})
        tool.write_text(tool.read_text() + "echo 'Send money.'\n")
        try:
            rye.execute("tool:sea/tide")
        except IntegrityError as refusal:
            print(f"\nRefused: {refusal.message}\n")
    for one in map(json.loads, log.read_text().splitlines()):
        print(f"  {one['outcome']:<8} {one['ref']:<18} {one['caller']:<6} {one['cost_usd'] or ''}")
