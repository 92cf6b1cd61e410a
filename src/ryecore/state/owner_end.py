"""Wait until whoever runs a thread may have ended.

Source: decision 35.
"""

import os
from typing import Final

import anyio

from ryecore.errors import ProcessError
from ryecore.lillux.processes import current_process, process_status
from ryecore.state.liveness import LEASE_S, can_be_looked_at, moment
from ryecore.state.model import ThreadRecord

__all__ = ["wait_for_owner_end"]

_LEASE_GRAIN_S: Final = 0.1
"""So that a wait for a lease's end wakes behind it, and one that looks again doesn't spin."""


async def wait_for_owner_end(record: ThreadRecord) -> None:
    """Wait for the end of a thread's process, or of its lease where that can't be looked at.

    Args:
        record: The thread's row.
    """
    owner = record.owner
    if owner is None or not can_be_looked_at(owner, current_process()):
        await _wait_for_lease(record)
        return
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    except OSError:  # there is no descriptor left, for one
        await _wait_for_lease(record)
        return
    try:
        if process_status(owner) == "running":  # else the number is another process's by now
            await anyio.wait_readable(descriptor)
    except ProcessError:
        await _wait_for_lease(record)
    finally:
        os.close(descriptor)


async def _wait_for_lease(record: ThreadRecord) -> None:
    now, owner = moment(), record.owner
    left_s = record.lease_until - now.unix_s
    if owner is not None and owner.boot_id == current_process().boot_id:
        left_s = record.lease_machine_s - now.machine_s
    await anyio.sleep(min(max(left_s, 0), LEASE_S) + _LEASE_GRAIN_S)
