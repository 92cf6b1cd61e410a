"""The settlements of a run that its account doesn't have yet, and its total with them.

Source: decisions 39 and 40.
"""

from collections.abc import Mapping
from contextlib import suppress

from attrs import asdict

from ryecore.errors import BudgetError
from ryecore.frozen import frozen
from ryecore.policy.budget import NOTHING, Account, Amount, Mark
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost

__all__ = ["Settlement", "Unwritten"]


@frozen(slots=False)
class Settlement:
    """The cost of a request: what was held for it, what it was, and how that is known."""

    turn: int
    attempt: int
    held: Amount
    actual: Amount
    mark: Mark

    @property
    def is_overspent(self) -> bool:
        """Whether it cost more than was held for it."""
        held, actual = self.held, self.actual
        return actual.spend_microcents > held.spend_microcents or actual.tokens > held.tokens

    def to_dict(self) -> dict[str, object]:
        """Return the payload of the record of an overspent request."""
        return {"held": asdict(self.held), "spent": asdict(self.actual), "turn": self.turn}


@frozen
class Unwritten:
    """The total cost of a run, and the requests that its account has to settle yet, in order."""

    thread_id: str
    cost: Cost
    settlements: tuple[Settlement, ...]

    @property
    def overspent(self) -> tuple[Mapping[str, object], ...]:
        """The payloads of the events for overspent requests that are still to be written."""
        return tuple(one.to_dict() for one in self.settlements if one.is_overspent)

    def total(self, account: Account) -> Amount:
        """Return what the run and its children will have spent, from its account before `write`.

        What is still held then is charged at the end.
        """
        settled = (one.held for one in self.settlements)
        held = sum(settled, start=NOTHING)
        return self.cost.amount.at_least(account.own) + account.children + account.held - held

    async def write(self, ledger: BudgetLedger) -> None:
        """Settle the requests, and report the total. A repeated call charges nothing twice.

        This comes before the account is closed, which charges every open hold in full.
        """
        cost = self.cost
        with suppress(BudgetError):  # without an account there is nothing to charge
            for one in self.settlements:
                await ledger.settle(
                    self.thread_id, one.turn, one.attempt, one.actual, mark=one.mark
                )
            await ledger.report_actual(self.thread_id, cost.amount)
