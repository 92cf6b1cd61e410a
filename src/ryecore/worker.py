"""The shared start of worker processes: the claim of the run, its host, and stop signals.

A worker is a process of ryecore itself, not a tool: it inherits the host's environment, and reads
on its standard input what to execute and for which caller.

Source: decision 20.
"""

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskStatus

from ryecore.actions.payload import Payload
from ryecore.actions.settings import Settings, missing_audit
from ryecore.host_factory import call_factory
from ryecore.policy import CancelToken
from ryecore.policy.context import THREAD_ID, THREAD_MARK
from ryecore.runs.bounds import PARENT_ID
from ryecore.rye import Rye
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_in_thread

__all__ = ["cancel_on_signal", "catch_stop_signals", "claim_run", "environ_without", "open_rye"]

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def catch_stop_signals() -> list[int]:
    """Record TERM, INT and HUP instead of dying of them, so that the result can still be written.

    Returns the signals so far; the list grows until `cancel_on_signal` takes over.
    """
    received: list[int] = []
    for number in _STOPPING:
        signal.signal(number, lambda which, _: received.append(which))
    return received


async def cancel_on_signal(
    stop: CancelToken, received: Sequence[int], *, task_status: TaskStatus[None]
) -> None:
    """Cancel `stop` at the first stop signal, or at once where `received` holds one."""
    with anyio.open_signal_receiver(*_STOPPING) as arriving:
        if received:
            stop.cancel()
        task_status.started()
        async for _ in arriving:
            stop.cancel()


async def claim_run(payload: Payload) -> tuple[ThreadStore, int]:
    """Claim the run of a payload for this process, and return the threads and the owner's fence.

    A run that was stopped before it began is a ThreadConflict.
    """
    settings = payload.settings
    roots = Path(settings.project_path) / ".ai", Path(settings.user_space) / ".ai"
    threads = await run_in_thread(ThreadStore.open, *roots, settings.durability, settings.state)
    fence = await threads.registry.claim(payload.run_id, owns_process=True, token=payload.token)
    await threads.synced()
    return threads, fence


def open_rye(settings: Settings, environ: Mapping[str, str] | None = None) -> Rye:
    """Open the host's project in this process, with what the host's factory makes here.

    Tools inherit from `environ`, by default this process's.
    """
    options = settings.to_options()
    if settings.deps_factory is not None:
        options.update(call_factory(settings.deps_factory))
    if environ is not None:
        options["environ"] = environ
    if settings.must_audit and options.get("audit") is None:
        raise missing_audit()
    return Rye.open(settings.project_path, **options)


def environ_without(names: Iterable[str] = ()) -> dict[str, str]:
    """Return this process's environment without `names` and the variables that mark a child run."""
    dropped = {PARENT_ID, THREAD_ID, THREAD_MARK, *names}
    return {name: value for name, value in os.environ.items() if name not in dropped}
