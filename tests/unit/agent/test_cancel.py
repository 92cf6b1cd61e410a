"""A cancel at every await point, by token and by task: nothing is left behind."""

import anyio
import pytest

from ryecore.agent.events import AgentToolResult
from ryecore.policy.context import CancelToken
from ryecore.testing import ScriptedProvider, call, fail, say, think
from ryecore.tools import tool
from tests.unit.agent.studio import Studio

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class Steps:
    """Counts the event loop's steps of a run, and does something at the Nth."""

    def __init__(self, at: int, then):
        self.at, self.then, self.count = at, then, 0

    async def walk(self):
        """Take a step each time that the run does, until it is told to stop."""
        while self.count < self.at:
            await anyio.lowlevel.checkpoint()
            self.count += 1
        self.then()


def script():
    return [
        fail("rate_limit"),
        think("hm") + call("slow", {"n": 1}) + call("slow", {"n": 2}),
        call("slow", {"n": 3}) + call("in_order"),
        say("done " * 5),
    ]


def make(running):
    @tool(parallel_safe=True)
    async def slow(n: int) -> int:
        """Take three steps."""
        running.add(n)
        try:
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
        finally:
            running.discard(n)
        return n

    @tool
    async def in_order() -> str:
        """Take a step."""
        running.add("in_order")
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            running.discard("in_order")
        return "ok"

    async def gate(egress):
        await anyio.lowlevel.checkpoint()

    async def key(provider_id):
        await anyio.lowlevel.checkpoint()
        return "k"

    async def sleep(delay_s):
        await anyio.lowlevel.checkpoint()

    model = ScriptedProvider(script(), checkpoints=True)
    from ryecore.agent.model import RetrySpec

    studio = Studio(
        tools=[slow, in_order],
        providers={"scripted": model},
        pre_egress=gate,
        key_for=key,
        sleep=sleep,
    )
    return studio, model, studio.agent(retry=RetrySpec(2))


@pytest.mark.parametrize("by", ["token", "task"])
async def test_a_cancel_at_every_step_leaves_nothing_behind(by):
    outcomes = []
    for at in range(1, 400):
        running: set[object] = set()
        studio, model, agent = make(running)
        token = CancelToken()
        done = None
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()
                steps = Steps(at, token.cancel if by == "token" else scope.cancel)
                tasks.start_soon(steps.walk)
                with scope:
                    done = await studio.run(agent=agent, signal=token)
                tasks.cancel_scope.cancel()
        assert running == set(), at
        assert model.open_streams == 0, at
        if by == "task" and scope.cancelled_caught:
            assert done is None
            outcomes.append("cancelled")
            continue
        assert done is not None
        if done.status == "completed":
            outcomes.append("completed")
            break
        assert done.failure.code == "cancelled", (at, done.failure)
        outcomes.append("cancelled")
        told = [one for one in studio.events if isinstance(one, AgentToolResult)]
        assert studio.told.count("agent:tool_call") == len(told), at
    assert outcomes[-1] == "completed"
    assert outcomes.count("cancelled") > 15  # as many points as the walk has


async def test_a_hanging_tool_ends_with_the_signal():
    token = CancelToken()
    started = anyio.Event()
    ended = []

    @tool
    async def hang() -> str:
        """Never end."""
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    studio = Studio(call("hang"), "never", tools=[hang])
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def run():
                done = await studio.run(signal=token)
                assert done.failure.code == "cancelled"

            tasks.start_soon(run)
            await started.wait()
            token.cancel()
    assert ended == [True]


async def test_a_tool_that_is_cancelled_from_another_thread_ends():
    token = CancelToken()
    studio = Studio(say("x") + call("nap"), "never", tools=[_nap])
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def run():
                done = await studio.run(signal=token)
                assert done.failure.code == "cancelled"

            tasks.start_soon(run)
            while "agent:tool_call" not in studio.told:
                await anyio.lowlevel.checkpoint()
            await anyio.to_thread.run_sync(token.cancel)


@tool(name="nap")
async def _nap() -> str:
    """Sleep."""
    await anyio.sleep_forever()
    return "never"
