"""The order of a call, what is told of it, its time, and what a tool that fails leaves."""

import asyncio
import time
from typing import Any

import anyio
import pytest

from ryecore.errors import (
    HostCapabilityMissing,
    ToolArgsInvalidError,
    ToolCallError,
    ToolExecutionError,
    ToolPolicyError,
    UnknownToolError,
)
from ryecore.policy import CallContext
from ryecore.tools import (
    ToolCalled,
    ToolContext,
    ToolDef,
    ToolLimits,
    ToolPolicy,
    ToolRegistry,
    ToolReturned,
)
from tests.unit.tools.calls import asked, called, refused, written

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

KEY = "sk-abcdefghijklmnopqrstuvwxyz"


async def add(a: int, b: list[int] | None = None) -> int:
    """Add."""
    for one in b or []:
        a += one
    if b:
        b.clear()
    return a


async def hang() -> None:
    """Hang."""
    await anyio.sleep_forever()


async def test_a_call_is_told_before_and_after() -> None:
    events: list[Any] = []

    done = await called(add, {"a": 1, "b": [2]}, events=events)

    assert done.value == 3
    assert done.part.text == "3"
    assert done.duration_ms > 0
    assert events == [
        ToolCalled("add", {"a": 1, "b": [2]}),  # as it was sent, whatever the tool does with it
        ToolReturned("add", True, "3"),
    ]


async def test_what_is_told_is_bounded_and_without_what_the_host_set() -> None:
    async def keep(text: str, key: str) -> str:
        return text

    events: list[Any] = []
    limits = ToolLimits(event_chars=50)
    tool = ToolDef.from_function(keep, config={"key": KEY})

    await called(tool, {"text": "x", "key": "mine"}, events=events, limits=limits)
    await called(tool, {"text": "x" * 5000}, events=events, limits=limits)

    assert events[0].tool_input == {"text": "x"}
    assert events[2].tool_input == '{"text": "' + "x" * 40 + "…"
    assert events[3].output_summary == "x" * 50 + "…"
    assert KEY not in repr(events)


async def test_a_call_that_never_ran_is_not_told() -> None:
    events: list[Any] = []
    tool = ToolDef.from_function(add, policy=ToolPolicy(url_args=("a",)))

    await refused(ToolArgsInvalidError, add, "{", events=events)
    await refused(ToolArgsInvalidError, add, {"a": "x"}, events=events)
    await refused(ToolPolicyError, add, {"a": 1}, ToolContext(grant=frozenset()), events=events)
    await refused(ToolPolicyError, tool, {"a": 1}, events=events)

    assert events == []


async def test_the_first_step_that_fails_is_the_one_that_is_told() -> None:
    """Grant, host capabilities, arguments, schema, policy, approval."""
    tool = ToolDef.from_function(
        add,
        capability="rye.execute.tool.acme.add",
        needs={"net"},
        policy=ToolPolicy(command_args=("a",)),
        needs_approval=True,
    )
    registry = ToolRegistry([tool])
    nobody = CallContext(capabilities=frozenset())
    steps: list[tuple[ToolContext, str, type[ToolCallError], str]] = [
        (ToolContext(grant=frozenset(), call=nobody), "{", ToolPolicyError, "not granted"),
        (ToolContext(call=nobody), "{", ToolPolicyError, "lacks the capability"),
        (ToolContext(), "{", HostCapabilityMissing, "'net'"),
        (ToolContext(capabilities=frozenset({"net"})), "{", ToolArgsInvalidError, "n't JSON"),
        (ToolContext(capabilities=frozenset({"net"})), '{"b": 1}', ToolArgsInvalidError, "a"),
        (ToolContext(capabilities=frozenset({"net"})), '{"a": 1}', ToolPolicyError, "isn't text"),
    ]
    for ctx, text, kind, said in steps:
        with pytest.raises(kind, match=said):
            await registry.dispatch(written("add", text), ctx)
    with pytest.raises(UnknownToolError):
        await registry.dispatch(written("sub", "{"), ToolContext(grant=frozenset()))


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(error: BaseException) -> ToolDef:
    async def run(arguments: object, ctx: ToolContext) -> object:
        try:
            raise KeyError(KEY)
        except KeyError:
            raise error  # noqa: B904 - the context is what must not be told

    return ToolDef(name="fail", description="", parameters={}, run=run)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no tide"), "The tool fail failed: ValueError: no tide"),
        (ValueError(), "The tool fail failed: ValueError"),
        (Hostile(), "The tool fail failed: Hostile"),
        (TimeoutError("slow"), "TimeoutError: slow"),
        (RuntimeError(f"key={KEY} was refused"), "RuntimeError: key=*** was refused"),
        (FileNotFoundError(2, "No such file", "/home/ada/shop/x.csv"), "'…/x.csv'"),
        (ValueError("see https://example.org/a/b for it"), "see https://example.org/a/b for it"),
        (ValueError("\ud800"), "ValueError: ?"),
        (ExceptionGroup("all", [ValueError("a"), KeyError(KEY)]), "ValueError: a; KeyError: '***'"),
        (
            ValueError('Traceback (most recent call last):\n  File "/x/y.py", line 1, in f\n'
                       "    f()\n    ^^^\nKeyError: 3"),
            "ValueError: KeyError: 3",
        ),
        (ToolExecutionError(f"It is {KEY}.", tool_name="other"), "It is ***."),
    ],
)  # fmt: skip
async def test_what_a_tool_raises_is_told_without_keys_paths_or_traceback(
    error: BaseException, said: str
) -> None:
    events: list[Any] = []

    told = await refused(ToolExecutionError, raising(error), events=events)

    assert said in str(told)
    assert told.tool_name == "fail"
    everything = f"{told!r} {told} {told.facts} {told.to_dict()} {events}"
    for secret in (KEY, "/home", "/x/y.py", "Traceback"):
        assert secret not in everything
    assert events[1] == ToolReturned("fail", False, str(told))


async def test_an_endless_text_is_cut_and_no_key_in_two() -> None:
    for at in (900, 990, 1000, 15_990, 16_000):
        error = await refused(ToolExecutionError, raising(ValueError("x" * at + " " + KEY * 1000)))
        assert len(str(error)) < 1100
        assert "abcdef" not in str(error)


async def test_where_it_was_raised_is_kept_for_the_author() -> None:
    error = await refused(ToolExecutionError, raising(ValueError("x")))

    assert error.exception_type == "ValueError"
    assert error.raised_at.startswith("test_dispatch.py:")
    assert error.raised_at.endswith(" in run")


async def test_a_tool_may_say_itself_how_it_fails() -> None:
    for kind in (ToolArgsInvalidError, ToolPolicyError):
        error = await refused(kind, raising(kind("Not on Sundays.", tool_name="?")))
        assert str(error) == "Not on Sundays."
        assert error.tool_name == "fail"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_ends_the_process_is_not_kept_from_it(kind: type[BaseException]) -> None:
    async def run(arguments: object, ctx: ToolContext) -> object:
        raise kind

    tool = ToolDef(name="x", description="", parameters={}, run=run)
    with pytest.raises(kind):
        await called(tool)


async def test_what_the_host_set_stands_in_no_error() -> None:
    async def use(password: str) -> None:
        raise ValueError(f"wrong: {password}")

    tool = ToolDef.from_function(use, config={"password": "hunter2"})

    assert "hunter2" not in str(await refused(ToolExecutionError, tool))

    async def enter(auth: dict[str, Any]) -> None:
        raise ValueError(f"wrong: {auth}")

    auth = {"user": "u", "secrets": [{"password": "hunter2"}]}
    deep = ToolDef.from_function(enter, config={"auth": auth})

    assert "hunter2" not in str(await refused(ToolExecutionError, deep))


async def test_a_tool_that_takes_too_long_is_stopped() -> None:
    events: list[Any] = []
    for tool, limits in (
        (ToolDef.from_function(hang), ToolLimits(timeout_s=0.05)),
        (ToolDef.from_function(hang, timeout_s=0.05), ToolLimits()),
    ):
        error = await refused(ToolExecutionError, tool, limits=limits, events=events)
        assert str(error) == "The tool hang did not end within 0.05 s and was stopped."
    assert [type(event) for event in events] == [ToolCalled, ToolReturned] * 2


async def test_a_tool_that_makes_of_its_stop_another_error_was_stopped_still() -> None:
    async def stubborn() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("never mind")

    error = await refused(ToolExecutionError, ToolDef.from_function(stubborn, timeout_s=0.05))
    assert "did not end within 0.05 s" in str(error)


async def test_a_thread_that_hangs_is_left_behind_and_starves_no_other_tool() -> None:
    import threading

    release = threading.Event()

    def stuck() -> None:
        release.wait()

    def quick() -> int:
        return 1

    registry = ToolRegistry([ToolDef.from_function(stuck, timeout_s=0.2), quick])

    async def one() -> None:
        with pytest.raises(ToolExecutionError, match=r"within 0\.2 s"):
            await registry.dispatch(asked("stuck"), ToolContext())

    try:
        async with anyio.create_task_group() as group:
            for _ in range(60):
                group.start_soon(one)
        assert (await registry.dispatch(asked("quick"), ToolContext())).value == 1
    finally:
        release.set()


async def test_the_callers_deadline_counts() -> None:
    soon = ToolContext(call=CallContext(deadline=time.monotonic() + 0.05))
    past = ToolContext(call=CallContext(deadline=time.monotonic() - 1))

    assert "did not end within" in str(await refused(ToolExecutionError, hang, "", soon))
    assert "time is up" in str(await refused(ToolExecutionError, hang, "", past))

    async def asleep(request: object, /) -> bool:
        await anyio.sleep_forever()
        return True

    waiting = ToolContext(call=CallContext(deadline=time.monotonic() + 0.05), approve=asleep)
    tool = ToolDef.from_function(hang, needs_approval=True)
    assert "approved in time" in str(await refused(ToolExecutionError, tool, "", waiting))


async def test_approval_may_take_longer_than_the_tool() -> None:
    async def slow(request: object, /) -> bool:
        await anyio.sleep(0.2)
        return True

    tool = ToolDef.from_function(add, needs_approval=True, timeout_s=0.1)
    assert (await called(tool, {"a": 1}, ToolContext(approve=slow))).value == 1


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_of_something_inside_a_tool_is_the_tools_failure() -> None:
    async def careless() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.sleep(0)
        inner.cancel()
        await inner

    error = await refused(ToolExecutionError, careless)
    assert str(error) == "The tool careless was cancelled from inside."


async def test_a_tool_may_await_whatever_can_be_awaited() -> None:
    class Later:
        def __await__(self) -> Any:
            yield from anyio.sleep(0.001).__await__()
            return "late"

    class Never:
        def __await__(self) -> Any:
            return iter(())

    for awaited, value in ((Later(), "late"), (Never(), None)):
        tool = ToolDef(name="x", description="", parameters={}, run=lambda _, __, one=awaited: one)
        assert (await called(tool)).value == value
