"""The process of one detached thread: `python -m ryecore.thread_worker`.

It reads a payload on its standard input, claims the thread, executes it, and settles it
with the result. Requests to stop arrive through the registry, announced by a change in the thread's
folder, or as a TERM signal.
"""

import contextlib
import sys
import traceback
from collections.abc import Sequence
from functools import partial

import anyio
from attrs import evolve

from ryecore.actions.payload import Payload
from ryecore.display.sanitize import escape_controls
from ryecore.errors import RyeError, ThreadConflict
from ryecore.policy import CancelToken
from ryecore.policy.execution import Execution
from ryecore.runs.claimed import End, run_claimed, stored_result
from ryecore.runs.request import Claimed
from ryecore.rye import Rye
from ryecore.state.store import ThreadStore
from ryecore.worker import (
    cancel_on_signal,
    catch_stop_signals,
    claim_run,
    environ_without,
    open_rye,
)

__all__ = ["main"]


def main() -> None:
    """Execute the payload on standard input, and settle its thread."""
    received = catch_stop_signals()
    anyio.run(_work, Payload.from_bytes(sys.stdin.buffer.read()), received)


async def _work(payload: Payload, received: Sequence[int]) -> None:
    try:
        threads, fence = await claim_run(payload)
    except ThreadConflict:
        return  # it was stopped before it began
    if payload.is_graph:
        from ryecore.graph_worker import walk_claimed  # noqa: PLC0415 - only for graphs

        await walk_claimed(payload, threads, fence, received)
        return
    threads.announce(payload.run_id)
    if payload.request.ref.kind == "directive" or _is_on_node(payload):
        await _run_thread(payload, threads, fence, received)
        return
    try:
        status, result = await _carry_out(payload, threads, fence, received)
    except Exception as error:  # whatever it is, the thread has to end with it
        traceback.print_exc()  # into the thread's log
        text = f"ryecore itself failed: {type(error).__name__}: {error}"
        status, result = "error", {"status": "error", "error": text, "item_id": payload.item_id}
    await threads.settle(payload.run_id, status, result, fence)
    with contextlib.suppress(RyeError):  # the thread has ended, whether pruning succeeds or not
        await _prune(payload)


def _is_on_node(payload: Payload) -> bool:
    """Return whether a run is on a node, which a run at home follows; a Ray cluster is polled."""
    target = payload.request.target
    if target == "local":
        return False
    try:
        return open_rye(payload.settings).remotes.kind_of(target) != "ray"
    except RyeError:
        return True  # its row says why


async def _prune(payload: Payload) -> None:
    async with Rye.open(payload.settings.project_path, **payload.settings.to_options()) as rye:
        await rye.threads.prune_automatically()


async def _carry_out(
    payload: Payload, threads: ThreadStore, fence: int, received: Sequence[int]
) -> End:
    stop, claimed = CancelToken(), Claimed(payload.run_id, fence=fence)
    async with anyio.create_task_group() as helpers:
        await helpers.start(cancel_on_signal, stop, received)
        try:
            execute = partial(_execute, payload, threads, stop)
            return await run_claimed(threads, claimed, payload.item_id, stop, execute)
        finally:
            helpers.cancel_scope.cancel()
    raise AssertionError("the task group is left by the return above")


async def _run_thread(
    payload: Payload, threads: ThreadStore, fence: int, received: Sequence[int]
) -> None:
    """Run a directive's thread, or follow a run on a node: each ends its own row."""
    stop = CancelToken()
    request = evolve(payload.request, registered=Claimed(payload.run_id, fence=fence))
    try:
        opened = open_rye(payload.settings, environ_without())
    except RyeError as error:  # nothing has begun that could end it
        await threads.free_start_key(payload.run_id)
        result = error.during(payload.item_id).to_dict()
        await threads.settle(payload.run_id, "error", result, fence)
        return
    async with anyio.create_task_group() as helpers, opened as rye:
        await helpers.start(cancel_on_signal, stop, received)
        try:
            await rye.threads.run(request, evolve(payload.ctx, cancellation=stop))
        except RyeError as error:  # its row says so
            sys.stderr.write(f"ryecore: {escape_controls(str(error))}\n")
        finally:
            helpers.cancel_scope.cancel()


async def _execute(payload: Payload, threads: ThreadStore, stop: CancelToken) -> End:
    async with open_rye(payload.settings) as rye:
        done = await rye.execute(
            payload.item_id,
            payload.request.inputs,
            target=payload.request.target,
            limits=payload.request.limits if payload.request.limits.to_dict() else None,
            timeout_s=payload.request.timeout_s,
            output_log=threads.log_of(payload.run_id),
            ctx=evolve(
                payload.ctx, cancellation=stop, execution=Execution.elsewhere(payload.run_id)
            ),
        )
    return "completed" if done.success else "error", stored_result(done)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        try:
            main()
        except RyeError as problem:  # stderr is the thread's log
            sys.exit(f"ryecore: {problem}")
