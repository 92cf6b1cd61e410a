"""The spending of a run: the highest cost of a request is held first, the actual one settled.

Threads, graph runs and sessions spend by the same rules; each records it in its own log.

Source: decisions 39 and 40.
"""

from collections.abc import Callable
from typing import Final, Literal

import anyio.lowlevel
from attrs import evolve

from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.ledgers import RunLog, SharedBudget
from ryecore.agent.limit_hits import advise_thread, overspent_hit, refuse_unpriced, refused_hit
from ryecore.agent.settlements import (
    Held,
    Unwritten,
    cost_of_attempt,
    end_payload,
    overspent_payload,
)
from ryecore.errors import InsufficientBudget
from ryecore.llm.cost import AttemptCost, CostTracker
from ryecore.llm.fallback_rules import GO, AttemptRecord, AttemptVerdict, FallbackPlanEntry, Refuse
from ryecore.llm.request import LlmRequest
from ryecore.llm.token_estimates import TokenEstimate
from ryecore.policy import CancelToken
from ryecore.policy.budget import (
    Amount,
    CallBudget,
    CallCost,
    Dimension,
    Mark,
    Settled,
    Settlement,
)
from ryecore.policy.limits import LimitHit, Limits
from ryecore.state.ledger import RequestLedger
from ryecore.state.model import Cost

__all__ = ["MAX_OUTPUT_TOKENS", "OVERSPENT", "Spending"]

OVERSPENT: Final = "budget_overspent"
"""The type of the event for a request that cost more than was held for it."""

MAX_OUTPUT_TOKENS: Final = 16_384
"""The most tokens of an answer where neither host nor provider sets a bound."""

_LEAST_OUTPUT: Final = 16
_AMPLE: Final = 4


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
        ledger: RequestLedger,
        limits: Limits,
        deps: AgentRunnerDeps,
        log: RunLog,
        cancellation: CancelToken,
        *,
        waits: SharedBudget | None = None,
        hands_off: bool = False,
        above: CallBudget | None = None,
        advise: Callable[[Limits], str] = advise_thread,
    ) -> None:
        self._thread_id = thread_id
        self._above = above
        self._advise = advise
        self._waits = waits
        self._seen = 0
        self._is_placing = False
        self._called = 0  # requests of called agents that are held here
        if waits is not None:
            waits.attach(self)
        self._ledger = ledger
        self._limits = limits
        self._unpriced = deps.unpriced_models
        self._log = log
        self._cancellation = cancellation
        self._hands_off = hands_off
        self._attempt = 0
        self._is_counted = False
        self._refused_turn = 0
        self._held: Held | None = None
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
        for_input = self.tracker.worst_case(provider, model, input_tokens, 0)
        for_thousand = self.tracker.worst_case(provider, model, 0, 1000)

        def within(left: Amount) -> int:
            bound = min(wanted, left.tokens - input_tokens)
            if for_input is not None and for_thousand:
                bound = min(bound, (left.spend_microcents - for_input) * 1000 // for_thousand)
            return max(bound, _LEAST_OUTPUT)

        while True:
            seen = self.version
            bound = within(await self.left())
            if bound == wanted or bound >= within(await self.most_left()):
                return bound
            if not await self.wait(seen):
                return bound

    def _wake(self, *, came_back: bool = True) -> None:
        """Let runs that wait for budget look again."""
        if self._waits is not None:
            self._waits.wake(came_back=came_back)

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
        self.tracker.cache = request.cache
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
            return refuse_unpriced(provider, model, media)
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
        held = Held(turn, self._attempt, amount)
        self._is_placing, self._seen = True, self.version
        try:
            refused = await self._settle_and_hold(held, at)
            if refused is None:
                self._held = held
        finally:
            self._is_placing = False
        if refused is not None:
            self._tell_end(held, CallCost(outcome="refused"), None, "freed")
            self._wake(came_back=False)
            return refused
        if self._above is not None:
            refused = await self._hold_above(held, f"{provider}/{model}")
            if refused is not None:
                return refused
        try:
            await self._ledger.synced()
        except BaseException:
            self._free_open()
            raise
        if not self._is_counted:
            self._is_counted = True
            self.cost = self.cost.plus(turns=1, estimated=False)
        return GO

    async def _settle_and_hold(self, held: Held, head: tuple[int, str] | None) -> Refuse | None:
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

    async def _hold_above(self, held: Held, model: str) -> Refuse | None:
        """Hold a request on the caller's budget too, or free the hold that it has here."""
        if self._above is None:
            raise RuntimeError("Only what has a caller holds there.")
        self._held = held
        try:
            above = await self._above.hold_call(model, held.amount)
        except BaseException as error:
            self._free_open("refused")
            if isinstance(error, InsufficientBudget):
                return self._refuse(error)
            raise
        self._held = Held(held.turn, held.attempt, held.amount, above)
        return None

    # The budget of what tools call

    @property
    def bounds(self) -> Limits:
        """The limits of spend and tokens that bind whoever spends here."""
        return Limits(tokens=self._limits.tokens, spend_usd=self._limits.spend_usd)

    async def left(self) -> Amount:
        """Return what may still be held, here and above."""
        await self.settle_unwritten()  # what is spent isn't held as well
        left = await self._ledger.remaining(self._thread_id)
        return left if self._above is None else left.at_most(await self._above.left())

    @property
    def version(self) -> int:
        """Grows whenever budget may have come back."""
        budget = self._waits or self._above
        return 0 if budget is None else budget.version

    async def wait(self, seen: int) -> bool:
        """Wait until budget may have come back since the version `seen`; False if none can."""
        budget = self._waits or self._above
        return budget is not None and await budget.wait(seen)

    async def most_left(self) -> Amount:
        """Return what could be held if all that other runs hold or have reserved came back."""
        if self._waits is not None:
            return await self._waits.most_left()
        left = await self._ledger.remaining(self._thread_id)
        return left if self._above is None else left.at_most(await self._above.most_left())

    async def hold_call(self, agent: str, amount: Amount) -> object:
        """Hold the most that a request of an agent can cost, which a tool calls.

        Raises:
            InsufficientBudget: Less is left, here or above.
        """
        self._attempt += 1
        turn, attempt = self.turn, self._attempt
        payload = {"turn": turn, "attempt": attempt, "provider": "agent", "model": agent}
        held = {"held_spend_microcents": amount.spend_microcents, "held_tokens": amount.tokens}
        self._log.append("model_call", {**payload, **held, "messages": 0})
        self._called += 1
        try:
            await self._log.write_ahead()
            # What is spent has to be known, and not held as well.
            await self.settle_unwritten()
            await self._ledger.hold(self._thread_id, turn, attempt, amount)
        except BaseException:
            self._called -= 1
            self._log_end(turn, attempt, CallCost(outcome="refused"), None, "freed")
            self._wake(came_back=False)
            raise
        hold = Held(turn, attempt, amount)
        try:
            if self._above is not None:
                hold = evolve(hold, above=await self._above.hold_call(agent, amount))
            await self._ledger.synced()
        except BaseException:
            self.settle_call(hold, CallCost(outcome="refused"))
            raise
        return hold

    def settle_call(self, hold: object, cost: CallCost) -> None:
        """Charge the cost of a request in place of its hold; `settle_unwritten` writes it."""
        if not isinstance(hold, Held):
            raise TypeError("A hold is what hold_call has returned.")
        self._called -= 1
        self.cost = self.cost.with_call(cost)
        self._unwritten.append(hold.settled(cost.amount, cost.mark))
        self._wake()
        mark = "freed" if cost.outcome == "refused" else cost.mark
        self._log_end(hold.turn, hold.attempt, cost, None, mark)
        if self._above is not None and hold.above is not None:
            self._above.settle_call(hold.above, cost)

    def _refuse(self, error: InsufficientBudget) -> Refuse:
        self.limit = limit = self._hit(error)
        return Refuse(limit.code, limit.message)

    def _free_open(self, outcome: str = "cancelled") -> None:
        """Release the hold of a request that provably was never sent."""
        held, self._held = self._held, None
        if held is not None:
            self._unwritten.append(held.settled(Amount(), "counted"))
            self._tell_end(held, CallCost(outcome=outcome), None, "freed")

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Count the cost of an attempt; `settle_unwritten` settles it."""
        held, self._held = self._held, None
        if held is None:  # it was never allowed, so it was never sent
            return
        known = cost_of_attempt(record, cost, held.amount, self.input_estimate, self.tracker)
        self.cost = self.cost.with_call(known)
        self._unwritten.append(held.settled(known.amount, known.mark))
        self._wake()
        self._tell_end(held, known, record.kind, known.mark)

    @property
    def is_holding(self) -> bool:
        """Whether it holds the cost of a request, or hasn't settled one."""
        is_asking = self._is_placing or self._held is not None or self._called > 0
        return is_asking or bool(self._unwritten)

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
        is_new = settlement in self._unwritten  # else another task has settled it meanwhile
        if is_new:
            self._unwritten.remove(settlement)
            self._wake()
        held, actual = settlement.held, settlement.actual
        if settled.cancel_requested:
            self._cancellation.cancel()
        if settled.overspent and is_new:
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
        amount = held.amount
        read = min(self.input_estimate, amount.tokens)
        written = amount.tokens - read
        self.cost = self.cost.plus(read, written, amount.spend_microcents, estimated=True)
        self._unwritten.append(held.settled(amount, "assumed"))
        spend = amount.spend_microcents
        cost = CallCost(read, written, spend, "assumed", "cancelled")
        self._tell_end(held, cost, None, "assumed")

    def asks_again(self) -> bool:
        """Return whether to repeat a refused request with a shorter answer that can be paid.

        Only once a turn, and again where budget of others came back meanwhile.
        """
        is_final = self._refused_turn == self.turn and self._seen == self.version
        if self.limit is None or is_final:
            return False
        self._refused_turn, self.is_tight, self.limit = self.turn, True, None
        return True

    def overspent_hit(self) -> LimitHit:
        """Return the limit that a settlement above its hold has met."""
        return overspent_hit(self.overspent, self._limits, self.cost)

    def _tell_end(
        self, held: Held, cost: CallCost, kind: str | None, mark: Mark | Literal["freed"]
    ) -> None:
        """Record the end of an attempt, and charge it to the caller's budget."""
        self._log_end(held.turn, held.attempt, cost, kind, mark)
        if self._above is not None and held.above is not None:
            self._above.settle_call(held.above, cost)

    def _log_end(
        self,
        turn: int,
        attempt: int,
        cost: CallCost,
        kind: str | None,
        mark: Mark | Literal["freed"],
    ) -> None:
        self._log.append("model_call_end", end_payload(turn, attempt, cost, kind, mark))

    def _may_be_unpriced(self, provider: str, model: str) -> bool:
        if self._limits.spend_microcents is None:
            return True
        return f"{provider}/{model}" in self._unpriced or f"{provider}/*" in self._unpriced

    def _hit(self, error: InsufficientBudget) -> LimitHit:
        is_own = error.account == self._thread_id
        return refused_hit(error, self._limits, self.cost, self._advise if is_own else None)
