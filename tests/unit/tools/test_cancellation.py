"""A cancellation at every await point: by token, from a thread, and as a task."""

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from ryecore.errors import ToolCancelledError
from ryecore.llm.media import MemoryMediaStore
from ryecore.policy import CallContext, CancelToken
from ryecore.tools import (
    MemoryResultStore,
    ToolContext,
    ToolDef,
    ToolOutcome,
    ToolRegistry,
    ToolReturned,
)
from tests.unit.tools.calls import asked, called, refused

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

_STEPS = 40


async def steps() -> list[Any]:
    """Take a few steps, and give much: text and a medium."""
    for _ in range(5):
        await checkpoint()
    return ["x" * 50_000, b"bytes"]


async def approve(request: object, /) -> bool:
    for _ in range(5):
        await checkpoint()
    return True


STEPS = ToolDef.from_function(steps, needs_approval=True)


class Walk:
    """One walk: a call that is cancelled after some steps of the event loop."""

    def __init__(self) -> None:
        self.token = CancelToken()
        self.events: list[Any] = []
        self.outcome: ToolOutcome | None = None
        self.is_refused = False
        self.ctx = ToolContext(
            call=CallContext(cancellation=self.token),
            approve=approve,
            results=MemoryResultStore(),
            media=MemoryMediaStore(),
        )

    async def run(self) -> None:
        try:
            registry = ToolRegistry([STEPS])
            self.outcome = await registry.dispatch(asked("steps"), self.ctx, self.events.append)
        except ToolCancelledError:
            self.is_refused = True

    def check(self) -> None:
        """Each call that was told to begin was told to end, and nobody listens any more."""
        assert len(self.events) in (0, 2)
        assert not self.token._callbacks
        if self.events:
            assert isinstance(self.events[1], ToolReturned)
            assert self.events[1].success == (self.outcome is not None)


async def walk(cancel: Callable[[Walk, anyio.CancelScope], Awaitable[None]]) -> list[Walk]:
    walks = []
    for count in range(_STEPS):
        one = Walk()
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(one.run)
                for _ in range(count):
                    await checkpoint()
                await cancel(one, group.cancel_scope)
        one.check()
        walks.append(one)
    return walks


async def test_by_token_at_every_step() -> None:
    async def cancel(one: Walk, scope: anyio.CancelScope) -> None:
        one.token.cancel()

    walks = await walk(cancel)

    assert all(one.is_refused != (one.outcome is not None) for one in walks)
    assert sum(one.is_refused for one in walks) >= 10
    assert any(one.is_refused and not one.events for one in walks)
    assert any(one.is_refused and one.events for one in walks)


async def test_by_token_from_another_thread_at_every_step() -> None:
    async def cancel(one: Walk, scope: anyio.CancelScope) -> None:
        await anyio.to_thread.run_sync(one.token.cancel)

    walks = await walk(cancel)

    # How far a call has come when the thread gets to it differs from run to run.
    assert all(one.is_refused != (one.outcome is not None) for one in walks)


async def test_by_token_from_another_thread_while_it_waits() -> None:
    token, started = CancelToken(), anyio.Event()

    async def wait() -> None:
        started.set()
        await anyio.sleep_forever()

    async def cancel() -> None:
        await started.wait()
        await anyio.to_thread.run_sync(token.cancel)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            ctx = ToolContext(call=CallContext(cancellation=token))
            await refused(ToolCancelledError, ToolDef.from_function(wait), "", ctx)


async def test_as_a_task_at_every_step() -> None:
    async def cancel(one: Walk, scope: anyio.CancelScope) -> None:
        scope.cancel()

    walks = await walk(cancel)

    assert not any(one.is_refused for one in walks)
    assert sum(one.outcome is None for one in walks) >= 10


async def test_a_token_that_was_cancelled_before_lets_nothing_run() -> None:
    token = CancelToken()
    token.cancel()
    ran: list[int] = []

    def run() -> None:
        ran.append(1)

    ctx = ToolContext(call=CallContext(cancellation=token))
    await refused(ToolCancelledError, run, "", ctx)
    await refused(ToolCancelledError, ToolDef.from_function(run, inline=True), "", ctx)
    assert ran == []


@pytest.mark.parametrize("inline", [False, True])
async def test_a_cancellation_wins_over_what_else_went_wrong(inline: bool) -> None:
    token = CancelToken()

    def fail_at_once() -> None:
        token.cancel()
        raise ValueError("too late")

    async def fail() -> None:
        fail_at_once()

    tool = ToolDef.from_function(fail_at_once if inline else fail, inline=inline)
    await refused(ToolCancelledError, tool, "", ToolContext(call=CallContext(cancellation=token)))


async def test_what_had_ended_has_ended() -> None:
    token = CancelToken()

    async def ends() -> str:
        token.cancel()
        return "done"

    ctx = ToolContext(call=CallContext(cancellation=token))
    assert (await called(ends, "", ctx)).value == "done"


async def test_a_thread_that_hangs_holds_up_no_cancellation() -> None:
    release, started = threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait()

    for as_task in (False, True):
        token = CancelToken()
        ctx = ToolContext(call=CallContext(cancellation=token))
        started.clear()
        try:
            with anyio.fail_after(10):
                async with anyio.create_task_group() as group:

                    async def one(ctx: ToolContext = ctx) -> None:
                        await refused(ToolCancelledError, stuck, "", ctx)

                    group.start_soon(one)
                    await anyio.to_thread.run_sync(started.wait)
                    if as_task:
                        group.cancel_scope.cancel()
                    else:
                        token.cancel()
        finally:
            release.set()
        release.clear()
