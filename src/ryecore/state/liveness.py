"""Whether the process that owns a thread still lives.

A process that shares the owner's boot and pid namespace can look; for every other one the owner's
lease decides.

Source: decision 35.
"""

from ryecore.errors import ProcessError
from ryecore.lillux.processes import ProcessId, current_process, process_status
from ryecore.state.model import ThreadRecord

__all__ = ["LEASE_S", "can_be_looked_at", "is_abandoned"]

LEASE_S = 60.0
"""For how many seconds a lease holds; an owner renews it at a third of that."""


def can_be_looked_at(owner: ProcessId, here: ProcessId) -> bool:
    """Whether a process can tell if another one lives."""
    return (owner.boot_id, owner.pid_namespace) == (here.boot_id, here.pid_namespace)


def is_abandoned(record: ThreadRecord, now: float) -> bool:
    """Whether nobody runs a thread any more that its row says is under way.

    Args:
        record: The thread.
        now: The Unix time in seconds, on the store's clock.
    """
    if record.ended:
        return False
    if record.owner is not None and can_be_looked_at(record.owner, current_process()):
        try:
            return process_status(record.owner) != "running"
        except ProcessError:
            pass  # it can't be told after all
    return now > record.lease_until
