"""Settlements that could not be written into the ledger, kept until they can be.

Source: decisions 39 and 40.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from attrs import asdict, frozen

from ryecore.errors import BudgetError
from ryecore.policy.budget import Amount, Mark
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost

__all__ = ["OVERSPENT", "Settlement", "Unwritten"]

OVERSPENT: Final = "budget_overspent"
"""The type of the record of a try that cost more than was held for it."""


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

    @property
    def is_overspent(self) -> bool:
        """Whether it cost more than was held."""
        held, actual = self.held, self.actual
        return actual.spend_microcents > held.spend_microcents or actual.tokens > held.tokens

    def to_dict(self) -> dict[str, object]:
        """Return what the record of an overspent try says."""
        return {"held": asdict(self.held), "spent": asdict(self.actual), "turn": self.turn}


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

    @property
    def overspent(self) -> tuple[Mapping[str, object], ...]:
        """What the records of those that cost more than was held say; none is written yet."""
        return tuple(one.to_dict() for one in self.settlements if one.is_overspent)

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
