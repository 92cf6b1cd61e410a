"""Hold what a try may cost at most before it is made, and settle what it did cost after.

Source: decisions 39 and 40.
"""

from typing import Final, Literal

from attrs import frozen

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.errors import InsufficientBudget
from ryecore.llm.cost import AttemptCost, CostTracker
from ryecore.llm.estimate import TokenEstimate
from ryecore.llm.options import GO, AttemptVerdict, Refuse
from ryecore.llm.plan import AttemptRecord, FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.policy.budget import Amount, Dimension, Mark
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost
from ryecore.threads.harness import LimitHit, SafetyHarness
from ryecore.threads.loop.recorder import Recorder

__all__ = ["MAX_OUTPUT_TOKENS", "Spending"]

MAX_OUTPUT_TOKENS: Final = 16_384
"""How long an answer may be where neither host nor provider says it, so that a hold is bounded."""

_LEAST_OUTPUT: Final = 16
_AMPLE: Final = 4
_NO_ANSWER: Final = frozenset({"unavailable", "unknown"})


@frozen
class _Held:
    """What is held for the try that is under way."""

    turn: int
    attempt: int
    amount: Amount


class Spending:
    """What one thread spends: the account's holds and settlements, in step with the tries.

    Args:
        thread_id: The thread, which is its account.
        ledger: The ledger.
        harness: The thread's limits.
        deps: What models cost, and which may be asked without a price.
        recorder: Where each try is recorded, before it is made and after.

    Attributes:
        tracker: What the thread's tries cost.
        cost: What the thread has used itself.
        limit: The limit that refused the last try; None where none did.
        stopped: Whether a settlement above its hold stops the thread.
        overspent: Of what that took too much.
        handoff_requested: Whether somebody wishes that another thread goes on.
        input_estimate: How many tokens the last try read, roughly.
        is_tight: Whether a hold was refused, so that what is left is asked for before each turn.
    """

    def __init__(
        self,
        thread_id: str,
        ledger: BudgetLedger,
        harness: SafetyHarness,
        deps: AgentRunnerDeps,
        recorder: Recorder,
    ) -> None:
        self._thread_id = thread_id
        self._ledger = ledger
        self._harness = harness
        self._unpriced = deps.unpriced_models
        self._recorder = recorder
        self._attempt = 0
        self._held: _Held | None = None
        self._estimate = TokenEstimate()
        self.input_estimate = 0
        self.tracker = CostTracker(deps.price_of)
        self.cost = Cost()
        self.limit: LimitHit | None = None
        self.stopped = False
        self.overspent: Dimension = "spend"
        self.handoff_requested = False
        self.is_tight = False

    def begin_turn(self, turn: int) -> None:
        """Count a turn. Asking again after an error is the same one."""
        if turn != self._recorder.turn:
            self._recorder.turn = turn
            self._attempt = 0
            cost = self.cost
            self.cost = Cost(
                cost.turns + 1, cost.input_tokens, cost.output_tokens, cost.spend_microcents
            )

    def output_bound(self, wanted: int, input_tokens: int, provider: str, model: str) -> int:
        """How long the next answer may be, so that its hold is within what is left.

        Args:
            wanted: How long it may be at most.
            input_tokens: How much is about to be read, roughly.
            provider: Who is asked.
            model: The model.

        Returns:
            The bound. Where not even a short answer is within it, that of a short one: the ledger
            refuses it, and says what is missing.
        """
        input_tokens = max(input_tokens, self.input_estimate)  # of a try that was refused: exactly
        most = Amount(
            self.tracker.worst_case(provider, model, input_tokens, wanted) or 0,
            input_tokens + wanted,
        )
        limits, cost = self._harness.limits, self.cost
        used = Amount(cost.spend_microcents, cost.input_tokens + cost.output_tokens)
        if (
            not self.is_tight  # children may have used what this thread doesn't know of
            and _is_ample(limits.spend_microcents, used.spend_microcents, most.spend_microcents)
            and _is_ample(limits.tokens, used.tokens, most.tokens)
        ):
            return wanted  # the ledger itself has the last word
        left = self._ledger.remaining(self._thread_id)
        bound = min(wanted, left.tokens - input_tokens)
        for_input = self.tracker.worst_case(provider, model, input_tokens, 0)
        for_thousand = self.tracker.worst_case(provider, model, 0, 1000)
        if for_input is not None and for_thousand:
            bound = min(bound, (left.spend_microcents - for_input) * 1000 // for_thousand)
        return max(bound, _LEAST_OUTPUT)

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Record the intent, and hold the worst case. The try is refused where that is too much."""
        provider, model = entry.provider.provider_id, entry.model
        self.input_estimate = self._estimate.of(request)
        output = request.max_output_tokens or MAX_OUTPUT_TOKENS
        spend = self.tracker.worst_case(provider, model, self.input_estimate, output)
        if spend is None and not self._may_be_unpriced(provider, model):
            return Refuse(
                "unpriced_model",
                f"{provider}/{model} has no price, so its spend limit can't be kept. Give it one "
                "with AgentRunnerDeps.price_of or the extra `prices`, or name it in "
                "AgentRunnerDeps.unpriced_models.",
            )
        amount = Amount(spend or 0, self.input_estimate + output)
        self._attempt += 1
        turn, recorder = self._recorder.turn, self._recorder
        head = recorder.head
        at = None if head is None else (head.offset, head.digest)
        recorder.tell(
            "model_call",
            {
                "turn": turn,
                "attempt": self._attempt,
                "provider": provider,
                "model": model,
                "held_spend_microcents": amount.spend_microcents,
                "held_tokens": amount.tokens,
                "messages": len(request.messages),
            },
        )
        try:
            self._ledger.hold(self._thread_id, turn, self._attempt, amount, head=at)
        except InsufficientBudget as error:
            self.limit = self._hit(error)
            self._tell_end(Amount(), "refused", None, 0, 0, "freed")
            return Refuse(self.limit.code, self.limit.message)
        self._held = _Held(turn, self._attempt, amount)
        return GO

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Settle what a try has cost."""
        held, self._held = self._held, None
        if held is None:  # it was never allowed, so it never left
            return
        usage = cost.usage
        read, written = usage.total_input_tokens, usage.total_output_tokens
        spend = cost.cost_microcents
        mark: Mark = "estimated" if cost.estimated else "counted"
        has_counted = record.usage is not None and usage.total_tokens > 0  # an answer has some
        if not has_counted and not cost.estimated:
            if record.outcome == "success":
                # It didn't count, so the most that it can have been is taken.
                read, written = self.input_estimate, held.amount.tokens - self.input_estimate
                spend, mark = held.amount.spend_microcents, "assumed"
            elif (
                record.usage is None
                and record.status is None
                and (record.kind in _NO_ANSWER or record.kind is None)
            ):
                # It left, and nobody said what became of it.
                read, written, mark = self.input_estimate, 0, "estimated"
                worst = self.tracker.worst_case(record.provider, record.model, read, 0)
                spend = min(worst or 0, held.amount.spend_microcents)
        actual = Amount(spend, read + written)
        before = self.cost
        self.cost = Cost(
            before.turns,
            before.input_tokens + read,
            before.output_tokens + written,
            before.spend_microcents + spend,
        )
        self._tell_end(actual, record.outcome, record.kind, read, written, mark)
        settled = self._ledger.settle(
            self._thread_id, held.turn, held.attempt, actual, mark=mark, snapshot=self.cost
        )
        if settled.cancel_requested:
            self._harness.cancellation.cancel()
        if settled.overspent:
            in_money = actual.spend_microcents > held.amount.spend_microcents
            self.overspent = "spend" if in_money else "tokens"
            self._recorder.tell(
                "budget_overspent",
                {"held": _shown(held.amount), "spent": _shown(actual), "turn": held.turn},
            )
        self.stopped = self.stopped or settled.stopped
        self.handoff_requested = settled.handoff_requested

    def _tell_end(
        self,
        actual: Amount,
        outcome: str,
        kind: str | None,
        input_tokens: int,
        output_tokens: int,
        mark: Mark | Literal["freed"],
    ) -> None:
        self._recorder.append(
            "model_call_end",
            {
                "turn": self._recorder.turn,
                "attempt": self._attempt,
                "outcome": outcome,
                "kind": kind,
                "input_tokens": input_tokens,
                "output_tokens": output_tokens,
                "spend_microcents": actual.spend_microcents,
                "mark": mark,
            },
        )

    def _may_be_unpriced(self, provider: str, model: str) -> bool:
        if self._harness.limits.spend_microcents is None:
            return True
        return f"{provider}/{model}" in self._unpriced or f"{provider}/*" in self._unpriced

    def _hit(self, error: InsufficientBudget) -> LimitHit:
        limits, cost = self._harness.limits, self.cost
        if error.dimension == "tokens":
            used = cost.input_tokens + cost.output_tokens
            return LimitHit("tokens_exceeded", used, limits.tokens or 0, error.message)
        return LimitHit.of_spend(cost.spend_microcents, limits.spend_microcents or 0, error.message)


def _is_ample(limit: int | None, used: int, needed: int) -> bool:
    return limit is None or limit - used >= _AMPLE * needed


def _shown(amount: Amount) -> dict[str, int]:
    return {"spend_microcents": amount.spend_microcents, "tokens": amount.tokens}
