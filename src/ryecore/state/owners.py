"""The processes that run threads: their liveness, the wait for their end, and killing them.

A process that shares the owner's boot, pid namespace and time namespace checks the owner itself.
Otherwise the lease decides: within the same boot by a clock that can't be set, after another boot
by the time of day.

Source: decisions 35 and 46; ADR 024; SECURITY.md#what-is-promised.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Self

import anyio
from attrs import evolve

from ryecore.errors import ProcessError, StateError
from ryecore.frozen import frozen
from ryecore.lillux.processes import ProcessId, current_process, kill_processes, process_status
from ryecore.policy.context import THREAD_MARK, thread_mark
from ryecore.state.model import ThreadRecord
from ryecore.state.waiting import ChangeWatcher, pause, run_in_thread

if TYPE_CHECKING:
    from ryecore.state.model import ThreadRecord
    from ryecore.state.registry import ThreadRegistry

__all__ = [
    "LEASE_S",
    "KillPlan",
    "Moment",
    "can_be_looked_at",
    "ended_if_abandoned",
    "host_name",
    "is_abandoned",
    "is_lost",
    "lacks_follower",
    "lacks_worker",
    "moment",
    "next_sign",
    "wait_for_owner_end",
]

LEASE_S: Final = 60.0
"""The seconds that a lease is valid; an owner renews it after a third of them."""

_TOLERANCE_S: Final = 5.0
"""How far the clocks of machines that share a server may be apart."""


@frozen
class Moment:
    """A point in time on two clocks.

    Attributes:
        unix_s: The time of day, in seconds since 1970. It may be set, and so jump.
        machine_s: Seconds that the machine has been awake since its boot, the same in every
            container. It can't be set, and stops while the machine is suspended, when no owner
            can renew a lease.
    """

    unix_s: float
    machine_s: float

    def plus(self, seconds: float) -> "Moment":
        """Return the moment some seconds later."""
        return Moment(self.unix_s + seconds, self.machine_s + seconds)


def moment() -> Moment:
    """Return the current time."""
    awake_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    return Moment(time.time(), awake_s - _time_namespace_offset_s())


def can_be_looked_at(owner: ProcessId, here: ProcessId) -> bool:
    """Return whether this process can check whether another one lives."""
    return (
        (owner.boot_id, owner.pid_namespace) == (here.boot_id, here.pid_namespace)
        # Start times differ between time namespaces, and would identify another process.
        and owner.time_namespace in (0, here.time_namespace)
    )


def is_abandoned(record: ThreadRecord, now: Moment | None = None) -> bool:
    """Return whether a thread has not ended according to its row, but has no living owner.

    One that a node runs isn't abandoned: it continues there; see `lacks_follower`. Nor is one that
    waits in a queue, or that another worker of its queue takes over, unless it is to stop.
    """
    if record.place is not None:
        return False
    if record.queue is not None:
        is_to_stop = record.cancel_requested or record.kill_requested
        is_for_workers = record.status == "running" and not is_to_stop
        if is_for_workers or _waits_in_queue(record):
            return False
    return _lacks_owner(record, now)


def lacks_worker(record: ThreadRecord, now: Moment | None = None) -> bool:
    """Return whether the worker that ran a thread of a queue is dead, so another may take over."""
    return record.queue is not None and record.status == "running" and _lacks_owner(record, now)


def _waits_in_queue(record: ThreadRecord) -> bool:
    return record.status == "created" and record.continuation_of is None


def lacks_follower(record: ThreadRecord, now: Moment | None = None) -> bool:
    """Return whether a thread runs on a node, and no living process here follows it.

    Source: decision 71.
    """
    return record.place is not None and _lacks_owner(record, now)


def _lacks_owner(record: ThreadRecord, now: Moment | None) -> bool:
    if record.ended:
        return False
    return is_lost(record.owner, record.lease_until, record.lease_machine_s, now)


def host_name() -> str:
    """Return the name of this machine, or of the container in which this process runs."""
    return os.uname().nodename


def is_lost(
    owner: ProcessId | None,
    lease_until: float,
    lease_machine_s: float,
    now: Moment | None = None,
) -> bool:
    """Return whether a process is dead, or its lease is out where it can't be looked at."""
    now = now or moment()
    if owner is None:
        return now.unix_s > lease_until
    here = current_process()
    if can_be_looked_at(owner, here):
        lives = _lives(owner)
        if lives is not None:
            return not lives
    if owner.boot_id == here.boot_id and lease_machine_s:
        return now.machine_s > lease_machine_s
    # A lease with an impossibly late end was taken before the clock was set back.
    return not lease_until - LEASE_S - _TOLERANCE_S <= now.unix_s <= lease_until


def ended_if_abandoned(record: ThreadRecord) -> ThreadRecord:
    """Return a thread's record, with the status that its death leads to."""
    if not is_abandoned(record):
        return record
    return evolve(record, status="killed" if record.kill_requested else "error")


def _lives(owner: ProcessId) -> bool | None:
    """Return whether a process lives; None if it is hidden or can't be read now."""
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
        os.kill(pid, 0)  # /proc may hide processes of other users
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@cache
def _time_namespace_offset_s() -> float:
    """Return the offset of this time namespace's clock from the machine's."""
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


_LEASE_GRAIN_S: Final = 0.1
"""A margin, so that a wait for a lease's end wakes after it, and a repeated one doesn't spin."""


async def wait_for_owner_end(record: ThreadRecord) -> None:
    """Wait for the end of a thread's process, or of its lease if the process can't be checked."""
    owner = record.owner
    if record.queue is not None and (_waits_in_queue(record) or lacks_worker(record)):
        await anyio.sleep(LEASE_S)  # a worker's claim is told
        return
    if owner is None or not can_be_looked_at(owner, current_process()):
        await _wait_for_lease(record)
        return
    if lacks_follower(record):  # its death tells nothing of the run
        await anyio.sleep(LEASE_S)
        return
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    except OSError:  # for example, no descriptor is left
        await _wait_for_lease(record)
        return
    try:
        if process_status(owner) == "running":  # else the number belongs to another process by now
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


async def next_sign(watched: ChangeWatcher, record: ThreadRecord) -> None:
    """Wait until something of a thread changes, or its process or its lease ends."""
    async with anyio.create_task_group() as signs:

        async def changed() -> None:
            await watched.changed(LEASE_S)
            signs.cancel_scope.cancel()

        async def died() -> None:
            with suppress(StateError):  # the next check reports it
                await wait_for_owner_end(record)
            signs.cancel_scope.cancel()

        signs.start_soon(changed)
        signs.start_soon(died)


_LOOK_EVERY_S: Final = 0.02


class KillPlan:
    """The processes to kill with a thread. Made by `read`."""

    def __init__(
        self,
        registry: "ThreadRegistry",
        project: str,
        thread_id: str,
        owners: Sequence[ProcessId],
        spared: Sequence[ProcessId],
    ) -> None:
        self._registry = registry
        self._project = project
        self._thread_id = thread_id
        self._owners = [one for one in owners if one not in spared]
        self._spared = spared

    @classmethod
    async def read(cls, registry: "ThreadRegistry", project: str, thread_id: str) -> Self:
        """Read which processes to kill, before any is asked to stop.

        When its owner ends a run on request, the row doesn't name the process any more. The
        project's path has its links resolved.
        """
        spared = await registry.processes_beside(thread_id)
        owners = await registry.processes_of(thread_id)
        return cls(registry, project, thread_id, owners, spared)

    async def carry_out(self, grace_s: float) -> None:
        """Kill the processes, and wait until they have ended, of themselves within the grace.

        A thread that shares its process with others was asked to stop. After the grace, the tools
        that its owner hasn't ended are killed, but not the process.
        """
        until = time.monotonic() + grace_s
        try:
            await run_in_thread(partial(kill_processes, self._owners, grace_s, spared=self._spared))
            while True:  # no event reports changes in other processes
                if not await self._is_under_way() or time.monotonic() >= until:
                    break
                await pause(_LOOK_EVERY_S)
            # Meanwhile one of them may have been handed off.
            ids = [one.thread_id for one in await self._rows()]
            marks = [(THREAD_MARK, thread_mark(self._project, one)) for one in ids]
            await run_in_thread(partial(kill_processes, (), 0, spared=self._spared, marks=marks))
        except ProcessError as problem:
            raise StateError(
                f"The thread {self._thread_id} can't be killed from here: {problem.message}",
                next_step="Ask it to stop instead: rye threads cancel",
            ) from problem

    async def _is_under_way(self) -> bool:
        """Return whether a process still runs a thread of the tree."""
        return any(not one.ended and not is_abandoned(one) for one in await self._rows())

    async def _rows(self) -> "tuple[ThreadRecord, ...]":
        return await self._registry.list_tree(self._thread_id, and_after=True)
