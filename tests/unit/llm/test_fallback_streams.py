"""Streams under a fallback chain: cut, stalled, repeated, too long, and always closed."""

import asyncio

import anyio
import pytest

from ryecore.llm import (
    Capabilities,
    FallbackPlanEntry,
    LlmError,
    ReasoningDelta,
    StreamEnd,
    TextDelta,
    ToolCallStart,
    Usage,
    UsageUpdate,
)
from tests.unit.llm.providers import HELLO, REQUEST, Asked, Provider

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]
BROKEN = LlmError("The connection broke.", kind="unavailable")


@pytest.mark.parametrize(
    "content", [TextDelta("Héllo"), ReasoningDelta("hm"), ToolCallStart(0, "1", "look")]
)
@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        ((BROKEN,), "unavailable"),
        ((LlmError("Slow down.", kind="rate_limit", retry_after_s=1),), "rate_limit"),
        ((LlmError("Who?", kind="auth"),), "auth"),
        ((ValueError("odd"),), "unknown"),
        (("no chunk at all",), "unknown"),
        ((), "unavailable"),
        ((StreamEnd("error"),), "unavailable"),
        ((anyio.sleep_forever,), "unavailable"),
    ],
)
async def test_after_content_nobody_is_asked_again(content, ending, kind):
    first = Provider("a", (UsageUpdate(Usage(7)), content, *ending), HELLO)
    second = Provider("b", HELLO)
    asked = Asked(
        FallbackPlanEntry(first, "m", 5), second, on_auth_error=lambda _: True, stall_s=0.05
    )

    with pytest.raises(LlmError) as caught:
        await asked.stream()

    assert caught.value.kind == kind
    assert (first.opened, first.closed, second.opened) == (1, 1, 0)
    (record,) = asked.records
    assert (record.outcome, record.kind, record.usage) == ("cut", kind, Usage(7))
    assert record.text_bytes == len(getattr(content, "text", "").encode())


@pytest.mark.parametrize(
    "script", [(), (BROKEN,), (StreamEnd("error"),), (TextDelta(""), UsageUpdate(Usage(1)))]
)
async def test_before_content_a_broken_stream_is_tried_again(script):
    provider = Provider("a", script, HELLO)
    asked = Asked(FallbackPlanEntry(provider, "m", 2))
    assert (await asked.stream()).text == "Hello"
    assert asked.records[0].kind == "unavailable"


async def test_a_provider_that_says_nothing_is_left_for_the_next():
    provider = Provider("a", (anyio.sleep_forever,))
    asked = Asked(provider, Provider("b", HELLO), stall_s=0.05)
    assert (await asked.stream()).provider == "b"
    assert provider.closed == 1
    assert asked.records[0].reason == "a sent nothing for 0.05 s."


async def test_a_slow_stream_is_no_stall_while_chunks_come():
    async def pause():
        await anyio.sleep(0.1)

    # Longer than the limit in all, and each pause far below it on a busy machine too.
    slow = [step for _ in range(12) for step in (pause, TextDelta("."))]
    asked = Asked(Provider("a", (*slow, StreamEnd("stop"))), stall_s=1.0)
    assert (await asked.stream()).text == "." * 12


async def test_nothing_counts_after_the_end():
    after = (StreamEnd("length"), TextDelta("more"), BROKEN)
    provider = Provider("a", (*HELLO, *after))
    asked = Asked(provider)
    result = await asked.stream()
    assert (result.text, result.stop_reason) == ("Hello", "stop")
    assert tuple(asked.chunks) == HELLO
    assert provider.closed == 1


async def test_an_error_after_the_end_spoils_nothing():
    provider = Provider("a", (*HELLO, BROKEN))
    assert (await Asked(provider).stream()).text == "Hello"
    assert provider.closed == 1


async def test_a_stream_may_do_its_last_work_after_the_end():
    done = []

    async def work():
        await anyio.sleep(0.01)
        done.append(True)

    assert (await Asked(Provider("a", (*HELLO, work))).stream()).text == "Hello"
    assert done == [True]


@pytest.mark.parametrize("hangs", ["after its end", "while it is closed"])
async def test_a_provider_that_hangs_at_the_end_holds_the_call_a_bounded_time(hangs, monkeypatch):
    monkeypatch.setattr("ryecore.llm.attempt._END_S", 0.05)
    monkeypatch.setattr("ryecore.llm.attempt._CLOSE_S", 0.05)

    class Hanging(Provider):
        async def stream(self, request, *, key, media=None):
            try:
                for chunk in HELLO:
                    yield chunk
                if hangs == "after its end":
                    await anyio.sleep_forever()
                yield TextDelta("more")
            finally:
                self.closed += 1
                if hangs == "while it is closed":
                    await anyio.sleep_forever()

    provider = Hanging("a")
    with anyio.fail_after(5):
        assert (await Asked(provider).stream()).text == "Hello"
    assert provider.closed == 1


async def test_a_provider_that_makes_something_of_a_stall_has_still_stalled():
    class Translating(Provider):
        async def stream(self, request, *, key, media=None):
            try:
                await anyio.sleep_forever()
                yield TextDelta("never")
            except BaseException:
                raise LlmError("My own words.", kind="bad_request") from None

    asked = Asked(Translating("a"), Provider("b", HELLO), stall_s=0.05)
    assert (await asked.stream()).provider == "b"
    assert asked.records[0].kind == "unavailable"


async def test_an_iterator_that_is_no_generator_is_closed_too():
    class Iterating:
        provider_id = "a"
        closed = 0

        def capabilities(self, model):
            return Capabilities()

        def stream(self, request, *, key, media=None):
            self.left = iter(HELLO)
            return self

        def __aiter__(self):
            return self

        async def __anext__(self):
            try:
                return next(self.left)
            except StopIteration:
                raise StopAsyncIteration from None

        async def aclose(self):
            self.closed += 1

    provider = Iterating()
    assert (await Asked(provider).stream(REQUEST)).text == "Hello"
    assert provider.closed == 1


async def test_a_stream_that_never_waits_can_be_cancelled():
    async def stream(request, *, key, media=None):
        while True:
            yield TextDelta("")

    provider = Provider("a")
    provider.stream = stream

    with anyio.move_on_after(0.05) as scope:
        await Asked(provider).stream()

    assert scope.cancelled_caught


async def stray():
    raise asyncio.CancelledError


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_of_the_providers_own_is_its_failure_and_not_the_callers():
    broken = Provider("a", (stray,))
    asked = Asked(broken, Provider("b", HELLO))

    assert (await asked.stream()).text == "Hello"
    assert [(one.outcome, one.kind) for one in asked.records] == [
        ("error", "unavailable"),
        ("success", None),
    ]
    assert (await Asked(Provider("c", (*HELLO, stray))).stream()).text == "Hello"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_of_the_providers_own_while_it_is_closed_spoils_nothing():
    class Chunks:
        def __init__(self):
            self.left = list(HELLO)

        async def __anext__(self):
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop(0)

        aclose = staticmethod(stray)

    provider = Provider("a")
    provider.stream = lambda request, *, key, media=None: Chunks()

    assert (await Asked(provider).stream()).text == "Hello"
