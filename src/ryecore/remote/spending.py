"""What a run on a node may spend: held as a whole at home, and settled from the node's report.

Source: decision 72.
"""

from typing import Final

from ryecore.agent.settlements import Unwritten
from ryecore.frozen import frozen
from ryecore.policy.budget import NOTHING, Amount, Mark, Settlement
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost

__all__ = ["ATTEMPT", "TURN", "RemoteSpending"]

TURN: Final = 1
ATTEMPT: Final = 1


@frozen
class _Reported:
    actual: Amount
    mark: Mark


class RemoteSpending:
    """The one hold of a run on a node.

    Without a report the end of the account charges it in full.

    Attributes:
        cost: What the run has cost, as far as it is known.
    """

    def __init__(self, run_id: str, ledger: BudgetLedger, ceiling: Amount) -> None:
        self._run_id = run_id
        self._ledger = ledger
        self._ceiling = ceiling
        self._reported: _Reported | None = None
        self._is_settled = False
        self.cost = Cost()

    async def hold(self) -> None:
        """Hold all that the run may spend, before anything leaves. A repeated hold does nothing."""
        await self._ledger.hold(self._run_id, TURN, ATTEMPT, self._ceiling)

    def report(self, cost: Cost, *, assumed: bool) -> None:
        """Note what the node reports. It is charged in full, also above the hold."""
        self.cost = cost
        self._reported = _Reported(cost.amount, "assumed" if assumed else "counted")

    def free(self) -> None:
        """Note that the node refused the run, so that nothing was spent."""
        self._reported = _Reported(NOTHING, "counted")

    @property
    def has_overspent(self) -> bool:
        """Whether the node reports more than was held."""
        return any(one.is_overspent for one in self.waiting().settlements)

    async def settle_unwritten(self) -> None:
        """Settle what is reported, so that a child of the same parent can have the rest."""
        if self._reported is not None:
            await self.waiting().write(self._ledger)
            self._is_settled = True

    def unwritten(self) -> Unwritten:
        """Return what the account has to settle yet, at a run's end without a result."""
        return self.waiting()

    def waiting(self) -> Unwritten:
        """Return what the account has to settle yet."""
        found = self._reported
        settlements: tuple[Settlement, ...] = ()
        if found is not None and not self._is_settled:
            settlements = (Settlement(TURN, ATTEMPT, self._ceiling, found.actual, found.mark),)
        return Unwritten(self._run_id, self.cost, settlements)
