"""The log that spending needs, and for a session the ledger, the log and the waits in memory.

Source: decisions 39 and 40.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import anyio

from ryecore.display.text import exact_dollars
from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import MOST, NOTHING, Amount, Mark, Settled, Settlement
from ryecore.policy.limits import Limits
from ryecore.state.ledger import RequestLedger
from ryecore.state.model import Cost
from ryecore.state.transcript_format import Head

__all__ = ["Holder", "MemoryLedger", "NoLog", "RunLog", "SessionWaits", "SharedBudget"]


class RunLog(Protocol):
    """The log of a run: a thread's transcript, or a graph's journal."""

    head: Head | None
    """The last checkpoint of the chain; None before the first."""

    def append(self, kind: str, payload: Mapping[str, Any], /) -> None:
        """Record an event, to be written by the next commit at the latest."""
        ...

    async def write_ahead(self) -> None:
        """Write all records so far, before rows that depend on them, or with them."""
        ...

    async def commit(self) -> None:
        """Write all records so far, as safely as the durability demands."""
        ...


class NoLog:
    """The log of a session, which keeps no records."""

    head: Head | None = None

    def append(self, kind: str, payload: Mapping[str, Any], /) -> None:
        """Drop an event."""

    async def write_ahead(self) -> None:
        """Write nothing."""

    async def commit(self) -> None:
        """Write nothing."""


class MemoryLedger(RequestLedger):
    """The account of one session, in memory: no other process spends from it."""

    def __init__(self, account: str, limits: Limits) -> None:
        most_spend = MOST if limits.spend_microcents is None else limits.spend_microcents
        self._account = account
        self._ceiling = Amount(most_spend, MOST if limits.tokens is None else limits.tokens)
        self._spent = NOTHING
        self._holds: dict[tuple[int, int], Amount] = {}
        self._stopped = False

    def begin_with(self, spent: Amount) -> None:
        """Charge what the session had spent before it was opened."""
        self._spent = self._spent + spent

    async def hold(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        head: tuple[int, str] | None = None,
    ) -> None:
        """Hold the most that a request can cost.

        Raises:
            InsufficientBudget: Less is left, or a request cost more than was held for it.
        """
        if self._stopped:
            raise InsufficientBudget(
                "The budget of this session is stopped: a request cost more than was held for it.",
                next_step="See what it cost: session.spent. Then open another session.",
                account=self._account,
                remaining=NOTHING,
                requested=amount,
                reason="stopped",
            )
        left = self._left()
        # A request that costs nothing passes, even after an overspend.
        if amount.spend_microcents and amount.spend_microcents > left.spend_microcents:
            there, needs = left.spend_microcents, amount.spend_microcents
            raise self._lack("spend", exact_dollars(there, 8), exact_dollars(needs, 8), amount)
        if amount.tokens and amount.tokens > left.tokens:
            there, needs = left.tokens, amount.tokens
            raise self._lack("tokens", f"{there:,} tokens", f"{needs:,} tokens", amount)
        self._holds[turn, attempt] = amount

    def _lack(
        self, dimension: Literal["spend", "tokens"], there: str, needs: str, amount: Amount
    ) -> InsufficientBudget:
        return InsufficientBudget(
            f"Insufficient budget: this needs {needs}, and the session has {there} left.",
            next_step="Open the session with higher limits, or ask for less.",
            account=self._account,
            remaining=self._left(),
            requested=amount,
            dimension=dimension,
        )

    async def settle(
        self,
        thread_id: str,
        turn: int,
        attempt: int,
        actual: Amount,
        *,
        mark: Mark = "counted",
        snapshot: Cost | None = None,
    ) -> Settled:
        """Charge a request in place of its hold."""
        return self._settle(turn, attempt, actual)

    def _settle(self, turn: int, attempt: int, actual: Amount) -> Settled:
        held = self._holds.pop((turn, attempt))
        self._spent = self._spent + actual
        overspent = not held.covers(actual)
        self._stopped = self._stopped or overspent
        return Settled(overspent, cancel_requested=False, stopped=self._stopped)

    async def settle_and_hold(
        self,
        thread_id: str,
        settlements: Sequence[Settlement],
        turn: int,
        attempt: int,
        amount: Amount,
        *,
        snapshot: Cost,
        head: tuple[int, str] | None = None,
        hands_off: bool = False,
    ) -> tuple[tuple[Settled, ...], InsufficientBudget | Literal["stopped"] | None]:
        """Charge requests, and hold for the next one."""
        settled = tuple(self._settle(one.turn, one.attempt, one.actual) for one in settlements)
        try:
            await self.hold(thread_id, turn, attempt, amount)
        except InsufficientBudget as error:
            return settled, error
        return settled, None

    async def remaining(self, thread_id: str) -> Amount:
        """Return what may still be held."""
        return self._left()

    @property
    def most_left(self) -> Amount:
        """What could be held if all that is held came back."""
        return self._ceiling - self._spent

    def _left(self) -> Amount:
        return self._ceiling - self._spent - sum(self._holds.values(), start=NOTHING)

    async def synced(self) -> None:
        """Return at once: memory needs no disk."""


class Holder(Protocol):
    """The spending of a run, as others wait for it."""

    @property
    def is_holding(self) -> bool:
        """Whether it holds the cost of a request, or hasn't settled one."""
        ...

    async def settle_unwritten(self) -> None:
        """Settle what the ledger doesn't have yet."""
        ...


class SharedBudget(Protocol):
    """The budget of a run, which others of its tree may hold or have reserved."""

    @property
    def version(self) -> int:
        """Grows whenever budget may have come back."""
        ...

    def attach(self, spending: Holder, /) -> None:
        """Let others wait for what this spending holds."""
        ...

    def wake(self, *, came_back: bool) -> None:
        """Let the runs that wait look again."""
        ...

    async def wait(self, seen: int, /) -> bool:
        """Wait until budget may have come back since the version `seen`; False if none can."""
        ...

    async def most_left(self) -> Amount:
        """Return what could be held if all that is held or reserved came back."""
        ...


class SessionWaits:
    """The waits of the agents that a session's tools call, for what the others of them hold.

    Only a request that has been sent holds anything, and it ends by itself; so no two of them wait
    for each other, and where none holds, nothing is waited for.

    Attributes:
        version: Grows whenever budget may have come back.
    """

    def __init__(self, ledger: MemoryLedger) -> None:
        self._ledger = ledger
        self._spending: Holder | None = None
        self._changed: anyio.Event | None = None
        self.version = 0

    def attach(self, spending: Holder) -> None:
        """Let others wait for what this spending holds."""
        self._spending = spending

    def wake(self, *, came_back: bool) -> None:
        """Let the agents that wait look again."""
        self.version += came_back
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def wait(self, seen: int) -> bool:
        """Wait until budget may have come back since the version `seen`; False if none can."""
        spending = self._spending
        if self.version == seen and spending is not None and spending.is_holding:
            await spending.settle_unwritten()
            if self.version == seen and spending.is_holding:
                changed = self._changed = self._changed or anyio.Event()
                await changed.wait()
                return True
        return self.version != seen

    async def most_left(self) -> Amount:
        """Return what could be held if all that is held came back."""
        return self._ledger.most_left
