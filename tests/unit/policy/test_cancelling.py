"""A token's cancel reaches the code that is waiting, from whichever thread, and nothing else."""

import signal
import threading

import anyio
import pytest

from ryecore import CancelToken
from ryecore.policy.cancelling import cancelled_by

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_token_cancels_what_waits_in_its_scope():
    token = CancelToken()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_in_a_moment, token)
            with cancelled_by(token) as scope:
                await anyio.sleep_forever()
    assert scope.cancelled_caught


async def _cancel_in_a_moment(token):
    token.cancel()


async def test_another_threads_cancel_arrives():
    token = CancelToken()
    with anyio.fail_after(5), cancelled_by(token) as scope:
        threading.Thread(target=token.cancel).start()
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_token_that_is_cancelled_already_cancels_at_once():
    token = CancelToken()
    token.cancel()
    with anyio.fail_after(5), cancelled_by(token) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_scope_that_was_left_is_told_no_more():
    token = CancelToken()
    with cancelled_by(token) as scope:
        await anyio.sleep(0)
    token.cancel()
    await anyio.sleep(0)
    assert not scope.cancel_called


async def test_a_signals_handler_cancels_what_waits_for_nothing_else():
    token = CancelToken()
    before = signal.signal(signal.SIGALRM, lambda *_: token.cancel())
    try:
        with anyio.move_on_after(20), cancelled_by(token) as scope:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            await anyio.sleep_forever()
        assert scope.cancelled_caught
    finally:
        signal.signal(signal.SIGALRM, before)
