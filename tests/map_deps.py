"""A model for maps in processes that a test starts: `--deps tests.map_deps:deps`.

It notes each row that it is asked in the file `asked`; rows that say "wait" hang until `open` is
there.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from ryecore import AgentRunnerDeps
from ryecore.llm import LlmRequest, Price
from ryecore.llm.result import Usage
from ryecore.testing import FunctionProvider, Turn, fail, say
from tests.killing import append_line
from tests.scripted_host import KEY, directive
from tests.workspace import Workspace

DEPS = "tests.map_deps:deps"
COST = 100 * 300 + 10 * 1500
"""What a row costs, in microcents."""


async def _model(request: LlmRequest) -> Turn:
    text = request.messages[0].text.rpartition("label ")[2].split()[0]
    append_line(Path("asked"), text)
    if "wait" in text and not os.path.exists("open"):
        await anyio.sleep_forever()
    if "broken" in text and not os.path.exists("open"):
        return fail("content_filter", "no")
    return say(f"label of {text}", usage=Usage(100, 10))


def deps() -> Mapping[str, Any]:
    """The arguments of `Rye.open` that give it the model."""
    provider = FunctionProvider(_model, provider_id="scripted")
    return {
        "agent": AgentRunnerDeps(
            resolve_provider={"scripted": provider}.get,
            key_for=lambda _: KEY,
            price_of=lambda *_: Price(input="3", output="15"),
        )
    }


def furnish(workspace: Workspace) -> str:
    """Write a directive that is mapped; its canonical ref."""
    inputs = '<input name="text" required="true"/>'
    body = "label {input:text}"
    workspace.write(
        "directives/ds/label.md",
        directive("label", body, category="ds", permissions="", inputs=inputs),
    )
    return "directive:ds/label"
