"""Models for processes that a test starts: `--deps tests.thread_deps:deps`.

What the model does depends on what the directive says, so that nothing has to be handed over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from ryecore import AgentRunnerDeps, ToolRegistry
from ryecore.llm.request import LlmRequest
from ryecore.testing import FunctionProvider, call, say
from ryecore.tools import tool
from tests.scripted_host import KEY, TOTAL, add, directive
from tests.workspace import Workspace

DEPS = "tests.thread_deps:deps"
ROOT = Path(__file__).parents[1]
_NUMBER = '<input name="x" type="integer" required="true">A number.</input>'


async def _model(request: LlmRequest) -> Any:
    said = request.messages[0].text
    last = request.messages[-1]
    if "Hang." in said:
        await anyio.sleep_forever()
    if "Ask the child." in said:
        if len(request.messages) == 1:
            given = {"item_id": "directive:acme/sum", "thread": "fork", "parameters": {"x": 4}}
            return call("rye_execute", given)
        return say("The child has answered.")
    if "Order" in said:
        return call("order", {"item": "tea"}) if last.role == "user" else say("It is done.")
    if "Add" in said and last.role != "user":
        return call("rye_directive_return", {"total": 7})
    if "Add" in said:
        return call("add", {"a": 4, "b": 3})
    return say(f"I was told: {last.text.splitlines()[-1]}")


@tool(needs_approval=True)
async def order(item: str) -> str:
    """Order something."""
    with open("ordered", "a") as file:
        file.write(f"{item}\n")
    return f"{item} ordered"


def deps() -> Mapping[str, Any]:
    """The arguments of `Rye.open` that give it the models."""
    provider = FunctionProvider(_model, provider_id="scripted")
    return {
        "agent": AgentRunnerDeps(
            resolve_provider={"scripted": provider}.get,
            key_for=lambda _: KEY,
            registry=ToolRegistry([add, order]),
            unpriced_models=frozenset({"scripted/*"}),
        )
    }


def furnish(workspace: Workspace) -> None:
    """Write the directives that the models know."""
    workspace.environ["PYTHONPATH"] = str(ROOT)
    tools = "<execute><directive>acme/*</directive><tool>host/add</tool></execute>"
    for name, body, more in (
        ("sum", "Add {input:x} and 3.", {"inputs": _NUMBER, "outputs": TOTAL}),
        ("parent", "Ask the child.", {"permissions": tools, "limits": 'turns="4" depth="2"'}),
        ("talk", "Talk.", {"permissions": ""}),
        ("hang", "Hang.", {}),
        ("order", "Order tea.", {}),
    ):
        workspace.write(f"directives/acme/{name}.md", directive(name, body, **more))
