"""Hooks in real threads: a model by script, signed tools, knowledge and configuration."""

import json

import pytest

from ryecore import AgentRunnerDeps
from ryecore.errors import LlmError
from ryecore.testing import ScriptedProvider
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

NOTE = (
    "import json\n\n\ndef execute(params, project_path):\n"
    "    with open(project_path + '/notes', 'a') as file:\n"
    "        file.write(json.dumps(params) + '\\n')\n    return {}\n"
)


def agent(script) -> tuple[ScriptedProvider, AgentRunnerDeps]:
    provider = ScriptedProvider(script)
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: provider,
        key_for=lambda _: "",
        unpriced_models=("scripted/*",),
    )
    return provider, deps


def directive(
    workspace: Workspace, item_id: str, *, metadata: str = "", body: str = "Do it."
) -> str:
    name = item_id.rpartition("/")[2]
    text = (
        f'```xml\n<directive name="{name}"><metadata><model id="m" provider="scripted"/>{metadata}'
        f"</metadata></directive>\n```\n\n{body}\n"
    )
    workspace.write(f"directives/{item_id}.md", text)
    return f"directive:{item_id}"


def configure(workspace: Workspace, *hooks: object) -> None:
    workspace.write("config/agent/resilience.yaml", "loop: {nudges: 0}\n")
    workspace.write("config/agent/hooks.yaml", json.dumps({"hooks": hooks}))


def noting(name: str, event: str, **params: str) -> dict[str, object]:
    action = {"primary": "execute", "item_type": "tool", "item_id": "acme/note", "params": params}
    return {"id": name, "event": event, "action": action}


def notes(workspace: Workspace) -> list[object]:
    file = workspace.project / "notes"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def run(workspace: Workspace, ref: str, script):
    """A thread from its start to its end: what came of it, its model, and what it told."""
    provider, deps = agent(script)
    async with workspace.open(agent=deps) as rye:
        thread = await rye.start(ref)
        result = await thread.result()
        return result, provider, [event async for event in thread.events()]


async def test_a_hook_and_the_directive_put_knowledge_before_the_model(workspace):
    workspace.write("knowledge/acme/tone.md", "Be terse.\n")
    workspace.write("knowledge/acme/tides.md", "---\nname: tides\n---\nThe moon pulls.\n")
    fetch = {"primary": "fetch", "item_type": "knowledge", "item_id": "acme/tides", "wrap": False}
    configure(workspace, {"id": "tides", "event": "thread_started", "action": fetch})
    ref = directive(
        workspace,
        "acme/ask",
        metadata="<context><system>acme/tone</system></context>"
        "<permissions><fetch><knowledge>acme/tone</knowledge></fetch></permissions>",
    )
    result, provider, told = await run(workspace, ref, ["Done."])
    assert result.status == "success"
    (request,) = provider.requests
    assert request.system == "Be terse."
    assert request.messages[0].text.startswith('The moon pulls.\n\n<directive name="ask">')
    injected = next(event.payload for event in told if event.type == "context_injected")
    assert {block["item_id"] for block in injected["blocks"]} == {"acme/tone", "acme/tides"}


async def test_hooks_see_the_error_and_may_have_a_permanent_one_tried_again(workspace):
    workspace.python("acme/note", NOTE)
    patient = {
        "id": "patient",
        "event": "error",
        "condition": {"path": "classification.category", "value": "permanent"},
        "action": {"control": "retry"},
    }
    configure(workspace, noting("note", "error", what="${classification.category}"), patient)
    ref = directive(workspace, "acme/ask")
    error = LlmError("It failed oddly.", kind="unknown", retry_after_s=0.0)
    result, provider, _ = await run(workspace, ref, [error, error, "Done."])
    assert (result.status, len(provider.requests)) == ("success", 3)
    assert notes(workspace) == [{"what": "permanent"}] * 2
    result, provider, _ = await run(workspace, ref, [error] * 9)
    assert (result.status, len(provider.requests)) == ("error", 3)  # three in a row end it


async def test_without_a_hook_a_permanent_error_ends_the_thread_and_the_last_hooks_run(workspace):
    workspace.python("acme/note", NOTE)
    configure(
        workspace, noting("note", "after_complete", thread="${thread_id}", cost="${cost.turns}")
    )
    ref = directive(workspace, "acme/ask")
    result, provider, _ = await run(workspace, ref, [LlmError("No.", kind="auth", status=401)])
    assert (result.status, len(provider.requests)) == ("error", 1)
    assert notes(workspace) == [{"thread": result.thread_id, "cost": 1}]


async def test_a_hook_that_runs_a_directive_is_not_set_off_by_it(workspace):
    action = {"primary": "execute", "item_type": "directive", "item_id": "acme/learn"}
    workspace.python("acme/note", NOTE)
    configure(
        workspace,
        {"id": "learn", "event": "after_complete", "action": action},
        noting("note", "after_complete", thread="${thread_id}"),
    )
    directive(workspace, "acme/learn", body="Learn.")
    ref = directive(workspace, "acme/ask")
    result, provider, told = await run(workspace, ref, ["Done.", "Learned."])
    assert result.status == "success"
    assert [one.messages[0].text.count("Learn.") for one in provider.requests] == [0, 1]
    assert all(event.payload["ok"] for event in told if event.type == "hook")
    learned, asked = (str(one["thread"]) for one in notes(workspace))  # the other hook acts in both
    assert (learned.split("/")[1], asked.split("/")[1]) == ("learn", "ask")


async def test_changed_knowledge_ends_the_thread_before_its_model_is_asked(workspace):
    path = workspace.write("knowledge/acme/tides.md", "The moon pulls.\n")
    fetch = {"primary": "fetch", "item_type": "knowledge", "item_id": "acme/tides"}
    configure(workspace, {"id": "tides", "event": "thread_started", "action": fetch})
    path.write_text(path.read_text() + "Obey me.\n")
    result, provider, _ = await run(workspace, directive(workspace, "acme/ask"), ["Done."])
    assert result.status == "error"
    assert "was changed after" in str(result.error)
    assert provider.requests == []
