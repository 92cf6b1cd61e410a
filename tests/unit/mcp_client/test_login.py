"""A person's return to this machine's loopback address."""

import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2
import pytest

from ryecore.errors import InputError
from ryecore.mcp_client.login import Loopback
from ryecore.results import AuthorizationRequest

pytestmark = pytest.mark.anyio

REQUEST = AuthorizationRequest("mcp/servers/test", "https://auth.example/?client_id=a&state=own")


@asynccontextmanager
async def logging_in(loopback: Loopback, expected: str) -> AsyncIterator[list[str]]:
    """Wait for a person's return, which has to be the expected one; yield those that counted."""
    returned: list[str] = []

    async def wait() -> None:
        returned.append(await loopback(REQUEST))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        yield returned
    assert [urlsplit(one).query for one in returned] == [expected]


async def test_only_the_return_with_the_own_state_counts() -> None:
    with Loopback(lambda _: None) as loopback:
        expected = "code=mine&state=own"
        async with logging_in(loopback, expected) as outcome, httpx2.AsyncClient() as browser:
            for query in ("code=evil&state=other", "code=evil", "code=e&state=own&state=other"):
                page = await browser.get(f"{loopback.redirect_uri}?{query}")
                assert page.status_code == 400
                assert "not the login that is waited for" in page.text
            favicon = await browser.get(loopback.redirect_uri.replace("/callback", "/favicon.ico"))
            assert favicon.status_code == 404
            assert outcome == []
            page = await browser.get(f"{loopback.redirect_uri}?{expected}")
            assert "close this window" in page.text


def abort(port: int) -> None:
    """Connect, and break off so that nothing is left to accept."""
    visitor = socket.create_connection(("127.0.0.1", port))
    visitor.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    visitor.close()


async def test_a_visitor_that_breaks_off_ends_nothing() -> None:
    with Loopback(lambda _: None) as loopback:
        port = urlsplit(loopback.redirect_uri).port
        assert port is not None
        expected = "error=denied&state=own"
        async with logging_in(loopback, expected), httpx2.AsyncClient() as browser:
            for _ in range(50):
                await anyio.to_thread.run_sync(partial(abort, port))
            await browser.get(f"{loopback.redirect_uri}?{expected}")


@pytest.mark.parametrize("target", ["//[", "http://[x/callback"])
async def test_an_address_that_is_none_ends_no_login(target: str) -> None:
    """Any page can send a browser there."""

    def visit(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as visitor:
            visitor.sendall(f"GET {target} HTTP/1.1\r\n\r\n".encode())
            return visitor.recv(100)

    with Loopback(lambda _: None) as loopback:
        port = urlsplit(loopback.redirect_uri).port
        assert port is not None
        expected = "code=mine&state=own"
        async with logging_in(loopback, expected), httpx2.AsyncClient() as browser:
            assert b" 404 " in await anyio.to_thread.run_sync(visit, port)
            await browser.get(f"{loopback.redirect_uri}?{expected}")


async def test_a_listener_that_has_nobody_left_to_accept_is_waited_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some kernels take a visitor who broke off out of the queue after the socket was ready."""
    with Loopback(lambda _: None) as loopback:
        is_first = True
        wait_readable = anyio.wait_readable

        async def ready(descriptor: object) -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                return
            await wait_readable(descriptor)  # type: ignore[arg-type]

        monkeypatch.setattr(anyio, "wait_readable", ready)
        expected = "code=mine&state=own"
        async with logging_in(loopback, expected), httpx2.AsyncClient() as browser:
            page = await browser.get(f"{loopback.redirect_uri}?{expected}")
            assert "close this window" in page.text
    assert not is_first


def test_what_is_no_scope_is_refused() -> None:
    with pytest.raises(InputError, match="no scope has"):
        Loopback(lambda _: None, scope='a"b')
