"""The spending of a run: the highest cost of a request is held first, the actual one settled.

Threads and graph runs spend by the same rules; each records it in its own log.

Source: decisions 39 and 40.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol

import anyio.lowlevel

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.convert.money import to_usd
from ryecore.errors import InsufficientBudget
from ryecore.frozen import frozen
from ryecore.llm.cost import AttemptCost, CostTracker, TokenEstimate
from ryecore.llm.fallback_rules import GO, AttemptRecord, AttemptVerdict, FallbackPlanEntry, Refuse
from ryecore.llm.request import LlmRequest
from ryecore.policy import CancelToken
from ryecore.policy.budget import Amount, Dimension, Mark, Settled, Settlement
from ryecore.policy.limits import LimitHit, Limits
from ryecore.runs.settlements import Unwritten, overspent_payload
from ryecore.state.ledger import BudgetLedger
from ryecore.state.model import Cost
from ryecore.state.transcript_format import Head

__all__ = ["MAX_OUTPUT_TOKENS", "OVERSPENT", "RunLog", "Spending"]

OVERSPENT: Final = "budget_overspent"
"""The type of the event for a request that cost more than was held for it."""

MAX_OUTPUT_TOKENS: Final = 16_384
"""The most tokens of an answer where neither host nor provider sets a bound."""

_LEAST_OUTPUT: Final = 16
_LOOK: Final = "See what it cost, and start another one: rye threads show."
_AMPLE: Final = 4
_HOW_TO_PRICE: Final = {
    False: "with AgentRunnerDeps.price_of or the extra `prices`",
    True: "with Price(per_medium=...) by AgentRunnerDeps.price_of",
}
_NO_ANSWER: Final = frozenset({"unavailable", "unknown"})


class RunLog(Protocol):
    """The log of a run: a thread's transcript, or a graph's journal."""

    head: Head | None
    """The last checkpoint of the chain; None before the first."""

    def append(self, kind: str, payload: Mapping[str, Any], /) -> None:
        """Record an event, to be written by the next commit at the latest."""
        ...

    async def write_ahead(self) -> None:
        """Write all records so far, before rows of the registry that depend on them."""
        ...

    async def commit(self) -> None:
        """Write all records so far, as safely as the durability demands."""
        ...


@frozen(slots=False)
class _Held:
    """The hold of the attempt in progress."""

    turn: int
    attempt: int
    amount: Amount

    def settled(self, actual: Amount, mark: Mark) -> Settlement:
        """Return the settlement of the hold at an actual cost."""
        return Settlement(self.turn, self.attempt, self.amount, actual, mark)


class Spending:
    """The spending of one run: the holds and settlements of its account, attempt by attempt.

    The log records each attempt before it is made and after. A settlement that finds a request to
    stop cancels the run. No request is sent after one to hand off, where the run `hands_off`.

    Attributes:
        cost: Its own cost, without its children's.
        turn: The current turn; 0 before the first.
        limit: The limit that refused the last attempt.
        stopped: Whether a settlement above its hold stops the run.
        overspent: What that settlement used too much of.
        input_estimate: The rough number of input tokens of the last attempt.
        is_tight: Whether a hold was refused, so that the balance is read before each turn.
    """

    def __init__(
        self,
        thread_id: str,
        ledger: BudgetLedger,
        limits: Limits,
        deps: AgentRunnerDeps,
        log: RunLog,
        cancellation: CancelToken,
        *,
        hands_off: bool = False,
    ) -> None:
        self._thread_id = thread_id
        self._ledger = ledger
        self._limits = limits
        self._unpriced = deps.unpriced_models
        self._log = log
        self._cancellation = cancellation
        self._hands_off = hands_off
        self._attempt = 0
        self._is_counted = False
        self._refused_turn = 0
        self._held: _Held | None = None
        self._unwritten: list[Settlement] = []
        self._estimate = TokenEstimate()
        self.input_estimate = 0
        self.tracker = CostTracker(deps.price_of)
        self.cost = Cost()
        self.turn = 0
        self.limit: LimitHit | None = None
        self.stopped = False
        self.overspent: Dimension = "spend"
        self.handoff_requested = False
        self.is_tight = False

    def begin_turn(self, turn: int) -> None:
        """Begin a turn. A request that is repeated after an error belongs to the same turn.

        The turn counts once one of its requests is allowed.
        """
        if turn != self.turn:
            self.turn = turn
            self._attempt = 0
            self._is_counted = False

    async def output_bound(self, wanted: int, input_tokens: int, provider: str, model: str) -> int:
        """Return the most tokens that the next answer may have, so that its hold can be paid.

        Where the balance doesn't suffice even for a short answer, it is that of a short one: the
        ledger refuses it, and says what is missing.
        """
        input_tokens = max(input_tokens, self.input_estimate)  # exact after a refused attempt
        # Where balances were tight, children may have spent more than is known here.
        if not self.is_tight and self._is_ample(wanted, input_tokens, provider, model):
            return wanted  # the ledger decides
        await self.settle_unwritten()
        left = await self._ledger.remaining(self._thread_id)
        bound = min(wanted, left.tokens - input_tokens)
        for_input = self.tracker.worst_case(provider, model, input_tokens, 0)
        for_thousand = self.tracker.worst_case(provider, model, 0, 1000)
        if for_input is not None and for_thousand:
            bound = min(bound, (left.spend_microcents - for_input) * 1000 // for_thousand)
        return max(bound, _LEAST_OUTPUT)

    def _is_ample(self, wanted: int, input_tokens: int, provider: str, model: str) -> bool:
        """Return whether the limits are far above the cost of the next answer."""
        limits, cost = self._limits, self.cost
        tokens, spend = limits.tokens, limits.spend_microcents
        if tokens is not None and tokens - cost.tokens < _AMPLE * (input_tokens + wanted):
            return False
        if spend is None:
            return True
        most = self.tracker.worst_case(provider, model, input_tokens, wanted) or 0
        return spend - cost.spend_microcents >= _AMPLE * most

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Record the attempt, and hold its highest cost, or refuse it where that is too much."""
        self.input_estimate = self._estimate.of(request)
        output = request.max_output_tokens or MAX_OUTPUT_TOKENS
        return await self._hold(
            entry.provider.provider_id, entry.model, output, len(request.messages)
        )

    async def before_media(self, provider: str, model: str, input_tokens: int) -> AttemptVerdict:
        """Record and hold the generation of one medium, as `before_attempt` does for an answer."""
        self.input_estimate = input_tokens
        return await self._hold(provider, model, MAX_OUTPUT_TOKENS, 1, media=1)

    async def _hold(
        self, provider: str, model: str, output: int, messages: int, *, media: int = 0
    ) -> AttemptVerdict:
        self.limit = None
        self.assume_open()
        spend = self.tracker.worst_case(provider, model, self.input_estimate, output, media)
        if spend is None and not self._may_be_unpriced(provider, model):
            return Refuse(
                "unpriced_model",
                f"{provider}/{model} has no price{' for media' if media else ''}, so its spend "
                f"limit can't be enforced. Give it one {_HOW_TO_PRICE[media > 0]}, or name it in "
                "AgentRunnerDeps.unpriced_models.",
            )
        amount = Amount(spend or 0, self.input_estimate + output)
        self._attempt += 1
        turn, head = self.turn, self._log.head
        at = None if head is None else (head.offset, head.digest)
        self._log.append(
            "model_call",
            {
                "turn": turn,
                "attempt": self._attempt,
                "provider": provider,
                "model": model,
                "held_spend_microcents": amount.spend_microcents,
                "held_tokens": amount.tokens,
                "messages": messages,
            },
        )
        await self._log.write_ahead()  # the hold's row names a checkpoint
        held = _Held(turn, self._attempt, amount)
        refused = await self._settle_and_hold(held, at)
        if refused is not None:
            self._tell_end(Amount(), "refused", None, 0, 0, "freed")
            return refused
        self._held = held
        try:
            await self._ledger.synced()
        except BaseException:
            self._free_open()
            raise
        if not self._is_counted:
            self._is_counted = True
            before = self.cost
            self.cost = Cost(
                before.turns + 1,
                before.input_tokens,
                before.output_tokens,
                before.spend_microcents,
                before.estimated,
            )
        return GO

    async def _settle_and_hold(self, held: _Held, head: tuple[int, str] | None) -> Refuse | None:
        """Settle earlier requests and hold for the next one, as one transaction.

        Returns why the next one may not be sent: a limit is met, or the run was asked to stop.

        Source: ADR 029.
        """
        ledger, waiting = self._ledger, tuple(self._unwritten)
        if not waiting:
            try:
                await ledger.hold(self._thread_id, held.turn, held.attempt, held.amount, head=head)
            except InsufficientBudget as error:
                return self._refuse(error)
            return None
        settled, refused = await ledger.settle_and_hold(
            self._thread_id,
            waiting,
            held.turn,
            held.attempt,
            held.amount,
            snapshot=self.cost,
            head=head,
            hands_off=self._hands_off,
        )
        for one, outcome in zip(waiting, settled, strict=True):
            await self._heed(one, outcome)
        if refused is None:
            return None
        if refused == "stopped":
            await anyio.lowlevel.checkpoint_if_cancelled()
            return Refuse("stopped", "The run was asked to stop, or to hand off.")
        return self._refuse(refused)

    def _refuse(self, error: InsufficientBudget) -> Refuse:
        self.limit = limit = self._hit(error)
        return Refuse(limit.code, limit.message)

    def _free_open(self) -> None:
        """Release the hold of a request that provably was never sent."""
        held, self._held = self._held, None
        if held is not None:
            self._unwritten.append(held.settled(Amount(), "counted"))
            self._tell_end(Amount(), "cancelled", None, 0, 0, "freed")

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Count the cost of an attempt; `settle_unwritten` settles it."""
        held, self._held = self._held, None
        if held is None:  # it was never allowed, so it was never sent
            return
        usage = cost.usage
        read, written = usage.total_input_tokens, usage.total_output_tokens
        spend = cost.cost_microcents
        mark: Mark = "estimated" if cost.estimated else "counted"
        has_counted = record.usage is not None and read + written > 0  # an answer reports some
        if not has_counted and not cost.estimated:
            if record.outcome == "success":
                # A medium without reported tokens: only those of the request are known.
                read, mark = self.input_estimate, "estimated"
                worst = self.tracker.worst_case(
                    record.provider, record.model, read, 0, len(record.media)
                )
                spend = min(worst or 0, held.amount.spend_microcents)
            elif (
                record.usage is None
                and record.status is None
                and (record.kind in _NO_ANSWER or record.kind is None)
            ):
                # It was sent, and its outcome was not reported.
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
            before.estimated or mark == "estimated",
        )
        self._unwritten.append(held.settled(actual, mark))
        self._tell_end(actual, record.outcome, record.kind, read, written, mark)

    @property
    def has_overspent(self) -> bool:
        """Whether a request that isn't settled yet cost more than was held for it."""
        return any(one.is_overspent for one in self._unwritten)

    async def settle_unwritten(self) -> None:
        """Write the settlements that the ledger doesn't have yet, such as after a full disk.

        A hold stays until its settlement is written. So this comes before the report of the
        thread's total: otherwise both would be charged. A repeated call charges nothing twice.

        Source: decisions 39 and 40.
        """
        while self._unwritten:
            settlement = self._unwritten[0]
            await self._heed(settlement, await self._write(settlement))

    def unwritten(self) -> Unwritten:
        """Return the costs to write before the account closes, an interrupted request included."""
        self.assume_open()
        return self.waiting()

    def waiting(self) -> Unwritten:
        """Return the costs that the account has to settle yet."""
        return Unwritten(self._thread_id, self.cost, tuple(self._unwritten))

    async def _write(self, settlement: Settlement) -> Settled:
        return await self._ledger.settle(
            self._thread_id,
            settlement.turn,
            settlement.attempt,
            settlement.actual,
            mark=settlement.mark,
            snapshot=self.cost,
        )

    async def _heed(self, settlement: Settlement, settled: Settled) -> None:
        """Take note of what a settlement has found: an overspend, or a request to stop."""
        if settlement in self._unwritten:  # else a child's start has settled it meanwhile
            self._unwritten.remove(settlement)
        held, actual = settlement.held, settlement.actual
        if settled.cancel_requested:
            self._cancellation.cancel()
        if settled.overspent:
            in_money = actual.spend_microcents > held.spend_microcents
            self.overspent = "spend" if in_money else "tokens"
            self._log.append(OVERSPENT, overspent_payload(settlement))
            await self._log.commit()
        self.stopped = self.stopped or settled.stopped
        self.handoff_requested = settled.handoff_requested

    def assume_open(self) -> None:
        """Charge the whole hold of an attempt that was interrupted, as its cost is unknown.

        An example is a cancelled request for media. Source: decision 40.
        """
        held, self._held = self._held, None
        if held is None:
            return
        amount, before = held.amount, self.cost
        read = min(self.input_estimate, amount.tokens)
        written = amount.tokens - read
        self.cost = Cost(
            before.turns,
            before.input_tokens + read,
            before.output_tokens + written,
            before.spend_microcents + amount.spend_microcents,
            estimated=True,
        )
        self._unwritten.append(held.settled(amount, "assumed"))
        self._tell_end(amount, "cancelled", None, read, written, "assumed")

    def asks_again(self) -> bool:
        """Return whether to repeat a refused request with a shorter answer that can be paid.

        Only once a turn; a second refusal is final.
        """
        if self.limit is None or self._refused_turn == self.turn:
            return False
        self._refused_turn, self.is_tight, self.limit = self.turn, True, None
        return True

    def overspent_hit(self) -> LimitHit:
        """Return the limit that a settlement above its hold has met."""
        cost, limits = self.cost, self._limits
        said = "A try cost more than was held for it, so this thread and all below it are stopped."
        if self.overspent == "tokens":
            used = cost.tokens
            return LimitHit("tokens_exceeded", used, limits.tokens or 0, said, _LOOK)
        return LimitHit.of_spend(cost.spend_microcents, limits.spend_microcents or 0, said, _LOOK)

    def _tell_end(
        self,
        actual: Amount,
        outcome: str,
        kind: str | None,
        input_tokens: int,
        output_tokens: int,
        mark: Mark | Literal["freed"],
    ) -> None:
        self._log.append(
            "model_call_end",
            {
                "turn": self.turn,
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
        if self._limits.spend_microcents is None:
            return True
        return f"{provider}/{model}" in self._unpriced or f"{provider}/*" in self._unpriced

    def _hit(self, error: InsufficientBudget) -> LimitHit:
        limits, cost = self._limits, self.cost
        said, advice = error.message, error.next_step
        left, wanted = error.remaining, error.requested
        is_own = error.account == self._thread_id and error.reason == "exhausted"
        if error.dimension == "tokens":
            used, most = cost.tokens, limits.tokens or 0
            if is_own:
                advice = _advice(f"tokens={most + wanted.tokens - left.tokens}")
            return LimitHit("tokens_exceeded", used, most, said, advice)
        most = limits.spend_microcents or 0
        if is_own:
            enough = most + wanted.spend_microcents - left.spend_microcents
            advice = _advice(f"spend={to_usd(enough):f}")
        return LimitHit.of_spend(cost.spend_microcents, most, said, advice)


def _advice(limit: str) -> str:
    return f"Start or resume it with at least --limit {limit}, or ask for less."
