"""Knowledge and what tools make as resources; changes and log levels; by the SDK's client."""

import base64
import hashlib
from functools import partial
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from ryecore.mcp_server import create_server
from ryecore.mcp_server.catalog import Catalog, OfferOptions
from ryecore.mcp_server.changes import ChangeNotifier
from ryecore.mcp_server.peers import Peers
from ryecore.mcp_server.subscriptions import Subscriptions
from tests.mcp_clients import MODES, stdio
from tests.workspace import Workspace

pytestmark = [
    pytest.mark.anyio,
    # Of the SDK's client, which warns of each request that only protocols before 2026 have.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

PIXEL = b"\x89PNG\r\n\x1a\nnot much of an image"
TIDES = "rye://project/knowledge/acme/tides"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def pixel(workspace: Workspace, content: bytes = PIXEL) -> None:
    workspace.write("knowledge/img/pixel.png", content, sign=False)
    digest = hashlib.sha256(PIXEL).hexdigest()
    workspace.write(
        "knowledge/pixel.md",
        f"---\ntitle: A pixel\nuri: shop://pixel\nfile: img/pixel.png\nsha256: {digest}\n---\n",
    )


@MODES
async def test_knowledge_is_listed_and_read_as_text_and_as_bytes(
    workspace: Workspace, mode: str
) -> None:
    tides = "---\ntitle: Tides\ndescription: When it rises.\n---\n\n# Tides\n\nTwice a day.\n"
    workspace.write("knowledge/acme/tides.md", tides)
    workspace.write("knowledge/table.yaml", "title: Table\nrows: [1, 2]\n")
    pixel(workspace)
    async with workspace.open() as rye, Client(create_server([rye]), mode=mode) as client:
        listed = {one.uri: one for one in (await client.list_resources()).resources}
        templates = (await client.list_resource_templates()).resource_templates
        (text,) = (await client.read_resource(TIDES)).contents
        (data,) = (await client.read_resource("rye://project/knowledge/table")).contents
        (image,) = (await client.read_resource("shop://pixel")).contents
        (again,) = (await client.read_resource("rye://project/knowledge/pixel")).contents
    tide = listed[TIDES]
    assert (tide.name, tide.title, tide.description, tide.mime_type) == (
        "acme__tides", "Tides", "When it rises.", "text/markdown",
    )  # fmt: skip
    assert listed["shop://pixel"].mime_type == "image/png"
    assert [one.uri_template for one in templates] == ["rye://project/knowledge/{+id}"]
    assert text.text == "# Tides\n\nTwice a day."  # type: ignore[union-attr]
    assert data.mime_type == "application/yaml"
    assert data.text == "title: Table\nrows: [1, 2]"  # type: ignore[union-attr]
    assert base64.b64decode(image.blob) == PIXEL  # type: ignore[union-attr]
    assert again == image


@pytest.mark.parametrize(("mode", "code"), [("legacy", -32002), ("auto", -32602)])
async def test_a_resource_that_is_not_there_is_an_error_of_the_protocol(
    workspace: Workspace, mode: str, code: int
) -> None:
    workspace.write("knowledge/acme/tides.md", "Twice a day.\n")
    hidden = {"rye.fetch.knowledge.other"}
    async with workspace.open() as rye, Client(create_server([rye]), mode=mode) as client:
        for uri in ("shop://none", "rye://project/knowledge/none", "rye://x/knowledge/acme/tides"):
            with pytest.raises(MCPError) as none:
                await client.read_resource(uri)
            assert (none.value.code, none.value.data) == (code, {"uri": uri})
    async with (
        workspace.open() as rye,
        Client(create_server([rye], grants=hidden), mode=mode) as client,
    ):
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError) as none:
            await client.read_resource(TIDES)
        assert none.value.code == code


async def test_what_does_not_verify_is_neither_listed_nor_read(workspace: Workspace) -> None:
    pixel(workspace)
    path = workspace.write("knowledge/acme/tides.md", "Twice a day.\n")
    async with workspace.open() as rye, Client(create_server([rye])) as client:
        assert len((await client.list_resources()).resources) == 2
        path.write_text("Never.\n")
        workspace.path("knowledge/img/pixel.png").write_bytes(b"another")
        listed = [one.uri for one in (await client.list_resources()).resources]
        with pytest.raises(MCPError, match="isn't the file"):
            await client.read_resource("shop://pixel")
        with pytest.raises(MCPError):
            await client.read_resource(TIDES)
    assert listed == ["shop://pixel"]


@pytest.mark.parametrize(
    "declared",
    [
        "uri: 'no uri'", "uri: rye://project/knowledge/other", "file: ../../x\nsha256: {0}",
        "file: /etc/passwd\nsha256: {0}", "file: x.png", "mime_type: nonsense",
    ],
)  # fmt: skip
async def test_an_item_that_declares_what_cannot_be_is_not_offered(
    workspace: Workspace, declared: str
) -> None:
    workspace.write("knowledge/k.md", f"---\n{declared.format('0' * 64)}\n---\nText.\n")
    async with workspace.open() as rye, Client(create_server([rye])) as client:
        assert (await client.list_resources()).resources == []


async def test_a_file_that_is_a_link_out_of_its_folder_is_not_read(workspace: Workspace) -> None:
    pixel(workspace)
    outside = workspace.root / "outside.png"
    outside.write_bytes(PIXEL)
    link = workspace.path("knowledge/img/pixel.png")
    link.unlink()
    link.symlink_to(outside)
    async with workspace.open() as rye, Client(create_server([rye])) as client:
        with pytest.raises(MCPError, match="leaves its folder"):
            await client.read_resource("shop://pixel")


@MODES
async def test_a_tool_makes_the_resources_of_a_template(workspace: Workspace, mode: str) -> None:
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
    body = """def execute(params, project):
    n = params["number"]
    return chr(0xD800) if n == 13 else n and {"order": n}
"""
    workspace.python("shop/order", body, config_schema=schema)
    workspace.write(
        "config/mcp/serve.yaml",
        "templates: [{uri: 'shop://orders/{number}', tool: shop/order, title: An order}]\n",
    )
    async with workspace.open() as rye:
        async with Client(create_server([rye]), mode=mode) as client:
            templates = (await client.list_resource_templates()).resource_templates
            (order,) = (await client.read_resource("shop://orders/17")).contents
            (half,) = (await client.read_resource("shop://orders/13")).contents
            for wrong in ("many", "[" * 5000, "NaN"):
                with pytest.raises(MCPError, match="number"):
                    await client.read_resource(f"shop://orders/{wrong}")
        grants = {"rye.execute.tool.other"}
        async with Client(create_server([rye], grants=grants), mode=mode) as client:
            with pytest.raises(MCPError, match="not found"):
                await client.read_resource("shop://orders/17")
    assert [one.uri_template for one in templates][-1] == "shop://orders/{number}"
    assert half.text == "?"  # type: ignore[union-attr]
    assert (order.text, order.mime_type) == ('{"order": 17}', "application/json")  # type: ignore[union-attr]


# Changes


class Told:
    """What a client of a protocol before 2026 was told of, in order."""

    def __init__(self) -> None:
        self.send, self._receive = anyio.create_memory_object_stream[Any](100)

    async def handle(self, message: Any) -> None:
        await self.send.send(message)

    async def until(self, method: str) -> Any:
        with anyio.fail_after(20):
            async for message in self._receive:
                if getattr(message, "method", None) == method:
                    return message
        raise AssertionError(method)


async def test_a_client_is_told_of_changed_lists_and_of_resources_that_it_subscribed_to(
    workspace: Workspace,
) -> None:
    path = workspace.write("knowledge/acme/tides.md", "Twice a day.\n")
    workspace.write("directives/new/.keep", "", sign=False)
    told = Told()
    async with stdio(
        workspace, "--tools", "*", mode="legacy", message_handler=told.handle
    ) as client:
        capabilities = client.server_capabilities
        await client.subscribe_resource(TIDES)
        with pytest.raises(MCPError, match="not found"):
            await client.subscribe_resource("shop://none")
        path.write_text("Once a day.\n")
        workspace.sign(path)
        updated = await told.until("notifications/resources/updated")
        assert updated.params.uri == TIDES
        (text,) = (await client.read_resource(TIDES)).contents
        assert text.text == "Once a day."  # type: ignore[union-attr]
        await client.unsubscribe_resource(TIDES)
        workspace.shell("a/folder/that/is/new", "true")
        await told.until("notifications/tools/list_changed")
        names = [tool.name for tool in (await client.list_tools()).tools]
        text_of = '# N\n\n```xml\n<directive name="n" version="1"></directive>\n```\n\nDo.\n'
        workspace.write("directives/n.md", text_of)
        await told.until("notifications/prompts/list_changed")
    assert "a__folder__that__is__new" in names
    assert capabilities.resources == types.ResourcesCapability(subscribe=True, list_changed=True)
    assert capabilities.tools == types.ToolsCapability(list_changed=True)


async def test_a_client_of_2026_listens_for_what_it_wants(workspace: Workspace) -> None:
    path = workspace.write("knowledge/acme/tides.md", "Twice a day.\n")
    async with workspace.open() as rye, Client(create_server([rye], tools=["*"])) as client:
        async with client.listen(tools_list_changed=True, resource_subscriptions=[TIDES]) as told:
            events = told.__aiter__()
            with anyio.fail_after(20):
                path.write_text("Once a day.\n")
                workspace.sign(path)
                assert await events.__anext__() == ResourceUpdated(TIDES)
                workspace.shell("a/t", "true")
                assert await events.__anext__() == ToolsListChanged()
        async with client.listen(prompts_list_changed=True, resources_list_changed=True) as told:
            events = told.__aiter__()
            with anyio.fail_after(20):
                workspace.write("knowledge/moon.md", "Full.\n")
                assert await events.__anext__() == ResourcesListChanged()
                workspace.write("config/mcp/serve.yaml", "directives: []\n")
                assert await events.__anext__() in (PromptsListChanged(), ResourcesListChanged())


# Log messages


async def test_what_changes_before_the_server_watches_is_told(workspace: Workspace) -> None:
    path = workspace.write("knowledge/acme/tides.md", "Twice a day.\n")
    async with workspace.open() as rye:
        catalog = Catalog([rye], frozenset({"rye.*"}), OfferOptions())

        async def stamp(_: str) -> object:
            return path.read_text()

        notifier = ChangeNotifier(catalog, Peers(), stamp)
        await notifier.begin((TIDES,))
        path.write_text("Once a day.\n")
        told = anyio.Event()
        notifier.bus.subscribe(lambda event: event == ResourceUpdated(TIDES) and told.set())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(notifier.run)
            with anyio.fail_after(10):
                await told.wait()
            tasks.cancel_scope.cancel()


async def test_a_client_that_leaves_while_it_begins_to_listen_is_forgotten(
    workspace: Workspace,
) -> None:
    asked: list[str] = []

    async def stamp(uri: str) -> object:
        asked.append(uri)
        await anyio.sleep_forever()

    async with workspace.open() as rye:
        catalog = Catalog([rye], frozenset({"rye.*"}), OfferOptions())
        notifier = ChangeNotifier(catalog, Peers(), stamp)
        subscriptions = Subscriptions(Peers(), notifier, cast("Any", None))
        wanted = types.SubscriptionFilter(resource_subscriptions=[TIDES, "shop://other"])
        params = types.SubscriptionsListenRequestParams(notifications=wanted)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(subscriptions.listen, cast("Any", None), params)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert asked == [TIDES]
        asked.clear()
        async with anyio.create_task_group() as tasks:
            watching = anyio.Event()
            tasks.start_soon(partial(notifier.run, watching=watching.set))
            await watching.wait()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert asked == []
        many = types.SubscriptionFilter(resource_subscriptions=[f"a:{n}" for n in range(10_001)])
        params = types.SubscriptionsListenRequestParams(notifications=many)
        with pytest.raises(MCPError, match="too many subscriptions"):
            await subscriptions.listen(cast("Any", None), params)


@MODES
async def test_log_messages_are_sent_from_the_level_on_that_a_client_wants(
    workspace: Workspace, mode: str
) -> None:
    workspace.shell("a/t", "true")
    said: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        said.append((params.level, params.data))

    async def call(client: Client, level: types.LoggingLevel) -> list[Any]:
        said.clear()
        if mode == "legacy":
            await client.set_logging_level(level)
            await client.call_tool("a__t", {})
        else:
            meta: Any = {"io.modelcontextprotocol/logLevel": level}
            await client.call_tool("a__t", {}, meta=meta)
        await client.list_tools()
        return [*said]

    async with workspace.open() as rye:
        server = create_server([rye], tools=["*"])
        async with Client(server, mode=mode, logging_callback=log) as client:
            await client.call_tool("a__t", {})
            assert said == []
            debug = await call(client, "debug")
            warning = await call(client, "warning")
    assert {level for level, _ in debug} == {"debug"}
    assert any("verify_integrity" in text for _, text in debug)
    assert warning == []
