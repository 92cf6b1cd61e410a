"""What listens for HTTP requests."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from ryecore.serving import listen, serve_app

_PIECE, _PIECES = b"0123456789" * 5_000, 40


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn's own loop."""
    return "asyncio"


@asynccontextmanager
async def _served(go_on: anyio.Event, head_timeout_s: float = 20.0) -> AsyncIterator[int]:
    """Serve an answer at once, and one that waits; yields the port."""

    async def at_once(_: object) -> PlainTextResponse:
        return PlainTextResponse("at once")

    async def later(_: object) -> PlainTextResponse:
        await go_on.wait()
        return PlainTextResponse("later")

    async def long(_: object) -> StreamingResponse:
        return StreamingResponse(iter([_PIECE] * _PIECES))

    async def names(request: Request) -> PlainTextResponse:
        body = await request.body()
        return PlainTextResponse(f"{len(body)} {' '.join(request.headers)}")

    routes = [
        Route("/", at_once),
        Route("/later", later),
        Route("/long", long),
        Route("/names", names, methods=["POST"]),
    ]
    app = Starlette(routes=routes)
    listening, ready = listen("127.0.0.1", 0), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            partial(serve_app, app, listening, head_timeout_s=head_timeout_s, announce=ready.set)
        )
        await ready.wait()
        yield listening.getsockname()[1]
        tasks.cancel_scope.cancel()


async def _read(stream: SocketStream, until: bytes = b"") -> bytes:
    """Read up to some bytes, or to the end of the connection."""
    text = b""
    with anyio.fail_after(30):
        while not until or until not in text:
            try:
                text += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                break
    return text


@pytest.mark.anyio
async def test_a_connection_without_a_whole_request_is_closed_and_no_other() -> None:
    go_on = anyio.Event()
    async with _served(go_on, head_timeout_s=0.2) as port:
        silent, half, second, waiting = [
            await anyio.connect_tcp("127.0.0.1", port) for _ in range(4)
        ]
        await half.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        await waiting.send(b"GET /later HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await second.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        first_answer = await _read(second, b"at once")
        await second.send(b"GET / HTTP/1.1\r\n")

        closed = [await _read(one) for one in (silent, half, second)]
        go_on.set()
        answer = await _read(waiting)
        for one in (silent, half, second, waiting):
            await one.aclose()

    assert closed == [b"", b"", b""]
    assert first_answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"later")


@pytest.mark.anyio
async def test_a_short_answer_leaves_in_one_packet_and_a_long_one_whole() -> None:
    async with _served(anyio.Event()) as port:
        stream = await anyio.connect_tcp("127.0.0.1", port)
        await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        short = await stream.receive()
        await stream.send(b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        long = await _read(stream)
        await stream.aclose()

    assert short.startswith(b"HTTP/1.1 200")
    assert short.endswith(b"at once")
    assert long.count(_PIECE) == _PIECES
    assert long.endswith(b"0\r\n\r\n")


def test_an_answer_in_two_parts_does_not_wait_for_an_acknowledgement() -> None:
    with listen("127.0.0.1", 0) as listening:
        caller = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with caller, accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def _answer_of(port: int, *pieces: bytes) -> bytes:
    """Send pieces of a request, and return the whole answer."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for piece in pieces:
            try:
                await stream.send(piece)
                await anyio.lowlevel.checkpoint()
            except anyio.BrokenResourceError:  # it is closed already
                break
        return await _read(stream)


_CHUNKED = (
    b"POST /names HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "begin",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nHost: a\r\nLong: ",
        _CHUNKED + b"0\r\nLong: ",
        _CHUNKED + b"5;long=",
    ],
    ids=["path", "header", "trailer", "chunk header"],
)
async def test_what_stands_around_a_body_is_bounded(begin: bytes) -> None:
    async with _served(anyio.Event()) as port:
        answer = await _answer_of(port, begin, *[b"x" * 10_000] * 20)

    assert answer.startswith(b"HTTP/1.1 400") or answer == b"", answer[:100]


@pytest.mark.anyio
async def test_a_long_body_is_read_whole_and_a_trailer_is_no_header() -> None:
    body = [b"10000\r\n" + b"x" * 0x10000 + b"\r\n"] * 8
    async with _served(anyio.Event()) as port:
        answer = await _answer_of(port, _CHUNKED, *body, b"0\r\nLate: 1\r\n\r\n")

    assert answer.endswith(b"524288 host transfer-encoding connection"), answer


@pytest.mark.anyio
@pytest.mark.parametrize("hosts", [b"", b"Host: a\r\nHost: b\r\n"], ids=["none", "two"])
async def test_a_request_names_one_host(hosts: bytes) -> None:
    async with _served(anyio.Event()) as port:
        answer = await _answer_of(port, b"GET / HTTP/1.1\r\n" + hosts + b"\r\n")

    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.anyio
async def test_requests_that_come_at_once_are_answered_in_turn_if_they_are_few() -> None:
    one = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    async with _served(anyio.Event()) as port:
        few = await _answer_of(port, one * 9 + last)
        many = await _answer_of(port, one * 10_000)

    assert few.count(b"at once") == 10
    assert many.count(b"at once") < 100
