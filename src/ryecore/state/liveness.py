"""Whether the process that owns a thread still lives.

A process that shares the owner's boot, pid namespace and time namespace checks the owner itself.
Otherwise the lease decides: within the same boot on a clock that can't be set, after another boot
on the time of day.

Source: decision 35; ADR 024.
"""

import os
import time
from functools import cache
from typing import Final

from attrs import evolve, frozen

from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.model import ThreadRecord

__all__ = [
    "LEASE_S",
    "Moment",
    "can_be_looked_at",
    "ended_if_abandoned",
    "is_abandoned",
    "lease_end",
    "moment",
]

LEASE_S: Final = 60.0
"""For how many seconds a lease holds; an owner renews it at a third of that."""


@frozen
class Moment:
    """A point in time on two clocks.

    Attributes:
        unix_s: The time of day, in seconds since 1970. It may be set, and so jump.
        machine_s: Seconds that the machine has been awake since its boot, the same in every
            container. Nobody sets it, and it stands still while the machine is suspended, when no
            owner can renew a lease.
    """

    unix_s: float
    machine_s: float

    def plus(self, seconds: float) -> "Moment":
        """Return the moment that is so many seconds later."""
        return Moment(self.unix_s + seconds, self.machine_s + seconds)


def moment() -> Moment:
    """Return the current time."""
    awake_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    return Moment(time.time(), awake_s - _time_namespace_offset_s())


def lease_end() -> Moment:
    """Return when a lease ends that is taken or renewed now."""
    return moment().plus(LEASE_S)


def can_be_looked_at(owner: ProcessId, here: ProcessId) -> bool:
    """Return whether this process can tell whether another one lives."""
    return (
        (owner.boot_id, owner.pid_namespace) == (here.boot_id, here.pid_namespace)
        # Start times differ between time namespaces, and would identify another process.
        and owner.time_namespace in (0, here.time_namespace)
    )


def is_abandoned(record: ThreadRecord, now: Moment | None = None) -> bool:
    """Return whether a thread whose row says that it runs has no living owner.

    Args:
        record: The thread.
        now: The current time, by default.
    """
    if record.ended:
        return False
    now = now or moment()
    owner, here = record.owner, current_process()
    if owner is None:
        return now.unix_s > record.lease_until
    if can_be_looked_at(owner, here):
        lives = _lives(owner)
        if lives is not None:
            return not lives
    if owner.boot_id == here.boot_id and record.lease_machine_s:
        return now.machine_s > record.lease_machine_s
    # A lease that ends later than any can was taken before the clock was set back.
    return not record.lease_until - LEASE_S <= now.unix_s <= record.lease_until


def ended_if_abandoned(record: ThreadRecord) -> ThreadRecord:
    """Return a thread's record as it is once its death has been written."""
    if not is_abandoned(record):
        return record
    return evolve(record, status="killed" if record.kill_requested else "error")


def _lives(owner: ProcessId) -> bool | None:
    """Return whether a process lives; None where it is hidden or can't be read now."""
    try:
        with open(f"/proc/{owner.pid}/stat", "rb") as file:
            stat = file.read()
        fields = stat[stat.rindex(b")") + 2 :].split()
        return fields[0] not in (b"Z", b"X", b"x") and int(fields[19]) == owner.start_ticks
    except (FileNotFoundError, ProcessLookupError):
        return None if _exists(owner.pid) else False
    except (OSError, ValueError, IndexError):
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # /proc may hide the processes of others
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@cache
def _time_namespace_offset_s() -> float:
    """Return by how much this time namespace's clock is ahead of the machine's."""
    try:
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            for line in file:
                name, seconds, nanoseconds = line.split()
                if name == "monotonic":
                    return int(seconds) + int(nanoseconds) / 1e9
    except (OSError, ValueError):
        pass  # a kernel without time namespaces
    return 0.0


os.register_at_fork(after_in_child=_time_namespace_offset_s.cache_clear)
