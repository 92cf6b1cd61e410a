"""The settlements of a run that its account doesn't have yet, and its total with them.

Source: decisions 39 and 40.
"""

from collections.abc import Mapping
from contextlib import suppress

from attrs import asdict

from ryecore.errors import BudgetError
from ryecore.frozen import frozen
from ryecore.policy.budget import NOTHING, Account, Amount, Settlement
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost

__all__ = ["Unwritten", "overspent_payload"]


def overspent_payload(settlement: Settlement) -> dict[str, object]:
    """Return the payload of the record of an overspent request."""
    return {
        "held": asdict(settlement.held),
        "spent": asdict(settlement.actual),
        "turn": settlement.turn,
    }


@frozen
class Unwritten:
    """The total cost of a run, and the requests that its account has to settle yet, in order."""

    thread_id: str
    cost: Cost
    settlements: tuple[Settlement, ...]

    @property
    def overspent(self) -> tuple[Mapping[str, object], ...]:
        """The payloads of the events for overspent requests that are still to be written."""
        return tuple(overspent_payload(one) for one in self.settlements if one.is_overspent)

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
