"""The waits of runs for budget that others of their tree hold or have reserved.

Source: docs/design/threads.md#budget; decisions 39 and 40.
"""

from collections.abc import Awaitable, Callable, Iterator

import anyio

from ryecore.agent.ledgers import Holder
from ryecore.errors import InsufficientBudget
from ryecore.policy.budget import MOST, Amount
from ryecore.policy.limits import LayeredLimits
from ryecore.state.ledger import BudgetLedger
from ryecore.state.refusals import insufficient

__all__ = ["BudgetWaits"]


class _Run:
    """An open run, and what others need to know to wait for it."""

    def __init__(self, parent_id: str | None, root_id: str) -> None:
        self.parent_id = parent_id
        self.root_id = root_id
        self.spending: Holder | None = None
        self.reserves = False
        self.waiters: set[object] = set()
        self.takes_less = False

    @property
    def is_holding(self) -> bool:
        """Whether the end of a request of its own, or of an agent it calls, gives budget back."""
        return self.spending is not None and self.spending.is_holding


class BudgetWaits:
    """The open runs of one Rye, and which of them wait for budget.

    A run, or an agent that it calls, waits while budget of its tree can come back, other than that
    of runs above: what is held comes back with the end of a request; what a run has reserved comes
    back with its end, unless it or a run below it waits. So the last run that could wait is refused
    instead, and no runs wait for each other. Runs of other processes aren't waited for.

    Attributes:
        version: Grows whenever budget may have come back.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._trees: dict[str, dict[str, _Run]] = {}  # by their roots
        self._waiting: set[_Run] = set()
        self._changed = anyio.Event()
        self.version = 0

    def attach(self, run_id: str, spending: Holder) -> None:
        """Add the spending of a run that is open."""
        if (run := self._runs.get(run_id)) is not None:
            run.spending = spending

    def of(self, run_id: str, ledger: BudgetLedger) -> "_RunsBudget":
        """Return a run's budget, for its spending."""
        return _RunsBudget(self, run_id, ledger)

    def close(self, run_id: str) -> None:
        """Remove a run whose account is closed."""
        run = self._runs.pop(run_id, None)
        if run is not None:
            tree = self._trees[run.root_id]
            del tree[run_id]
            if not tree:
                del self._trees[run.root_id]
            self.wake()

    def wake(self, *, came_back: bool = True) -> None:
        """Let the runs that wait look again: budget may have come back, or none was taken."""
        self.version += came_back
        if self._waiting:  # seldom, and this is called for each request
            changed, self._changed = self._changed, anyio.Event()
            for run in self._waiting:
                run.waiters.clear()
            self._waiting.clear()
            changed.set()

    async def claim(
        self,
        run_id: str,
        parent_id: str | None,
        claim: Callable[[], Awaitable[int]],
    ) -> int:
        """Open a run's account by `claim`, once its parent has as much left as it wants.

        Where that can't come back any more, it gets what is left, or is refused.
        """
        parent = None if parent_id is None else self._runs.get(parent_id)
        root_id = parent.root_id if parent is not None else parent_id or run_id
        run = self._runs[run_id] = _Run(parent_id, root_id)
        self._trees.setdefault(root_id, {})[run_id] = run
        try:
            while True:
                seen = self.version
                try:
                    return await claim()
                except InsufficientBudget as error:
                    if error.reason != "exhausted" or run.takes_less:
                        raise
                    run.takes_less = not await self.wait(run_id, seen)
        except BaseException:
            self.close(run_id)
            raise

    def reserve(self, run_id: str, planned: LayeredLimits, granted: Amount, parent_id: str) -> None:
        """Note what a run has reserved; raise where a wait can make it more."""
        run, limits = self._runs.get(run_id), planned.limits
        if run is None:
            return
        wanted = Amount(
            (limits.spend_microcents or 0) * planned.declares_spend,
            (limits.tokens or 0) * planned.declares_tokens,
        )
        if not granted.covers(wanted) and not run.takes_less and self._has_others(run_id, run):
            in_money = granted.spend_microcents < wanted.spend_microcents
            raise insufficient(parent_id, "spend" if in_money else "tokens", granted, wanted)
        run.reserves = planned.declares_spend or planned.declares_tokens

    async def wait(self, run_id: str, seen: int) -> bool:
        """Wait until budget may have come back since the version `seen`.

        Returns:
            Whether it may have; False where none can come back, so that nothing is waited for.
        """
        if self.version != seen:
            return True
        run = self._runs.get(run_id)
        if run is None:
            return False
        for other in tuple(self._trees[run.root_id].values()):
            if other.spending is not None and other.spending.is_holding:
                await other.spending.settle_unwritten()
        if self.version != seen:
            return True
        if self._runs.get(run_id) is not run or not self._has_others(run_id, run):
            return False
        waiter = object()  # of several, where agents are called at once
        run.waiters.add(waiter)
        self._waiting.add(run)
        changed = self._changed
        try:
            await changed.wait()
        finally:
            run.waiters.discard(waiter)
            if not run.waiters:
                self._waiting.discard(run)
        return True

    def _has_others(self, run_id: str, run: _Run) -> bool:
        tree = self._trees[run.root_id]
        _, *above = self._above(run_id)
        if any(one.is_holding and one_id not in above for one_id, one in tree.items()):
            return True
        reserving = {one_id for one_id, one in tree.items() if one.reserves}
        reserving.difference_update(above, (run_id,))
        for one_id, one in tree.items() if reserving else ():
            if one.waiters:
                reserving.difference_update(self._above(one_id))
        return bool(reserving)

    def _above(self, run_id: str) -> Iterator[str]:
        """Return a run and those above it, as far as they are known here."""
        above: str | None = run_id
        while above is not None:
            yield above
            run = self._runs.get(above)
            above = None if run is None else run.parent_id


class _RunsBudget:
    """The budget of one run, which others of its tree may hold or have reserved."""

    def __init__(self, waits: BudgetWaits, run_id: str, ledger: BudgetLedger) -> None:
        self._waits = waits
        self._run_id = run_id
        self._ledger = ledger

    @property
    def version(self) -> int:
        """Grows whenever budget may have come back."""
        return self._waits.version

    def attach(self, spending: Holder) -> None:
        """Let others wait for what this spending holds."""
        self._waits.attach(self._run_id, spending)

    def wake(self, *, came_back: bool) -> None:
        """Let the runs that wait look again."""
        self._waits.wake(came_back=came_back)

    async def wait(self, seen: int) -> bool:
        """Wait until budget may have come back since the version `seen`; False if none can."""
        return await self._waits.wait(self._run_id, seen)

    async def most_left(self) -> Amount:
        """Return what the run could hold if all that is held or reserved on its path came back."""
        best, spend, tokens = Amount(MOST, MOST), True, True
        above: str | None = self._run_id
        while above is not None and (spend or tokens):
            account = await self._ledger.account(above)
            left = account.ceiling - account.total
            best = best.at_most(
                Amount(left.spend_microcents if spend else MOST, left.tokens if tokens else MOST)
            )
            spend = spend and not account.reserves_spend
            tokens = tokens and not account.reserves_tokens
            above = account.parent_id
        return best
