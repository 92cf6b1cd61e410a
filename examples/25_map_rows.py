"""Label many reviews by one signed directive: several at once, in order, within a budget.

A scripted model answers. For one review it fails the first time; that alone is run again.
"""

import tempfile
from pathlib import Path

import anyio

from ryecore import AgentRunnerDeps, Limits, Rye
from ryecore.llm import LlmRequest, Price, Usage
from ryecore.testing import FunctionProvider, Turn, call, fail

LABEL = """```xml
<directive name="label" version="1.0.0">
  <metadata>
    <description>Say whether a review is good or bad.</description>
    <category>ds</category>
    <model id="claude-haiku-4-5" provider="anthropic"/>
  </metadata>
  <inputs><input name="text" required="true">The review.</input></inputs>
  <outputs><output name="label" required="true">good or bad</output></outputs>
</directive>
```
Label this review: {input:text}
"""
ROWS = [{"text": f"Lamp {one} {'works' if one % 7 else 'broke'}."} for one in range(1, 61)]
asked: list[str] = []


def answer(request: LlmRequest) -> Turn:
    review = request.messages[0].text.partition("review: ")[2]
    asked.append(review)
    if "Lamp 13 " in review and len(asked) <= len(ROWS):
        return fail("content_filter", "Thirteen is out of order.")
    said = {"label": "bad" if "broke" in review else "good"}
    return call("rye_directive_return", said, usage=Usage(400, 20))


async def main(project: Path) -> None:
    model, price = FunctionProvider(answer, provider_id="anthropic"), Price(input="1", output="5")
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: model, key_for=lambda _: "", price_of=lambda *_: price
    )
    async with Rye.open(project, user_space=project, agent=deps) as rye:
        rye.keys.generate("the example")
        rye.sign(ref := "directive:ds/label")
        done = await rye.map(ref, ROWS, limits=Limits(spend_usd=0.5), concurrency=20)
        print(done)
        whole = await done.retry_failed()
        bad = [row.inputs["text"] for row in whole if row.output == {"label": "bad"}]
        print(*bad, f"{whole.status}, for ${whole.cost_usd:.3f}", sep="\n")


with tempfile.TemporaryDirectory() as folder:
    (label := Path(folder, ".ai/directives/ds/label.md")).parent.mkdir(parents=True)
    label.write_text(LABEL)
    anyio.run(main, Path(folder))
