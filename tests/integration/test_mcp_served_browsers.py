"""The server over HTTP for web pages, and for clients whose streams are broken off."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any

import httpx2
import pytest

from tests.mcp_clients import INITIALIZE, TOKEN, Served, http, process
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio

APP = "https://app.example"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ACCEPT = {"Accept": "application/json, text/event-stream"}
NEWEST_WITH_SESSIONS = "2025-11-25"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def page(origin: str | None = APP) -> AsyncIterator[httpx2.AsyncClient]:
    """What a web page of an origin can ask with."""
    headers = {**ACCEPT, **({"Origin": origin} if origin else {})}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as opened:
        yield opened


def preflight(origin: str = APP, asked: str = "authorization, mcp-param-region") -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": asked,
    }


async def test_a_page_of_an_allowed_origin_calls_and_reads_the_headers_of_a_session(
    workspace: Workspace,
) -> None:
    workspace.write("config/mcp/serve.yaml", f"allowed_origins: ['{APP}']\n")
    with http(workspace, "--allow-origin", "http://localhost:3000") as served:
        async with page() as opened:
            asked = await opened.options(served.url, headers=preflight())
            begun = await opened.post(served.url, json=INITIALIZE, headers=BEARER)
            refused = await opened.post(served.url, json=INITIALIZE)
            other = await opened.options(served.url, headers=preflight("http://localhost:3000"))
    assert asked.status_code == other.status_code == 200
    assert asked.headers["access-control-allow-origin"] == APP
    assert {"GET", "POST", "DELETE"} <= {
        one.strip() for one in asked.headers["access-control-allow-methods"].split(",")
    }
    assert "mcp-param-region" in asked.headers["access-control-allow-headers"]
    assert begun.status_code == 200
    assert begun.headers["mcp-session-id"]
    exposed = begun.headers["access-control-expose-headers"]
    assert "Mcp-Session-Id" in exposed
    assert "MCP-Protocol-Version" in exposed
    assert begun.headers["access-control-allow-origin"] == APP
    # The page can read that it needs a token.
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == APP


async def test_a_page_of_another_origin_or_by_another_name_is_refused(workspace: Workspace) -> None:
    with http(workspace, "--allow-origin", APP) as served:
        async with page("https://evil.example") as opened:
            asked = await opened.options(served.url, headers=preflight("https://evil.example"))
            called = await opened.post(served.url, json=INITIALIZE, headers=BEARER)
        async with page() as opened:
            rebound = await opened.post(
                served.url, json=INITIALIZE, headers={**BEARER, "Host": "evil.example"}
            )
    assert asked.status_code == 400
    assert called.status_code == 403
    assert "access-control-allow-origin" not in called.headers
    assert rebound.status_code == 421


async def test_without_an_allowed_origin_no_page_reads_an_answer(workspace: Workspace) -> None:
    with http(workspace) as served:
        async with page("http://localhost:3000") as opened:
            called = await opened.post(served.url, json=INITIALIZE, headers=BEARER)
            asked = await opened.options(served.url, headers=preflight("http://localhost:3000"))
    assert "access-control-allow-origin" not in called.headers
    assert asked.status_code >= 400


async def test_every_origin_may_be_allowed_but_not_without_a_token(workspace: Workspace) -> None:
    with http(workspace, "--allow-origin", "*") as served:
        async with page("https://any.example") as opened:
            called = await opened.post(served.url, json=INITIALIZE, headers=BEARER)
            rebound = await opened.post(
                served.url, json=INITIALIZE, headers={**BEARER, "Host": "evil.example"}
            )
    assert (called.status_code, called.headers["access-control-allow-origin"]) == (200, "*")
    assert rebound.status_code == 421
    with process(workspace, "--http", "0", "--no-auth", "--allow-origin", "*") as server:
        out, err = server.communicate(timeout=30)
    assert (server.returncode, out) == (2, b"")
    assert b"any web page" in err


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/x"])
def test_what_is_no_origin_is_refused(workspace: Workspace, origin: str) -> None:
    with process(workspace, "--http", "0", "--allow-origin", origin) as server:
        _, err = server.communicate(timeout=30)
    assert server.returncode == 2
    assert b"must be an origin" in err


def test_spaces_around_a_header_do_not_count(workspace: Workspace) -> None:
    with http(workspace) as served:
        host = served.url.removeprefix("http://").removesuffix("/mcp")
        opened = HTTPConnection(host, timeout=30)
        padded = {"Authorization": f" Bearer {TOKEN}  ", "Content-Type": "application/json "}
        opened.request("POST", "/mcp", json.dumps(INITIALIZE), {**ACCEPT, **padded})
        assert opened.getresponse().status == 200
        opened.close()


# Streams that are broken off


def events_of(text: str) -> list[tuple[str, dict[str, Any] | None]]:
    """The ids and the messages of the events of a stream."""
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.partition(": ")[::2] for line in block.splitlines() if ": " in line)
        if "id" in lines or lines.get("data"):
            data = lines.get("data", "")
            found.append((lines.get("id", ""), json.loads(data) if data else None))
    return found


async def session_of(opened: httpx2.AsyncClient, served: Served) -> dict[str, str]:
    params = {**INITIALIZE["params"], "protocolVersion": NEWEST_WITH_SESSIONS}  # type: ignore[dict-item]
    begun = await opened.post(served.url, json={**INITIALIZE, "params": params})
    assert begun.status_code == 200, begun.text
    return {
        "Mcp-Session-Id": begun.headers["mcp-session-id"],
        "MCP-Protocol-Version": NEWEST_WITH_SESSIONS,
    }


async def test_a_client_polls_for_the_result_of_a_long_call_and_gets_no_other_sessions(
    workspace: Workspace,
) -> None:
    workspace.write("config/mcp/serve.yaml", "tools: ['a/*']\npoll_after_s: 0.1\n")
    workspace.shell("a/waits", 'read -r line < "$1/go"; echo "$line"')
    fifo = workspace.project / "go"
    os.mkfifo(fifo)
    call = {
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "a__waits", "arguments": {}},
    }  # fmt: skip
    with http(workspace) as served:
        async with page(None) as opened:
            opened.headers.update(BEARER)
            session = await session_of(opened, served)
            broken_off = await opened.post(served.url, json=call, headers=session)
            ((event_id, nothing),) = events_of(broken_off.text)
            assert nothing is None
            other = await session_of(opened, served)
            stolen = await opened.get(served.url, headers={**other, "Last-Event-ID": event_id})
            fifo.write_text("the result\n")
            resumed = {**session, "Last-Event-ID": event_id}
            messages: list[Any] = []
            async with opened.stream("GET", served.url, headers=resumed) as stream:
                text = ""
                async for part in stream.aiter_text():
                    text += part
                    messages = [one for _, one in events_of(text) if one is not None]
                    if messages:
                        break
    assert "the result" not in stolen.text
    assert "retry: 1000" in broken_off.text
    (answer,) = messages
    assert answer["id"] == 7
    assert "the result" in answer["result"]["content"][0]["text"]
