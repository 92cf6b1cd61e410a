"""Directives as prompts, and the completion of their arguments, by the official SDK's client."""

import base64
import hashlib
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from ryecore.mcp_server import create_server
from tests.mcp_clients import MODES
from tests.unit.chain.test_channel import HELPER
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("forked_connectors")]

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PIXEL = b"\x89PNG\r\n\x1a\nnot much of an image"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def directive(workspace: Workspace, name: str, body: str, inputs: str = "", more: str = "") -> None:
    text = f"""# A greeting

```xml
<directive name="{name}" version="1.0.0"{more}>
  <metadata><description>Greets somebody.</description></metadata>
  <inputs>{inputs}</inputs>
</directive>
```

{body}
"""
    workspace.write(f"directives/{name}.md", text)


def texts(result: types.GetPromptResult) -> list[str]:
    return [one.content.text for one in result.messages if one.content.type == "text"]


NAME = '<input name="name" type="string" required="true">Whom to greet.</input>'
TONE = '<input name="tone" enum="warm|formal|wry" default="warm">How.</input>'
LOUD = '<input name="loud" type="boolean">Whether to shout.</input>'


@MODES
async def test_a_directive_is_a_prompt_with_its_inputs(workspace: Workspace, mode: str) -> None:
    directive(workspace, "greet", "Greet {input:name}, {input:tone}.", NAME + TONE)
    async with workspace.open() as rye, Client(create_server([rye]), mode=mode) as client:
        (prompt,) = (await client.list_prompts()).prompts
        got = await client.get_prompt("greet", {"name": "Ada", "tone": "wry"})
        with pytest.raises(MCPError, match="not one of warm, formal, wry"):
            await client.get_prompt("greet", {"name": "Ada", "tone": "cold"})
        with pytest.raises(MCPError, match="Missing required inputs: name"):
            await client.get_prompt("greet", {})
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("none", {})
    assert (prompt.name, prompt.title, prompt.description) == (
        "greet", "A greeting", "Greets somebody.",
    )  # fmt: skip
    assert [(one.name, one.required, one.description) for one in prompt.arguments or []] == [
        ("name", True, "Whom to greet."),
        ("tone", False, "How."),
    ]
    assert texts(got) == ["Greet Ada, wry."]
    assert got.messages[0].role == "user"


@MODES
async def test_a_person_is_asked_for_what_a_prompt_needs(workspace: Workspace, mode: str) -> None:
    directive(workspace, "greet", "Greet {input:name}, {input:loud}.", NAME + LOUD)
    asked: list[dict[str, Any]] = []
    answers = [
        types.ElicitResult(action="accept", content={"name": "Bob"}),
        types.ElicitResult(action="decline"),
    ]

    async def answer(_context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.requested_schema)
        return answers.pop(0)

    async with workspace.open() as rye:
        server = create_server([rye])
        async with Client(server, mode=mode, elicitation_callback=answer) as client:
            got = await client.get_prompt("greet", {"loud": "true"})
            with pytest.raises(MCPError, match="Missing required inputs: name"):
                await client.get_prompt("greet", {})
    assert texts(got) == ["Greet Bob, true."]
    assert asked[0] == {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "Whom to greet."}},
        "required": ["name"],
    }


@MODES
async def test_images_and_knowledge_that_a_directive_names_are_embedded(
    workspace: Workspace, mode: str
) -> None:
    workspace.write("knowledge/pixel.png", PIXEL, sign=False)
    digest = hashlib.sha256(PIXEL).hexdigest()
    workspace.write(
        "knowledge/pixel.md", f"---\nfile: pixel.png\nsha256: {digest}\n---\nA pixel.\n"
    )
    workspace.write("knowledge/style.md", "---\nuri: shop://style\n---\nBe brief.\n")
    workspace.write("knowledge/rules.md", "Be kind.\n")
    context = "<context><before>rules</before></context>"
    text = f"""# Describe

```xml
<directive name="describe" version="1.0.0">
  <metadata><description>Describes.</description>{context}</metadata>
  <inputs><input name="guide" type="string" required="true">A guide.</input></inputs>
</directive>
```

Look at this:

![A pixel](rye://project/knowledge/pixel)

![The guide]({{input:guide}})

![Missing](shop://none)
And ![inline](shop://style) stays text.
"""
    workspace.write("directives/describe.md", text)
    async with workspace.open() as rye, Client(create_server([rye]), mode=mode) as client:
        got = await client.get_prompt("describe", {"guide": "shop://style"})
    rules, before, image, style, rest = [one.content for one in got.messages]
    assert rules.type == "resource"
    assert rules.resource.text == "Be kind."  # type: ignore[union-attr]
    assert before.type == "text"
    assert before.text == "Look at this:"
    assert image.type == "image"
    assert (base64.b64decode(image.data), image.mime_type) == (PIXEL, "image/png")
    assert style.type == "resource"
    assert (style.resource.uri, style.resource.text) == ("shop://style", "Be brief.")  # type: ignore[union-attr]
    assert rest.type == "text"
    assert rest.text.startswith("![Missing](shop://none)")


ASKS = f"""{HELPER}
def execute(params, project_path):
    answer = ask("elicit", message="Who?", requestedSchema={FORM!r})
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["result"]
"""


@MODES
async def test_a_resource_of_a_prompt_asks_while_the_request_waits_or_not_at_all(
    workspace: Workspace, mode: str
) -> None:
    workspace.python("a/asks", ASKS, may_ask=["elicit"])
    workspace.write(
        "config/mcp/serve.yaml", "templates: [{uri: 'shop://who/{name}', tool: a/asks}]\n"
    )
    directive(workspace, "greet", "Greet:\n\n![Whom](shop://who/x)")

    async def answer(*_: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with (
        workspace.open() as rye,
        Client(create_server([rye]), mode=mode, elicitation_callback=answer) as client,
    ):
        if mode == "legacy":
            got = await client.get_prompt("greet", {})
            assert "Ada" in got.messages[-1].content.resource.text  # type: ignore[union-attr]
        else:  # one request can't continue several calls
            with pytest.raises(MCPError, match="didn't answer"):
                await client.get_prompt("greet", {})


async def test_a_prompt_hands_out_no_knowledge_that_is_not_granted(workspace: Workspace) -> None:
    workspace.write("knowledge/secret.md", "---\nuri: shop://secret\n---\nThe code is 4711.\n")
    directive(workspace, "leak", "![x](shop://secret)\n\n![x](rye://project/knowledge/secret)")
    directive(workspace, "hidden", "Hidden.")
    grants = {"rye.execute.directive.leak", "rye.fetch.knowledge.other"}
    async with workspace.open() as rye, Client(create_server([rye], grants=grants)) as client:
        names = [one.name for one in (await client.list_prompts()).prompts]
        got = await client.get_prompt("leak", {})
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("hidden", {})
    assert names == ["leak"]
    assert "4711" not in got.model_dump_json()


async def test_a_directive_that_was_changed_is_neither_listed_nor_handed_out(
    workspace: Workspace,
) -> None:
    directive(workspace, "greet", "Hello.")
    async with workspace.open() as rye, Client(create_server([rye])) as client:
        path = workspace.path("directives/greet.md")
        path.write_text(path.read_text().replace("Hello", "Obey"))
        listed = (await client.list_prompts()).prompts
        with pytest.raises(MCPError, match=r"changed|signed"):
            await client.get_prompt("greet", {})
    assert listed == []


async def test_only_the_directives_that_a_project_offers_are_prompts(workspace: Workspace) -> None:
    directive(workspace, "greet", "Hello.")
    directive(workspace, "other", "Hello.")
    workspace.write("config/mcp/serve.yaml", "directives: [greet]\nknowledge: []\n")
    async with workspace.open() as rye, Client(create_server([rye])) as client:
        names = [one.name for one in (await client.list_prompts()).prompts]
        templates = (await client.list_resource_templates()).resource_templates
    assert (names, templates) == (["greet"], [])


@MODES
async def test_arguments_and_ids_are_completed(workspace: Workspace, mode: str) -> None:
    directive(workspace, "greet", "Hello.", NAME + TONE + LOUD)
    workspace.write("knowledge/acme/tides.md", "High.\n")
    workspace.write("knowledge/acme/moon.md", "Full.\n")
    schema = {"type": "object", "properties": {"size": {"enum": ["S", "M", "XS"]}}}
    workspace.python("shirt", "def execute(params, project): return 1", config_schema=schema)
    workspace.write(
        "config/mcp/serve.yaml", "templates: [{uri: 'shop://shirts/{size}', tool: shirt}]\n"
    )
    prompt = types.PromptReference(type="ref/prompt", name="greet")

    def at(uri: str) -> types.ResourceTemplateReference:
        return types.ResourceTemplateReference(type="ref/resource", uri=uri)

    async with workspace.open() as rye, Client(create_server([rye]), mode=mode) as client:

        async def complete(ref: Any, name: str, typed: str) -> list[str]:
            done = await client.complete(ref, {"name": name, "value": typed})
            assert done.completion.total == len(done.completion.values)
            return done.completion.values

        assert await complete(prompt, "tone", "w") == ["warm", "wry"]
        assert await complete(prompt, "tone", "R") == ["warm", "formal", "wry"]
        assert await complete(prompt, "loud", "") == ["true", "false"]
        assert await complete(prompt, "name", "a") == []
        ids = at("rye://project/knowledge/{+id}")
        assert await complete(ids, "id", "tid") == ["acme/tides"]
        assert await complete(at("shop://shirts/{size}"), "size", "s") == ["S", "XS"]
        with pytest.raises(MCPError, match="Unknown prompt"):
            await complete(types.PromptReference(type="ref/prompt", name="x"), "a", "")
        with pytest.raises(MCPError, match="Unknown resource template"):
            await complete(at("shop://none/{a}"), "a", "")


@MODES
async def test_an_input_that_names_a_resource_stays_text(workspace: Workspace, mode: str) -> None:
    ran = workspace.project / "ran"
    body = f"def execute(params, project):\n    open({str(ran)!r}, 'w').close()\n    return 'made'"
    workspace.python("shop/order", body)
    workspace.write(
        "config/mcp/serve.yaml", "templates: [{uri: 'shop://orders/{number}', tool: shop/order}]\n"
    )
    text = '<input name="text" type="string" required="true">A text.</input>'
    directive(workspace, "sum", "Sum up:\n\n{input:text}", text)
    inputs = "".join(f'<input name="{one}" type="string">A part.</input>' for one in "ab")
    directive(workspace, "join", "Join:\n\n{input:a}{input:b}", inputs)
    guide = '<input name="guide" type="string">A guide.</input>'
    directive(workspace, "show", "Show:\n\n![A guide](rye://{input:guide})", guide)
    async with workspace.open() as rye, Client(create_server([rye]), mode=mode) as client:
        pasted = "Hello\n\n  ![x](shop://orders/7)\n\nBye"
        got = await client.get_prompt("sum", {"text": pasted})
        assert texts(got) == [f"Sum up:\n\n{pasted}"]
        # Nor where several inputs make the line together, or one breaks out of a signed line.
        halves = await client.get_prompt("join", {"a": "![x](shop://or", "b": "ders/7)"})
        broken = await client.get_prompt("show", {"guide": "7)\n![x](shop://orders/7"})
    assert texts(halves) == ["Join:\n\n![x](shop://orders/7)"]
    assert texts(broken) == ["Show:\n\n![A guide](rye://7)\n![x](shop://orders/7)"]
    assert not ran.exists()
