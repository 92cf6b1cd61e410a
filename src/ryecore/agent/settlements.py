"""The settlements of a run that its account doesn't have yet, and its total with them.

Source: decisions 39 and 40.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal

from attrs import asdict

from ryecore.errors import BudgetError
from ryecore.frozen import frozen
from ryecore.llm.cost import AttemptCost, CostTracker
from ryecore.llm.fallback_rules import AttemptRecord
from ryecore.policy.budget import NOTHING, Account, Amount, CallCost, Mark, Settlement
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost

__all__ = ["Held", "Unwritten", "cost_of_attempt", "end_payload", "overspent_payload"]

_NO_ANSWER: Final = frozenset({"unavailable", "unknown"})


@frozen(slots=False)
class Held:
    """The hold of the attempt in progress, with that of the caller's budget."""

    turn: int
    attempt: int
    amount: Amount
    above: object = None

    def settled(self, actual: Amount, mark: Mark) -> Settlement:
        """Return the settlement of the hold at an actual cost."""
        return Settlement(self.turn, self.attempt, self.amount, actual, mark)


def cost_of_attempt(
    record: AttemptRecord,
    cost: AttemptCost,
    held: Amount,
    input_estimate: int,
    tracker: CostTracker,
) -> CallCost:
    """Return what an attempt cost, estimated where its answer doesn't say it."""
    usage = cost.usage
    read, written = usage.total_input_tokens, usage.total_output_tokens
    spend = cost.cost_microcents
    mark: Mark = "estimated" if cost.estimated else "counted"
    has_counted = record.usage is not None and read + written > 0  # an answer reports some
    if not has_counted and not cost.estimated:
        if record.outcome == "success":
            # A medium without reported tokens: only those of the request are known.
            read, mark = input_estimate, "estimated"
            worst = tracker.worst_case(record.provider, record.model, read, 0, len(record.media))
            spend = min(worst or 0, held.spend_microcents)
        elif (
            record.usage is None
            and record.status is None
            and (record.kind in _NO_ANSWER or record.kind is None)
        ):
            # It was sent, and its outcome was not reported.
            read, written, mark = input_estimate, 0, "estimated"
            worst = tracker.worst_case(record.provider, record.model, read, 0)
            spend = min(worst or 0, held.spend_microcents)
    cached, saved = usage.cache_read_tokens, cost.cache_saved_microcents
    return CallCost(read, written, spend, mark, record.outcome, cost.priced, cached, saved)


def end_payload(
    turn: int, attempt: int, cost: CallCost, kind: str | None, mark: Mark | Literal["freed"]
) -> dict[str, object]:
    """Return the payload of the record of an attempt's end."""
    saved = cost.cache_saved_microcents
    return {
        "turn": turn,
        "attempt": attempt,
        "outcome": cost.outcome,
        "kind": kind,
        "input_tokens": cost.input_tokens,
        "output_tokens": cost.output_tokens,
        "spend_microcents": cost.spend_microcents,
        "mark": mark,
        **({"cached_tokens": cost.cached_tokens} if cost.cached_tokens else {}),
        **({"cache_saved_microcents": saved} if saved else {}),
        **({} if cost.priced else {"priced": False}),
    }


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
    own: Amount = NOTHING
    """The least that its account has been charged, as far as that is known."""

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

        The account knows a total that its settlements add up to.

        This comes before the account is closed, which charges every open hold in full.
        """
        cost = self.cost
        with suppress(BudgetError):  # without an account there is nothing to charge
            for one in self.settlements:
                await ledger.settle(
                    self.thread_id, one.turn, one.attempt, one.actual, mark=one.mark
                )
            settled = sum((one.actual for one in self.settlements), start=self.own)
            if not settled.covers(cost.amount):
                await ledger.report_actual(self.thread_id, cost.amount)
