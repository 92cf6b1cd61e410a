"""The columns of a thread's owner and lease."""

from typing import Final

from ryecore.lillux.processes import ProcessId
from ryecore.state.liveness import lease_end
from ryecore.state.rows import columns

__all__ = ["HOLDING", "RENEWAL", "SET_HOLDING", "holding", "renewal"]

_LEASE: Final = ("lease_until", "lease_machine_s")
_ALL: Final = ("boot_id", "pid_namespace", "pid", "start_ticks", "time_namespace", *_LEASE)

HOLDING: Final = ", ".join(_ALL)
"""The columns, as an INSERT lists them."""

SET_HOLDING: Final = ", ".join(f"{name} = ?" for name in _ALL)
"""The columns, as an UPDATE sets them."""

RENEWAL: Final = ", ".join(f"{name} = ?" for name in _LEASE)
"""Those of the lease alone, as an UPDATE sets them."""


def holding(process: ProcessId) -> tuple[object, ...]:
    """Return a process and the lease that it takes now, as the values of `HOLDING`."""
    return (*columns(process), *renewal())


def renewal() -> tuple[float, float]:
    """Return a lease that is renewed now, as the values of `RENEWAL`."""
    lease = lease_end()
    return (lease.unix_s, lease.machine_s)
