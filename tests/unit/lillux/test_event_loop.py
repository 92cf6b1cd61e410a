"""Calls that run with an event loop, and without one."""

import threading

import pytest

from ryecore.lillux import ProcessSpec, SchemaValidator, run_process
from ryecore.lillux.event_loop import (
    EventLoopNeeded,
    checkpoint,
    is_without_loop,
    need_loop,
    run_in_thread,
    run_without_loop,
    shielded,
)

STRINGS = '{"type": "array", "items": {"type": "string", "pattern": "^[a-z]*$"}}'


@pytest.mark.anyio
async def test_with_a_loop_a_function_runs_in_a_thread() -> None:
    assert not is_without_loop()
    need_loop()
    with shielded():
        await checkpoint()
    assert await run_in_thread(threading.get_ident) != threading.get_ident()


def test_without_a_loop_it_runs_here() -> None:
    async def call() -> int:
        assert is_without_loop()
        with shielded():
            await checkpoint()
        return await run_in_thread(threading.get_ident)

    assert run_without_loop(call) == threading.get_ident()
    assert not is_without_loop()


def test_without_a_loop_a_process_runs_to_its_end() -> None:
    spec = ProcessSpec("sh", ("-c", "cat; exit 3"), cwd="/", env={"PATH": "/bin"}, stdin=b"in")

    done = run_without_loop(lambda: run_process(spec))

    assert (done.status, done.exit_code, done.stdout) == ("exited", 3, b"in")


def test_without_a_loop_a_long_validation_is_finished() -> None:
    validator = SchemaValidator(STRINGS)
    words = ", ".join(['"a"'] * 30_000)
    instance = f"[{words}, 1]"

    (failure,) = run_without_loop(lambda: validator.failures_async(instance))

    assert failure.path == "[30000]"


def test_what_needs_a_loop_says_so() -> None:
    async def call() -> None:
        need_loop()

    with pytest.raises(EventLoopNeeded):
        run_without_loop(call)
    assert not is_without_loop()


def test_an_error_is_raised_as_it_is() -> None:
    async def call() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        run_without_loop(call)


def test_what_waits_all_the_same_is_closed_and_reported() -> None:
    cleaned = []

    class Wait:
        def __await__(self):
            yield "a future"

    async def call() -> None:
        try:
            await Wait()
        finally:
            cleaned.append(True)

    with pytest.raises(RuntimeError, match="waits for an event loop"):
        run_without_loop(call)
    assert cleaned == [True]


@pytest.mark.anyio
async def test_within_a_loop_it_blocks_as_any_function() -> None:
    async def call() -> int:
        return await run_in_thread(lambda: 1)

    assert run_without_loop(call) == 1
    assert not is_without_loop()
