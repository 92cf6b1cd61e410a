"""The connections of a caller: taken again, closed when they broke, and few packets on each."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from anyio.abc import SocketStream
from attrs import define, field

from ryecore.errors import RemoteUntrusted
from ryecore.remote.client import fetch_identity
from ryecore.remote.transport import NodeTransport

pytestmark = pytest.mark.anyio

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@define
class Server:
    """Answers each request once all of its body has come.

    Attributes:
        url: Where.
        packets: What each connection received, one item for each read.
        closes: Whether it closes a connection after an answer.
        answering: Requests are answered once it is set.
    """

    url: str = ""
    packets: list[list[bytes]] = field(factory=list)
    closes: bool = False
    answering: anyio.Event = field(factory=anyio.Event)
    closed: anyio.Event = field(factory=anyio.Event)

    async def serve(self, stream: SocketStream) -> None:
        got: list[bytes] = []
        self.packets.append(got)
        async with stream:
            while True:
                try:
                    got.append(await stream.receive())
                    while not got[-1].endswith((b".", b"\r\n\r\n")):
                        got.append(await stream.receive())
                    await self.answering.wait()
                    await stream.send(ANSWER)
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    break
                if self.closes:
                    break
        self.closed.set()


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Server, httpx2.AsyncClient]]:
    server = Server()
    server.answering.set()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        server.url = f"http://127.0.0.1:{port}/"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server.serve)
            transport = NodeTransport(httpx2.URL(server.url), TLS)
            async with httpx2.AsyncClient(transport=transport, timeout=20) as client:
                yield server, client
            tasks.cancel_scope.cancel()


async def post(client: httpx2.AsyncClient, url: str, body: bytes = b"a body.") -> bytes:
    answer = await client.post(url, content=body)
    return answer.content


async def test_a_short_request_is_one_packet_and_connections_are_taken_again() -> None:
    async with served() as (server, client):
        for _ in range(3):
            assert await post(client, server.url) == b"ok"
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(post, client, server.url)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(post, client, server.url)
    assert len(server.packets) == 5
    assert sum(map(len, server.packets)) == 13
    assert all(
        one.startswith(b"POST") and one.endswith(b"a body.")
        for got in server.packets
        for one in got
    )


async def test_a_long_body_is_sent_whole() -> None:
    body = b"x" * 1_000_000 + b"."
    async with served() as (server, client):
        assert await post(client, server.url, body) == b"ok"
    assert b"".join(server.packets[0]).endswith(b"\r\n\r\n" + body)


async def test_a_connection_that_the_server_closed_is_not_taken_again() -> None:
    async with served() as (server, client):
        server.closes = True
        for number in range(1, 4):
            assert await post(client, server.url) == b"ok"
            await server.closed.wait()
            server.closed = anyio.Event()
            assert len(server.packets) == number


async def test_a_request_that_was_cancelled_leaves_no_connection_to_another_one() -> None:
    async with served() as (server, client):
        server.answering = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(post, client, server.url)
            while not server.packets or not server.packets[0]:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        server.answering.set()
        assert await post(client, server.url) == b"ok"
    assert len(server.packets) == 2


async def test_what_can_not_be_reached_is_an_error_of_httpx() -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
    url = f"http://127.0.0.1:{port}/"
    transport = NodeTransport(httpx2.URL(url), TLS)
    async with httpx2.AsyncClient(transport=transport) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get(url)


async def test_a_proxy_of_the_environment_is_for_other_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served() as (proxy, _), served() as (node, _):
        monkeypatch.setenv("http_proxy", proxy.url)
        for url in ("http://gpu.example", node.url.rstrip("/")):
            with pytest.raises(RemoteUntrusted):  # the answer is no identity
                await fetch_identity(url, timeout_s=20)
    assert proxy.packets[0][0].startswith(b"GET http://gpu.example/identity ")
    assert node.packets[0][0].startswith(b"GET /identity ")
    assert len(proxy.packets) == len(node.packets) == 1


async def answered(answer: bytes, *, closes: bool = True) -> tuple[int, bytes, httpx2.Headers]:
    """Send a request to a server that answers with these bytes; the answer as it was read."""
    ended: list[httpx2.Response | httpx2.HTTPError] = []

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(answer)
            if not closes:
                await anyio.sleep_forever()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            transport = NodeTransport(httpx2.URL(url), TLS)
            async with httpx2.AsyncClient(transport=transport, timeout=20) as client:
                try:
                    ended.append(await client.get(url))
                except httpx2.HTTPError as problem:  # raised behind the task group, and not in it
                    ended.append(problem)
            tasks.cancel_scope.cancel()
    (got,) = ended
    if isinstance(got, httpx2.HTTPError):
        raise got
    return got.status_code, got.content, got.headers


async def test_a_long_answer_is_read_whole_however_late() -> None:
    body = bytes(range(256)) * 20_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert (await answered(head + body))[:2] == (200, body)


@pytest.mark.parametrize("closes", [True, False])
async def test_an_answer_in_chunks_is_read_to_its_end(closes: bool) -> None:
    chunked = (
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nOne: 1\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\nLate: 1\r\n\r\n"
    )
    status, body, headers = await answered(chunked, closes=closes)
    assert (status, body, headers["one"]) == (200, b"abcde", "1")
    assert "late" not in headers


async def test_an_answer_of_unknown_length_ends_with_its_connection() -> None:
    assert (await answered(b"HTTP/1.0 502 No\r\n\r\nsorry"))[:2] == (502, b"sorry")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
        ANSWER + ANSWER,
        b"HTTP/1.1 200 OK\r\nLong: " + b"x" * 1_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;" + b"x" * 1_000_000,
    ],
    ids=lambda answer: answer[:60].decode(),
)
async def test_what_is_no_whole_answer_is_an_error_of_httpx(answer: bytes) -> None:
    with pytest.raises((httpx2.RemoteProtocolError, httpx2.ReadError)):
        await answered(answer)


async def test_a_server_that_says_nothing_is_waited_for_as_long_as_asked() -> None:
    async with served() as (server, client):
        server.answering = anyio.Event()
        with pytest.raises(httpx2.ReadTimeout):
            await client.get(server.url, timeout=0.05)


async def test_a_header_can_not_begin_another_one() -> None:
    async with served() as (server, client):
        for value in ("a\r\nEvil: 1", "a\nb", "a\rb"):
            with pytest.raises(httpx2.LocalProtocolError):
                await client.get(server.url, headers={"Value": value})
        assert await post(client, server.url) == b"ok"
    assert [one for got in server.packets for one in got if not one.startswith(b"POST")] == []
