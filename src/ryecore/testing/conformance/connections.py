"""Cases: cut streams, hangs, cancellation, many at once, and one loop after another."""

from collections.abc import AsyncGenerator
from typing import Final

import anyio

from ryecore.llm import (
    LlmError,
    LlmResult,
    StreamEnd,
    StreamFold,
    TextDelta,
    TextPart,
    ToolCallPart,
    Usage,
)
from ryecore.testing.conformance.bench import Bench, Cases, case, check, close, equal
from ryecore.testing.conformance.script import HttpResponse, Script, SeenRequest
from ryecore.testing.conformance.server import WireServer

__all__ = ["ConnectionCases"]

_TALE: Final = Script((TextPart("Once upon a time there was a tide."),), deltas=8)
_AT_ONCE: Final = 50
_GONE_S: Final = 1.0
_BREAKS: Final = 7


class ConnectionCases(Cases):
    """Cut streams, hangs, cancellation, many at once, and one loop after another."""

    @case()
    async def test_a_stream_cut_at_every_byte(self, at: Bench) -> None:
        """A cut stream is an error, unless the whole answer had arrived."""
        pieces = tuple(at.wire.stream(_answer(at)))
        media_type = at.wire.stream_media_type
        at.server.answer(HttpResponse(pieces, media_type=media_type))
        whole = await at.streamed()
        step = at.cut_step if at.backend == "asyncio" else 11 * at.cut_step
        for stop_at in range(0, sum(map(len, pieces)), step):
            at.server.answer(
                HttpResponse(pieces, media_type=media_type, stop_at=stop_at, then="end")
            )
            await _is_no_answer(at, whole, f"cut after {stop_at} bytes")
            if stop_at % (_BREAKS * step) == 0:
                at.server.answer(HttpResponse(pieces, media_type=media_type, stop_at=stop_at))
                await _is_no_answer(at, whole, f"broken after {stop_at} bytes")

    @case()
    async def test_a_whole_answer_cut_short(self, at: Bench) -> None:
        """A whole answer that breaks off is an error."""
        body = at.wire.whole(_answer(at))
        for stop_at in range(0, len(body) - 1, 13 * at.cut_step):
            at.server.answer(HttpResponse((body,), stop_at=stop_at))
            error = await at.failed(stream=False)
            equal(error.kind, "unavailable", f"the kind of error after {stop_at} bytes")

    @case()
    async def test_a_hang_ends_with_its_caller(self, at: Bench) -> None:
        """A call that is cancelled while it waits ends, and its connection is closed."""
        body = tuple(at.wire.stream(_TALE))
        first = sum(map(len, body[:4]))
        for stop_at in (-1, 0, first):
            reply = HttpResponse(
                body, media_type=at.wire.stream_media_type, stop_at=stop_at, then="hang"
            )
            for stream in (True, False):
                at.server.answer(reply)
                await _cancelled(at, stream)

    @case()
    async def test_a_stream_that_is_left_early(self, at: Bench) -> None:
        """Closing the stream closes its connection."""
        body = tuple(at.wire.stream(_TALE))
        stop_at = sum(map(len, body)) - 1
        at.server.answer(
            HttpResponse(body, media_type=at.wire.stream_media_type, stop_at=stop_at, then="hang")
        )
        stream = at.provider.stream(at.request(), key="k", media=at.media)
        async for chunk in stream:
            if isinstance(chunk, TextDelta):
                break
        check(isinstance(stream, AsyncGenerator), "The stream isn't an async generator.")
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()

        await at.wait_until(lambda: not at.server.connections, "the connection closed", _GONE_S)

    @case()
    async def test_many_at_once(self, at: Bench) -> None:
        """Fifty calls over one provider get their own answers, with their own keys."""
        at.server.answer(_echo)
        answers: dict[int, str] = {}

        async def ask(number: int) -> None:
            result = await at.streamed(at.request(f"Number {number}"), f"test-key-{number}")
            answers[number] = result.text

        async with anyio.create_task_group() as tasks:
            for number in range(_AT_ONCE):
                tasks.start_soon(ask, number)

        equal(
            answers,
            {number: f"Number {number} for test-key-{number}" for number in range(_AT_ONCE)},
            "the answers",
        )

    @case()
    async def test_closing_leaves_no_connection(self, at: Bench) -> None:
        """A provider that can be closed leaves nothing open, and can be closed twice."""
        at.server.answer(_TALE)
        await at.streamed()
        await at.generated()
        check(hasattr(at.provider, "aclose"), "The provider has no aclose().")
        await close(at.provider)
        await close(at.provider)

        await at.wait_until(lambda: not at.server.connections, "all connections closed", _GONE_S)

    def test_one_loop_after_another(self) -> None:
        """One provider serves one event loop after another."""
        with WireServer(self.wire) as server:
            server.answer(_TALE)
            kept: list[Bench] = []
            for backend in self.backends * 2:
                anyio.run(self._in_a_new_loop, server, kept, backend=backend)
            if server.problems:
                raise server.problems[0]

    async def _in_a_new_loop(self, server: WireServer, kept: list[Bench]) -> None:
        if not kept:
            provider = self.make_provider(server.base_url)
            kept.append(Bench(server, provider, self, "asyncio"))
        equal((await kept[0].streamed()).text, "Once upon a time there was a tide.", "the text")
        equal((await kept[0].generated()).text, "Once upon a time there was a tide.", "the text")


def _answer(at: Bench) -> Script:
    """Return a short answer with all features of the vendor."""
    call = ToolCallPart("call_1", "look_up", '{"word": "tide"}')
    if "tools" in at.wire.lacks:
        return Script((TextPart("Füße."),), "length", Usage(11, 7), deltas=2)
    return Script((TextPart("Füße."), call), "tool_use", Usage(11, 7), deltas=2)


def _echo(seen: SeenRequest) -> Script:
    """Return an answer with the request's text and key."""
    text = "".join(part.text for _, part in seen.flat if isinstance(part, TextPart))
    return Script((TextPart(f"{text} for {seen.key}"),), deltas=4)


async def _is_no_answer(at: Bench, whole: LlmResult, what: str) -> None:
    """Check that a cut stream raises `unavailable`, unless its answer is complete."""
    fold = StreamFold(at.provider.provider_id, at.model)
    try:
        async for chunk in at.provider.stream(at.request(), key="k", media=at.media):
            fold.add(chunk)
    except LlmError as error:
        equal(error.kind, "unavailable", f"the kind of error of a stream {what}")
        check(not isinstance(fold.end, StreamEnd), f"A stream {what} ends, and raises then.")
        return
    check(fold.end is not None, f"A stream {what} ends without an error.")
    equal(fold.result(), whole, f"the answer of a stream {what}")


async def _cancelled(at: Bench, stream: bool) -> None:
    """Cancel a call as soon as its request has arrived."""
    at.server.forget()
    over = anyio.Event()

    async def ask() -> None:
        try:
            await (at.streamed() if stream else at.generated())
        finally:
            over.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await at.wait_until(lambda: bool(at.server.raw), "the request arrived", 10.0)
        tasks.cancel_scope.cancel()
    check(over.is_set(), "A cancelled call lives on.")
    await at.wait_until(lambda: not at.server.connections, "the connection closed", _GONE_S)
