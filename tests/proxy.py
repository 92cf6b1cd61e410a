"""A proxy between a caller and a node that loses, cuts, delays, reorders, repeats and changes.

It speaks real HTTP/1.1 on loopback, in a thread with an event loop of its own: tests on asyncio and
on trio use it, and so do other processes. Each request has a connection of its own.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Semaphore, Thread
from typing import Final, Self

__all__ = ["Fault", "Hold", "Proxy", "Request"]

_WAIT_S: Final = 30.0
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True)
class Request:
    """A request that reached the proxy.

    Attributes:
        method: Its method.
        target: Its path and query, as sent.
        head: Its head, as it came.
        body: Its body.
    """

    method: str
    target: str
    head: bytes
    body: bytes = field(repr=False)


class Hold:
    """A place where a request or an answer waits until the test releases it."""

    def __init__(self) -> None:
        self._reached = Event()
        self._released = Event()

    def reached(self) -> None:
        """Wait until something is held here."""
        assert self._reached.wait(_WAIT_S), "Nothing came to where it was to be held."

    def release(self) -> None:
        """Let it pass, and whatever comes later."""
        self._released.set()

    async def keep(self) -> None:
        """Wait for `release`."""
        self._reached.set()
        await asyncio.to_thread(self._released.wait, _WAIT_S)


@dataclass(frozen=True)
class Fault:
    """What happens to a request and its answer, in this order.

    Attributes:
        hold_request: Where the request waits.
        lose_request: Whether the connection ends before the node sees anything.
        answer: An answer in place of the node's, which sees nothing.
        change_request: Changes the request's head and body.
        cut_request_bytes: How much of the body reaches the node, before the connection ends.
        repeat: Whether the node gets the request twice; the second answer is passed on.
        lose_answer: Whether the connection ends after the node has answered.
        hold_answer: Where the answer waits, once it has begun.
        change_answer: Changes the whole answer, head and body.
        answer_to: Makes another answer from the request and the whole answer.
        cut_answer_bytes: How much of the answer, its head included, arrives before the end.
    """

    hold_request: Hold | None = None
    lose_request: bool = False
    answer: bytes | None = None
    change_request: Callable[[bytes, bytes], tuple[bytes, bytes]] | None = None
    cut_request_bytes: int | None = None
    repeat: bool = False
    lose_answer: bool = False
    hold_answer: Hold | None = None
    change_answer: Callable[[bytes], bytes] | None = None
    answer_to: Callable[[Request, bytes], bytes] | None = None
    cut_answer_bytes: int | None = None


@dataclass
class _Rule:
    pattern: re.Pattern[str]
    fault: Fault
    times: int


class Proxy:
    """A proxy for a server on loopback, while its context lasts.

    Attributes:
        requests: The requests so far, in the order in which they came.
        port: Where the proxy listens.
    """

    def __init__(self, target_port: int) -> None:
        self.requests: list[Request] = []
        self.port = 0
        self._target_port = target_port
        self._rules: list[_Rule] = []
        self._is_down = False
        self._refused = Semaphore(0)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, daemon=True)
        self._started = Event()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The URL of the proxy."""
        return f"http://127.0.0.1:{self.port}"

    def fail(self, pattern: str, fault: Fault, *, times: int = 1) -> None:
        """Apply a fault to the next requests whose `METHOD target` begins as the pattern says.

        Args:
            pattern: A regular expression.
            fault: What happens to them.
            times: To how many.
        """
        self._rules.append(_Rule(re.compile(pattern), fault, times))

    def stop_failing(self) -> None:
        """Apply no fault to further requests."""
        self._rules.clear()

    def count(self, pattern: str) -> int:
        """Return how many requests have come whose `METHOD target` begins as the pattern says."""
        return sum(bool(re.match(pattern, f"{one.method} {one.target}")) for one in self.requests)

    def cut(self) -> None:
        """End all connections."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(_WAIT_S)

    @contextmanager
    def down(self) -> Iterator[None]:
        """End all connections, and each new one at once, for the time of a context."""
        self._is_down = True
        self.cut()
        try:
            yield
        finally:
            self._is_down = False

    def wait_for_refusal(self) -> None:
        """Wait until a connection was made and ended because the network is down."""
        assert self._refused.acquire(timeout=_WAIT_S), "Nobody called while the network was down."

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(_WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._started.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for rule in self._rules:
            for hold in (rule.fault.hold_request, rule.fault.hold_answer):
                if hold is not None:
                    hold.release()
        await self._cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            if self._is_down:
                self._refused.release()
            else:
                with suppress(OSError, asyncio.IncompleteReadError):
                    await self._serve(reader, writer)
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    def _fault_for(self, request: Request) -> Fault:
        for rule in self._rules:
            if rule.times and rule.pattern.match(f"{request.method} {request.target}"):
                rule.times -= 1
                return rule.fault
        return Fault()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await _read_body(reader, writer, head)
        method, target = head.split(b" ", 2)[:2]
        request = Request(method.decode("latin-1"), target.decode("latin-1"), head, body)
        self.requests.append(request)
        fault = self._fault_for(request)
        if fault.answer_to is not None:
            fault = replace(fault, change_answer=partial(fault.answer_to, request))
        if fault.hold_request is not None:
            await fault.hold_request.keep()
        if fault.lose_request:
            return
        if fault.answer is not None:
            await _send(writer, fault.answer)
            return
        if fault.change_request is not None:
            head, body = fault.change_request(head, body)
        await self._pass_on(_one_request(head, body), body, fault, reader, writer)

    async def _pass_on(
        self,
        head: bytes,
        body: bytes,
        fault: Fault,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if fault.repeat:
            async with self._to_node() as (answers, node):
                await _send(node, head + body)
                await answers.read()
        async with self._to_node() as (answers, node):
            if fault.cut_request_bytes is not None:
                await _send(node, head + body[: fault.cut_request_bytes])
                return
            await _send(node, head + body)
            answer = asyncio.ensure_future(_answer(answers, writer, fault))
            hung_up = asyncio.ensure_future(reader.read(1))
            try:
                await asyncio.wait({answer, hung_up}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    answer.result()
            finally:
                for task in (answer, hung_up):
                    task.cancel()
                await asyncio.gather(answer, hung_up, return_exceptions=True)

    def _to_node(self) -> "_Connection":
        return _Connection(self._target_port, self._open)


class _Connection:
    def __init__(self, port: int, opened: set[asyncio.StreamWriter]) -> None:
        self._port = port
        self._opened = opened

    async def __aenter__(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._opened.add(self._writer)
        return reader, self._writer

    async def __aexit__(self, *_: object) -> None:
        self._opened.discard(self._writer)
        self._writer.transport.abort()


async def _answer(
    answers: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault
) -> None:
    if fault.lose_answer:
        await answers.read()
        return
    chunk = await answers.read(-1 if fault.change_answer is not None else _CHUNK_BYTES)
    if fault.hold_answer is not None:
        await fault.hold_answer.keep()
    if fault.change_answer is not None:
        chunk = fault.change_answer(chunk)
    left = fault.cut_answer_bytes
    while chunk:
        if left is not None:
            chunk = chunk[:left]
            left -= len(chunk)
        await _send(writer, chunk)
        if left == 0:
            return
        chunk = await answers.read(_CHUNK_BYTES)


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.transport.set_write_buffer_limits(0)  # `drain` waits until the kernel has all
    writer.write(data)
    await writer.drain()


async def _read_body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes
) -> bytes:
    if re.search(rb"\r\nexpect: *100-continue\r\n", head, re.IGNORECASE):
        await _send(writer, b"HTTP/1.1 100 Continue\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)\r\n", head, re.IGNORECASE)
    if length is not None:
        return await reader.readexactly(int(length[1]))
    if not re.search(rb"\r\ntransfer-encoding: *chunked\r\n", head, re.IGNORECASE):
        return b""
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


def _one_request(head: bytes, body: bytes) -> bytes:
    """Return a head that says the body's length, and that the connection ends with the answer."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    framing = re.compile(rb"(connection|content-length|transfer-encoding|expect):", re.IGNORECASE)
    kept = [line for line in lines if not framing.match(line)]
    kept += [b"Connection: close", b"Content-Length: %d" % len(body)]
    return b"\r\n".join(kept) + b"\r\n\r\n"
