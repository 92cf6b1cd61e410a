"""Servers that send without end, or pack much into little: an error soon, and no memory."""

import gzip
import json
import socket
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ryecore.bounded_http import BodyBounds, bound_body
from ryecore.llm import (
    ChainOptions,
    FallbackChain,
    FallbackPlanEntry,
    LlmError,
    LlmProvider,
    LlmRequest,
    MediaRequest,
    MemoryMediaStore,
    Message,
)
from ryecore.llm.provider import MediaProvider
from tests.matrix import in_turn

pytest.importorskip("openai", reason="the extra openai is not installed")
pytest.importorskip("anthropic", reason="the extra anthropic is not installed")
pytest.importorskip("google.genai", reason="the extra gemini is not installed")

pytestmark = pytest.mark.anyio

MIB = 1 << 20
SENT_BYTES = 2048 * MIB
MAX_GROWTH_BYTES = 64 * MIB

Server = Callable[[socket.socket], None]
Make = Callable[..., LlmProvider]


@contextmanager
def serving(answer: Server) -> Iterator[str]:
    """A server on this machine that answers each connection's first request."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                _read_request(connection)
                answer(connection)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    one = listener.accept()[0]
                    threading.Thread(target=serve, args=(one,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _read_request(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            left = int(line.split(b":")[1]) - len(body)
            while left > 0:
                left -= len(connection.recv(65536))


def endless(
    piece: bytes, *, first: bytes = b"", kind: str = "application/json", status: str = "200 OK"
) -> Server:
    """Sends 2 GiB, as fast as it is read."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n\r\n".encode() + first)
        for _ in range(SENT_BYTES // len(piece)):
            connection.sendall(piece)

    return answer


def endless_header(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nx-long: ")
    for _ in range(SENT_BYTES // 65536):
        connection.sendall(b"x" * 65536)


def packed(coding: str, pack: Callable[[], bytes]) -> Server:
    def answer(connection: socket.socket) -> None:
        content = pack()
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: "
        connection.sendall(f"{head}{coding}\r\ncontent-length: {len(content)}\r\n\r\n".encode())
        connection.sendall(content)

    return answer


@cache
def bomb() -> bytes:
    """64 MiB in 64 KiB."""
    return gzip.compress(bytes(64 * MIB), 1)


EVENTS = "text/event-stream"
BLOCK = b"x" * 65536
SERVERS: dict[str, tuple[Server, str]] = {
    "a body": (endless(BLOCK), "more than 2 MiB"),
    "a text": (endless(BLOCK, first=b'{"choices":[{"message":{"content":"'), "more than 2 MiB"),
    "an event": (endless(BLOCK, first=b"data: ", kind=EVENTS), "an event of more than 2 MiB"),
    "lines": (endless(b"data: x\n" * 8192, kind=EVENTS), "lines"),
    "lines that are no events": (endless(b"x\n" * 32768), "lines"),
    "comments": (endless(b": ping\n\n" * 8192, kind=EVENTS), "stream of more than 8 MiB"),
    "values": (endless(b"{}," * 20000, first=b"["), "JSON values"),
    "an event of values": (
        endless(b"[]," * 20000, first=b"data: [", kind=EVENTS),
        "JSON values",
    ),
    "a header": (endless_header, ""),
    "gzip": (packed("gzip", bomb), "compressed"),
    "deflate": (packed("deflate", lambda: zlib.compress(bytes(64 * MIB), 1)), "compressed"),
    "gzip twice": (packed("gzip, gzip", lambda: gzip.compress(bomb())), "compressed"),
    "br": (packed("br", lambda: BLOCK), "compressed"),
    "zstd": (packed("Zstd", lambda: BLOCK), "compressed"),
}
"""What a server sends, and what the error says of it."""


def anthropic(url: str, **options: int) -> LlmProvider:
    from ryecore.providers.anthropic import AnthropicProvider

    return AnthropicProvider(base_url=url, **options)


def chat(url: str, **options: int) -> LlmProvider:
    from ryecore.providers.openai import OpenAIProvider

    return OpenAIProvider(base_url=url, api="chat", **options)


def responses(url: str, **options: int) -> LlmProvider:
    from ryecore.providers.openai import OpenAIProvider

    return OpenAIProvider(base_url=url, api="responses", **options)


def gemini(url: str, **options: int) -> LlmProvider:
    from ryecore.providers.gemini import GeminiProvider

    return GeminiProvider(base_url=url, **options)


PROVIDERS = [anthropic, chat, responses, gemini]
ASKED = LlmRequest("a-model", (Message.user("Hello?"),))


async def _stream(provider: LlmProvider) -> None:
    async for _ in provider.stream(ASKED, key="a-key"):
        pass


async def _generate(provider: LlmProvider) -> None:
    await provider.generate(ASKED, key="a-key")


async def _ask_for_media(provider: LlmProvider) -> None:
    assert isinstance(provider, MediaProvider)
    request = MediaRequest("a-model", "The sea", "image/*")
    await provider.generate_media(request, key="a-key", media=MemoryMediaStore())


class Memory:
    """How much memory this process holds at most, since it was begun to look."""

    def __init__(self) -> None:
        # The kernel counts the most that there was; it begins anew.
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._now()

    @property
    def growth_bytes(self) -> int:
        return self._now() - self._before

    def _now(self) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(one.split()[1]) * 1024 for one in lines if one.startswith("VmHWM"))


async def _failure(
    provider: Any, ask: Callable[[LlmProvider], Awaitable[None]]
) -> tuple[LlmError, int]:
    """How a call fails, and by how much memory has grown at most."""
    memory = Memory()
    try:
        with anyio.fail_after(60), pytest.raises(LlmError) as raised:
            await ask(provider)
    finally:
        await provider.aclose()
    return raised.value, memory.growth_bytes


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize(("name", "make"), in_turn([*SERVERS], PROVIDERS))
async def test_an_answer_without_bounds_is_an_error(name: str, make: Make) -> None:
    """All adapters have the same transport, which holds the bounds."""
    answer, said = SERVERS[name]
    for ask in (_stream, _generate):
        with serving(answer) as url:
            error, _ = await _failure(make(url, max_answer_bytes=2 * MIB), ask)

        assert error.kind == "unavailable"
        assert said in error.message


@pytest.mark.parametrize(
    ("name", "make"),
    in_turn(["a text", "an event", "an event of values", "gzip twice"], PROVIDERS),
)
async def test_an_answer_without_bounds_takes_no_memory(name: str, make: Make) -> None:
    with serving(endless_header) as url:
        await _failure(make(url), _stream)  # imports what an adapter imports at its first call
    with serving(SERVERS[name][0]) as url:
        _, growth_bytes = await _failure(make(url), _stream)

    assert growth_bytes < MAX_GROWTH_BYTES


@pytest.mark.parametrize(
    ("make", "ping"),
    [
        *((make, b": ping\n\n") for make in PROVIDERS),
        (anthropic, b'event: ping\ndata: {"type": "ping"}\n\n'),
        (responses, b'data: {"type": "keepalive"}\n\n'),
        (chat, b'data: {"choices": [{"index": 0, "delta": {"content": ""}}]}\n\n'),
    ],
)
async def test_a_server_that_only_keeps_the_connection_alive_has_stalled(
    make: Make, ping: bytes
) -> None:
    ended = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 200 OK\r\ncontent-type: {EVENTS}\r\n\r\n".encode())
        while not ended.wait(0.02):
            connection.sendall(ping)

    def key_for(provider: str) -> str:
        return "a-key"

    with serving(answer) as url:
        provider: Any = make(url)
        options = ChainOptions(key_for, stall_s=0.5)
        chain = FallbackChain([FallbackPlanEntry(provider, "a-model")], options)
        with anyio.fail_after(30), pytest.raises(LlmError) as raised:
            await chain.stream(ASKED)
        ended.set()
        await provider.aclose()

    assert raised.value.kind == "unavailable"
    assert "sent nothing for 0.5 s" in raised.value.message


@pytest.mark.parametrize("make", PROVIDERS)
async def test_the_status_of_an_endless_error_is_told(make: Make) -> None:
    page = endless(BLOCK, kind="text/html", status="404 Not Found")
    for ask in (_stream, _generate):
        with serving(page) as url:
            error, growth_bytes = await _failure(make(url), ask)

        assert (error.kind, error.status) == ("bad_request", 404)
        assert "404" in error.message
        assert "base_url" in error.next_step
        assert growth_bytes < MAX_GROWTH_BYTES


@pytest.mark.parametrize("make", [chat, gemini])
async def test_media_without_bounds_are_an_error_and_no_memory(make: Make) -> None:
    for name in ("a text", "gzip"):
        answer, _ = SERVERS[name]
        with serving(answer) as url:
            error, growth_bytes = await _failure(make(url), _ask_for_media)

        assert error.kind == "unavailable"
        assert growth_bytes < MAX_GROWTH_BYTES


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_video_without_end_is_an_error_and_no_memory() -> None:
    """Google's SDK looks after videos on asyncio alone."""

    def answer(connection: socket.socket) -> None:
        video = {"type": "video", "uri": "files/a-video", "mime_type": "video/mp4"}
        job = {
            "id": "a-job",
            "status": "completed",
            "steps": [{"type": "model_output", "content": [video]}],
        }
        body = json.dumps(job).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        _read_request(connection)
        endless(b"x,\n" * 20000, kind="video/mp4")(connection)

    async def poll(provider: LlmProvider) -> None:
        assert isinstance(provider, MediaProvider)
        await provider.poll_media("a-job", key="a-key", media=MemoryMediaStore())

    with serving(answer) as url:
        error, growth_bytes = await _failure(gemini(url), poll)

    assert "more than 24 MiB" in error.message
    assert growth_bytes < MAX_GROWTH_BYTES


class Pieces(httpx2.AsyncByteStream):
    """A body that comes in pieces of two bytes."""

    def __init__(self, size_bytes: int) -> None:
        self._count = size_bytes // 2

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(self._count):
            yield b"xx"


async def test_small_pieces_are_joined() -> None:
    response = httpx2.Response(200, stream=Pieces(MIB))
    bound_body(response, BodyBounds(2 * MIB))

    pieces = [one async for one in response.aiter_raw()]

    assert sum(map(len, pieces)) == MIB
    assert len(pieces) == 16


def _lines(stream: bytes) -> list[bytes]:
    return [one for one in stream.splitlines() if one and not one.startswith(b":")]


def _events(stream: bytes) -> list[list[bytes]]:
    """The events of a stream, as its specification tells them apart: by a line that is empty."""
    events: list[list[bytes]] = [[]]
    for line in stream.splitlines():
        if not line:
            events.append([])
        elif not line.startswith(b":"):
            events[-1].append(line)
    return [one for one in events if one]


@given(
    st.lists(
        st.sampled_from([b"data: a", b": c", b"\n", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r"]),
        max_size=30,
    ),
    st.integers(1, 7),
)
@example([b"data: a", b"\n", b": c", b"\r\n\r\n", b"data: a"], 6)
@example([b": c", b"\n", b": c", b"\n", b"data: a", b"\r\n", b": c", b"\n\n", b"data: a"], 7)
@example([b"data: a", b"\r\r", b": c", b"\n", b"data: a", b"\n\n"], 7)
def test_a_stream_comes_in_whole_events_without_comments(
    lines: list[bytes], size_bytes: int
) -> None:
    sent = b"".join(lines)

    class Cut(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for at in range(0, len(sent), size_bytes):
                yield sent[at : at + size_bytes]

    async def read() -> list[bytes]:
        response = httpx2.Response(200, headers={"content-type": EVENTS}, stream=Cut())
        bound_body(response, BodyBounds(1024))
        return [one async for one in response.aiter_raw()]

    pieces = anyio.run(read)

    assert _lines(b"".join(pieces)) == _lines(sent)
    assert _events(b"".join(pieces)) == _events(sent)
    assert all(one.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")) for one in pieces[:-1])
