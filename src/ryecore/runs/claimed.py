"""Claimed runs: the work of one without a lifecycle, a tool's, and how the row of any is ended."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from ryecore.errors import (
    AuditError,
    CallCancelled,
    ChainError,
    ConfigError,
    InputError,
    IntegrityError,
    ItemError,
    RyeError,
    SpawnFailed,
    StateError,
    StateUnreachable,
    ThreadConflict,
)
from ryecore.policy import CancelToken
from ryecore.policy.cancelling import run_to_end
from ryecore.runs.request import Claimed
from ryecore.state.model import Status
from ryecore.state.owners import LEASE_S
from ryecore.state.store import ThreadStore

if TYPE_CHECKING:
    from ryecore.chain.model import ExecutionResult

__all__ = ["End", "claim_to_end", "run_claimed", "stored_result"]

End: TypeAlias = tuple[Status, Mapping[str, object]]
"""How a run ended, and its result."""

_NOTHING_RAN: Final = (
    AuditError, ItemError, IntegrityError, ChainError, ConfigError, InputError, SpawnFailed,
)  # fmt: skip
"""Errors of a call before its process starts, after which its idempotency key is free again."""


def stored_result(done: "ExecutionResult") -> dict[str, object]:
    """Return a result as its run's row stores it.

    With the schema of what the tool returns, by which the data can be read after the signed file
    has changed.
    """
    schema = done.chain.head.spec.output_schema if done.chain.elements else None
    return done.to_dict() if schema is None else {**done.to_dict(), "output_schema": schema}


async def claim_to_end(store: ThreadStore, run_id: str, error: BaseException) -> int | None:
    """Claim a run that was registered elsewhere and can't begin here, so that it can be ended.

    Args:
        store: The threads.
        run_id: The run.
        error: Why it can't begin.

    Returns:
        Its fence; None where another process has begun it; 0 where that can't be found out.
    """
    if isinstance(error, GeneratorExit):  # its event loop is gone, so nothing can be awaited
        return None
    try:
        return await run_to_end(partial(store.registry.claim, run_id))
    except ThreadConflict:
        return None
    except StateError:
        return 0


async def run_claimed(
    store: ThreadStore,
    claimed: Claimed,
    item_id: str,
    stop: CancelToken,
    execute: Callable[[], Awaitable[End]],
    describe: Callable[[RyeError], Mapping[str, object]] = RyeError.to_dict,
) -> End:
    """Execute the tool of a claimed run, and return how it ended. Its row isn't ended here.

    Args:
        store: The threads.
        claimed: The run.
        item_id: The tool.
        stop: What ends the execution; cancelled once the run was asked to stop, or another process
            has taken it over. Its lease is renewed meanwhile.
        execute: Executes the tool.
        describe: Returns an error as a result.
    """
    run_id = claimed.run_id
    problem: Exception | None = None
    async with anyio.create_task_group() as helpers:
        helpers.start_soon(_watch_stop_requests, run_id, store, stop)
        helpers.start_soon(_keep_lease, claimed, store, stop)
        try:
            return await execute()
        except Exception as error:  # not through the group, which would wrap it
            problem = error
        finally:
            helpers.cancel_scope.cancel()
    if not isinstance(problem, RyeError):
        raise problem or AssertionError("the task group is left by the return above")
    status: Status = "error"
    with suppress(StateUnreachable):  # the end counts, also while it can't be told more closely
        if isinstance(problem, CallCancelled):
            status = "cancelled"
            if (await store.look(run_id)).kill_requested:
                status = "killed"
        elif isinstance(problem, _NOTHING_RAN):
            await store.free_start_key(run_id)
    return status, describe(problem.during(item_id))


async def _watch_stop_requests(run_id: str, store: ThreadStore, stop: CancelToken) -> None:
    async with store.watch(run_id) as watched:
        while True:
            with suppress(StateError):  # an unreadable registry is not a request to stop
                found = await store.registry.get_thread(run_id)
                if found.cancel_requested or found.kill_requested:
                    stop.cancel()
                    return
            await watched.changed(LEASE_S)


async def _keep_lease(claimed: Claimed, store: ThreadStore, stop: CancelToken) -> None:
    while True:
        await anyio.sleep(LEASE_S / 3)
        try:
            await store.registry.renew(claimed.run_id, claimed.fence)
        except RyeError:
            with suppress(StateError):
                found = await store.registry.get_thread(claimed.run_id)
                if found.fence != claimed.fence:
                    stop.cancel()  # this process was declared dead, so what it runs must stop
                    return
