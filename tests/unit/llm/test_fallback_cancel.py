"""A cancel at every point where a call waits: by token, by scope, and by the loop's own task."""

import asyncio
import threading
from types import coroutine

import anyio
import anyio.lowlevel
import pytest

from ryecore import CancelToken
from ryecore.llm import GO, Capabilities, FallbackPlanEntry, LlmError, StreamEnd, TextDelta, Usage
from tests.unit.llm.providers import HELLO, Asked, Provider, failing

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@coroutine
def counted(running, at, cancel):
    """Await a coroutine, and cancel when it waits for the given time."""
    waits = 0
    step, given = running.send, None
    while True:
        try:
            wanted = step(given)
        except StopIteration as done:
            return done.value, waits
        waits += 1
        if waits == at:
            cancel()
        try:
            step, given = running.send, (yield wanted)
        except BaseException as problem:
            step, given = running.throw, problem


async def breathe():
    await anyio.lowlevel.checkpoint()


class Careful(Provider):
    """It waits in its `finally` as well, as a connection does that is closed."""

    async def stream(self, request, *, key, media=None):
        inner = super().stream(request, key=key, media=media)
        try:
            async for chunk in inner:
                await breathe()
                yield chunk
        finally:
            await inner.aclose()
            await breathe()


class Long:
    """A call with every kind of wait in it: hooks, backoff, a refresh, a failover, a stream."""

    def __init__(self):
        async def key_for(provider_id):
            await breathe()
            return "key"

        async def renew(provider_id):
            await breathe()
            return True

        async def check(entry, request, number):
            await breathe()
            return GO

        self.providers = (
            Careful("a", (breathe, *failing("rate_limit")), (breathe, *failing("auth"))),
            Careful("b", failing("auth"), (breathe, *HELLO[:2], breathe, HELLO[2], breathe)),
        )
        plan = [FallbackPlanEntry(provider, "m", 2) for provider in self.providers]
        self.asked = Asked(*plan, key_for=key_for, on_auth_error=renew, before_attempt=check)
        self.providers[0].scripts[1:] = [(breathe, *failing("unavailable"))]

    def assert_nothing_is_left(self):
        for provider in self.providers:
            assert provider.opened == provider.closed


def tasks():
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        import trio

        return trio.lowlevel.current_statistics().tasks_living


async def every_wait(run):
    """Cancel at the first wait, at the second, and so on, until the call is faster."""
    before = tasks()
    for at in range(1, 1000):
        long = Long()
        done = await run(long, at)
        long.assert_nothing_is_left()
        assert tasks() == before
        if done:
            return at - 1
    raise AssertionError("the call never ends")


def assert_recorded(long):
    """The attempt that was under way has its record, and it is the last one."""
    records = long.asked.records
    numbers = [record.number for record in records]
    assert numbers == list(range(1, len(records) + 1))
    assert all(record.outcome != "success" for record in records)
    assert sum(record.outcome == "cancelled" for record in records) <= 1
    if sum(provider.opened for provider in long.providers) > len(
        [record for record in records if record.outcome == "error"]
    ):
        assert records[-1].outcome == "cancelled"


async def test_by_token():
    async def run(long, at):
        token = CancelToken()
        call = long.asked.stream(cancellation=token)
        error = None
        try:
            result, waits = await counted(call, at, token.cancel)
        except LlmError as raised:
            error = raised
        if error is None:
            assert result.text == "Hello"
            return waits < at
        assert error.kind == "cancelled"
        assert (error.__cause__, error.__context__) == (None, None)
        assert_recorded(long)
        return False

    assert await every_wait(run) > 20


async def test_by_scope():
    async def run(long, at):
        with anyio.CancelScope() as scope:
            result, waits = await counted(long.asked.stream(), at, scope.cancel)
            assert result.text == "Hello"
            return waits < at
        assert scope.cancelled_caught
        assert_recorded(long)
        return False

    assert await every_wait(run) > 20


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_by_the_task_itself():
    async def run(long, at):
        async def call():
            own = asyncio.current_task()
            return await counted(long.asked.stream(), at, own.cancel)

        task = asyncio.ensure_future(call())
        await asyncio.wait([task])
        if task.cancelled():
            assert_recorded(long)
            return False
        result, waits = task.result()
        assert result.text == "Hello"
        return waits < at

    assert await every_wait(run) > 20


async def test_a_token_that_is_cancelled_already_asks_nobody():
    token, provider = CancelToken(), Provider("a", HELLO)
    token.cancel()
    with pytest.raises(LlmError) as caught:
        await Asked(provider).stream(cancellation=token)
    assert (caught.value.kind, provider.opened) == ("cancelled", 0)


async def test_another_thread_can_cancel():
    token = CancelToken()

    async def from_elsewhere():
        threading.Thread(target=token.cancel).start()
        await anyio.sleep_forever()

    provider = Provider("a", (TextDelta("Hel"), from_elsewhere))
    asked = Asked(provider)
    with anyio.fail_after(5), pytest.raises(LlmError) as caught:
        await asked.stream(cancellation=token)
    assert (caught.value.kind, provider.closed) == ("cancelled", 1)
    assert (asked.records[0].outcome, asked.records[0].text_bytes) == ("cancelled", 3)


async def test_a_cancel_comes_before_what_the_provider_makes_of_it():
    token = CancelToken()

    async def cancel():
        token.cancel()

    first = Provider("a", (cancel, *failing("bad_request")))
    asked = Asked(first, Provider("b", HELLO))
    with pytest.raises(LlmError) as caught:
        await asked.stream(cancellation=token)
    assert caught.value.kind == "cancelled"
    assert asked.outcomes == [("a", 1, "cancelled", "cancelled")]


async def test_a_cancel_counts_before_the_loop_has_heard_of_it():
    token = CancelToken()

    async def cancel_elsewhere():
        thread = threading.Thread(target=token.cancel)
        thread.start()
        while not token.cancelled:
            thread.join(0.001)

    asked = Asked(Provider("a", (cancel_elsewhere, *failing("unknown"))), Provider("b", HELLO))
    with pytest.raises(LlmError) as caught:
        await asked.stream(cancellation=token)
    assert caught.value.kind == "cancelled"
    assert asked.outcomes == [("a", 1, "cancelled", "cancelled")]


async def test_a_cancelled_stream_has_time_to_close():
    class Connection:
        provider_id = "a"
        closed = 0

        def capabilities(self, model):
            return Capabilities()

        def stream(self, request, *, key, media=None):
            return self

        def __aiter__(self):
            return self

        async def __anext__(self):
            scope.cancel()
            await anyio.sleep_forever()

        async def aclose(self):
            await breathe()
            self.closed += 1

    provider = Connection()
    with anyio.CancelScope() as scope:
        await Asked(provider).stream()
    assert scope.cancelled_caught
    assert provider.closed == 1


async def test_a_scopes_cancel_is_not_lost_in_a_provider_that_makes_an_error_of_it():
    class Translating(Provider):
        async def stream(self, request, *, key, media=None):
            try:
                scope.cancel()
                await anyio.sleep_forever()
                yield TextDelta("never")
            except BaseException:
                raise LlmError("My own words.", kind="unavailable") from None

    second = Provider("b", HELLO)
    asked = Asked(Translating("a"), second)
    with anyio.CancelScope() as scope:
        await asked.stream()
    assert scope.cancelled_caught
    assert second.opened == 0
    assert asked.outcomes == [("a", 1, "cancelled", "cancelled")]


async def test_what_was_counted_before_a_cancel_is_recorded():
    async def cancel():
        scope.cancel()
        await anyio.sleep_forever()

    asked = Asked(Provider("a", (StreamEnd("stop", Usage(9, 9)), cancel)))
    with anyio.CancelScope() as scope:
        await asked.stream()
    assert [(r.outcome, r.usage) for r in asked.records] == [("cancelled", Usage(9, 9))]


async def test_a_hook_that_raises_swallows_no_cancel():
    def refuse(record):
        raise ValueError("not now")

    asked = Asked(Provider("a", (anyio.sleep_forever,)), on_attempt=refuse)
    with anyio.move_on_after(0.05) as scope:
        await asked.stream()
    assert scope.cancelled_caught
