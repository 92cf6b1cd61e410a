"""Settlements that could not be written into the ledger, kept until they can be.

Source: decisions 39 and 40.
"""

from contextlib import suppress

from attrs import frozen

from ryecore.errors import BudgetError
from ryecore.policy.budget import Amount, Mark
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost

__all__ = ["Settlement", "Unwritten"]


@frozen
class Settlement:
    """What a try cost.

    Attributes:
        turn: Its turn.
        attempt: Which try of that turn.
        held: What was held for it.
        actual: What it cost.
        mark: How that is known.
    """

    turn: int
    attempt: int
    held: Amount
    actual: Amount
    mark: Mark


@frozen
class Unwritten:
    """What a thread or run has spent, and what of it is not in the ledger yet.

    Attributes:
        thread_id: The thread or run, which is its account.
        cost: What it has used in all.
        settlements: The tries to settle, in their order.
    """

    thread_id: str
    cost: Cost
    settlements: tuple[Settlement, ...]

    def write(self, ledger: BudgetLedger) -> None:
        """Settle the tries, and report the total. Repeated, it charges nothing twice.

        It comes before the account is closed, which charges every hold that still stands.

        Args:
            ledger: The ledger.

        Raises:
            StateError: Nothing can be written.
        """
        cost = self.cost
        total = Amount(cost.spend_microcents, cost.input_tokens + cost.output_tokens)
        with suppress(BudgetError):  # without an account there is nothing to charge
            for one in self.settlements:
                ledger.settle(self.thread_id, one.turn, one.attempt, one.actual, mark=one.mark)
            ledger.report_actual(self.thread_id, total)
