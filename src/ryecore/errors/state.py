"""Errors of state that is locked by another process, or was made by another user."""

from typing import Protocol

from ryecore.errors.calls import StateError

__all__ = ["StateLocked", "UnattestedState"]


class _Holder(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def command(self) -> str: ...

    @property
    def state(self) -> str: ...


class StateLocked(StateError):
    """Another process held a lock for longer than was waited. Nothing was changed.

    Attributes:
        path: The file that is locked.
        holders: The processes that hold the lock and are visible from here.
        waited_s: How long the wait lasted, in seconds.
    """

    error_type = "state_locked"
    path: str
    holders: tuple[_Holder, ...] = ()
    waited_s: float = 0.0


class UnattestedState(StateError):
    """The state of this project was not made by this user space, in this very folder.

    Attributes:
        path: The folder.
        reason: `copied`: this user's own, but restored or copied. `foreign`: another user space's.
            `unsigned`: the owner is unknown.
        owners: The processes that use it now and are visible from here.
    """

    error_type = "unattested_state"
    path: str
    reason: str = "unsigned"
    owners: tuple[_Holder, ...] = ()
