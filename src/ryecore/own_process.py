"""What ryecore's own processes share: the host made again, and signals as requests to stop.

They aren't tools: each inherits the host's environment, and reads on its standard input what to
do and on whose behalf.

Source: decision 20.
"""

import os
import signal
from collections.abc import Iterable, Sequence
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from ryecore.actions.settings import Settings
from ryecore.injected import rebuilt
from ryecore.policy import CancelToken
from ryecore.policy.call_ids import THREAD_ID, THREAD_MARK
from ryecore.runs.naming import PARENT_ID

__all__ = ["environ_without", "hear_signals", "options_of", "stop_by_signal"]

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def hear_signals() -> list[int]:
    """Make signals wishes to stop from here on; none of them cuts off the writing of the end.

    Returns:
        The signals that came before `stop_by_signal` listened.
    """
    told: list[int] = []
    for number in _STOPPING:
        signal.signal(number, lambda which, _: told.append(which))
    return told


async def stop_by_signal(
    stop: CancelToken, told: Sequence[int], *, task_status: TaskStatus[None]
) -> None:
    """Cancel once a signal comes, or has come."""
    with anyio.open_signal_receiver(*_STOPPING) as signals:
        if told:
            stop.cancel()
        task_status.started()
        async for _ in signals:
            stop.cancel()


def options_of(settings: Settings) -> dict[str, Any]:
    """The arguments of `Rye.open`, with what the host injects made again here.

    Raises:
        ConfigError: The host's factory can't be imported or called, or makes something else.
    """
    factory = settings.deps_factory
    return settings.to_options() | ({} if factory is None else rebuilt(factory))


def environ_without(names: Iterable[str] = ()) -> dict[str, str]:
    """The environment for a Rye here: no tool is to take itself for a child of ryecore's making."""
    dropped = {PARENT_ID, THREAD_ID, THREAD_MARK, *names}
    return {name: value for name, value in os.environ.items() if name not in dropped}
