"""The mailboxes of an event loop, in which the results of its runs, and of its syncs, arrive.

The leader distributes the results; other tasks await their own event. On asyncio the loop leads:
it calls back whenever the mailbox's descriptor is readable. On trio the first task that waits
leads: it awaits the descriptor, and passes the lead on when it leaves or is cancelled.
"""

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import RunVar, checkpoint_if_cancelled, current_token

from ryecore import _native

__all__ = ["Arrivals", "LoopMailbox", "current_mailbox"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

if TYPE_CHECKING:
    import asyncio

    from ryecore._native import _Report  # pyright: ignore[reportPrivateUsage]
    from ryecore.lillux.processes import ProcessSpec


class _Mailbox(Protocol[T_co]):
    """A native mailbox, whose descriptor is readable while something waits in it."""

    @property
    def fd(self) -> int: ...

    def drain(self) -> "Sequence[tuple[int, T_co | OSError]]": ...


class Arrivals(Generic[T]):
    """What the tasks of one event loop wait for, each by its token."""

    __slots__ = (
        "_arrived",
        "_event",
        "_expected",
        "_followers",
        "_has_leader",
        "_is_led",
        "_source",
    )

    def __init__(self, source: _Mailbox[T]) -> None:
        self._source = source
        self._expected: set[int] = set()
        self._arrived: dict[int, T | OSError] = {}
        self._followers: dict[int, anyio.Event | asyncio.Event] = {}
        self._event: Callable[[], anyio.Event | asyncio.Event] = anyio.Event
        add_reader = getattr(current_token().native_token, "add_reader", None)
        self._is_led = add_reader is not None
        self._has_leader = False
        if add_reader is not None:
            from asyncio import Event  # noqa: PLC0415 - where it runs already

            self._event = Event  # anyio's looks up the loop for each event
            # In a context of its own, because it outlives the first task.
            Context().run(add_reader, source.fd, self.sort)

    def expect(self, token: int) -> None:
        """Keep what arrives for a token until it is taken or forgotten."""
        self._expected.add(token)

    def forget(self, token: int) -> None:
        """Expect nothing any more for a token."""
        self._expected.discard(token)

    async def take(self, token: int) -> T:
        """Wait for what is expected for a token, and return it, or raise it if it is an OSError."""
        if token not in self._arrived and not self._has_leader:
            self.sort()  # it may have arrived since the loop looked; a leader looks for itself
        try:
            while token not in self._arrived:
                if self._is_led:
                    self._followers[token] = woken = self._event()
                    await woken.wait()
                else:
                    await self._lead(token)
        finally:
            self._followers.pop(token, None)
            if not self._is_led and self._followers:
                # A task that wakes without a result leads.
                next(iter(self._followers.values())).set()
        outcome = self._arrived.pop(token)
        self._expected.discard(token)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    async def _lead(self, token: int) -> None:
        self._is_led = self._has_leader = True
        try:
            while token not in self._arrived:
                await anyio.wait_readable(self._source.fd)
                self.sort()
        finally:
            self._is_led = self._has_leader = False

    def sort(self) -> None:
        """Keep what has arrived for those who expect it, and wake who waits for it."""
        for arrived, outcome in self._source.drain():
            if arrived in self._expected:
                self._arrived[arrived] = outcome
            if follower := self._followers.get(arrived):
                follower.set()


class LoopMailbox:
    """The runs that the tasks of one event loop wait for."""

    __slots__ = ("_arrivals", "_mailbox")

    def __init__(self) -> None:
        self._mailbox = _native.Mailbox()
        self._arrivals: Arrivals[_Report] = Arrivals(self._mailbox)

    async def run(self, spec: "ProcessSpec") -> "_Report":
        """Start a run, wait for its end, and return its report; a cancelled wait ends it first."""
        await checkpoint_if_cancelled()
        token = self._mailbox.start(spec)
        self._arrivals.expect(token)
        try:
            return await self._arrivals.take(token)
        except OSError:
            raise
        except GeneratorExit:
            # The loop is gone, and no task can wait.
            _native.cancel(token)
            raise
        except BaseException:
            _native.cancel(token)
            await self._reaped(token)
            raise
        finally:
            self._arrivals.forget(token)

    async def _reaped(self, token: int) -> None:
        """Wait for a cancelled run's end, which TERM, grace and KILL bound."""
        with anyio.CancelScope(shield=True):
            while True:
                try:
                    await self._arrivals.take(token)
                except OSError:
                    return
                except anyio.get_cancelled_exc_class():
                    # asyncio's own cancel() passes a shield. The run's end can't be skipped.
                    continue
                else:
                    return


_mailboxes: RunVar[LoopMailbox] = RunVar("ryecore.lillux.mailbox")


def current_mailbox() -> LoopMailbox:
    """Return the mailbox of the running event loop."""
    mailbox = _mailboxes.get(None)
    if mailbox is None:
        mailbox = LoopMailbox()
        _mailboxes.set(mailbox)
    return mailbox
