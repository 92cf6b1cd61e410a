"""The context that every action takes: on whose behalf, within what."""

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from threading import RLock
from typing import Self

from attrs import evolve, field, frozen

__all__ = ["CallContext", "CancelToken"]

EventSink = Callable[[Mapping[str, object]], None]


class CancelToken:
    """Cancels what was started with it. Any thread may cancel, and any signal's handler.

    Nothing undoes it.
    """

    def __init__(self) -> None:
        # A handler may interrupt its own thread in here at any line, so the lock lets a thread in
        # again, and each method leaves a list that is right whatever happens between its lines.
        self._lock = RLock()
        self._callbacks: list[Callable[[], None]] = []
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancel, and tell everyone who asked to be told. Calling it again does nothing."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            callbacks = self._callbacks.copy()
            self._callbacks.clear()
        with ExitStack() as told:  # one that raises keeps none from being told
            for callback in reversed(callbacks):
                told.callback(callback)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have a function called on cancellation, at once where that has happened.

        Returns:
            A function that takes the wish back.
        """
        with self._lock:
            self._callbacks.append(callback)
            is_late = self._cancelled and self._forget(callback)
        if is_late:
            callback()

        def forget() -> None:
            self._forget(callback)

        return forget

    def _forget(self, callback: Callable[[], None]) -> bool:
        """Whether it was still to be told."""
        with self._lock, suppress(ValueError):
            self._callbacks.remove(callback)
            return True
        return False


def _new_call_id() -> str:
    return os.urandom(16).hex()


@frozen
class CallContext:
    """On whose behalf an action runs, and within what.

    Attributes:
        capabilities: What the caller may do; None for the host itself, which may do everything.
        budget_account: The ledger account that pays: the calling thread or run; None for the host.
            What is started or launched for it becomes its child, bounded by its signed file;
            without that file the start is refused.
        depth: How many actions lie between this one and the host.
        deadline: The monotonic time in seconds (`time.monotonic`) when it must have ended.
        cancellation: Cancels the action from outside.
        call_id: The id of this call in events, from which a tool's `RYE_CALL_ID` is made. A run
            that repeats the call after a death uses the same one.
        parent: The call that this one is part of.
        event_sink: Told each trace event as it happens; on a worker thread while a chain is made
            ready, on the event loop's own afterwards, never on both at once.
    """

    capabilities: frozenset[str] | None = None
    budget_account: str | None = None
    depth: int = 0
    deadline: float | None = None
    cancellation: CancelToken | None = None
    call_id: str = field(factory=_new_call_id)
    parent: str | None = None
    event_sink: EventSink | None = None

    def part(self, call_id: str | None = None) -> Self:
        """Return the context of a call that is part of this one.

        Args:
            call_id: Its id; by default one that no other call has.
        """
        return evolve(self, call_id=call_id or _new_call_id(), parent=self.call_id)
