"""The budgets of agents' nodes and sessions, over the spending of their run.

Source: docs/design/agent-node.md#events; decisions 39 and 40.
"""

import math
import time
from collections.abc import Callable
from typing import Final

from attrs import evolve

from ryecore.agent.costs import CostMeter
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.ledgers import MemoryLedger, NoLog, SessionWaits
from ryecore.agent.limit_hits import advise_session
from ryecore.agent.outcome import turn_error
from ryecore.agent.saved import SavedCosts
from ryecore.agent.spending import MAX_OUTPUT_TOKENS, Spending
from ryecore.errors import InputError
from ryecore.llm.cost import AttemptCost
from ryecore.llm.fallback_rules import AttemptRecord, AttemptVerdict, FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.policy import CancelToken
from ryecore.policy.budget import MOST, Amount, CallBudget, CallCost
from ryecore.policy.limits import LimitHit, Limits

__all__ = ["NodeBudget", "SessionBudget", "checked_limits"]

_NO_HOLD: Final = object()
"""The hold of a request on a session without limits."""


class NodeBudget:
    """The budget of one run of an agent's node, or of one reply of a session: a `TurnBudget`.

    The ledger identifies each attempt by its turn, so turns are counted over all runs that share a
    spending. Of its limits, those of turns, tokens and spend are checked before each turn.
    """

    def __init__(
        self,
        spending: Spending,
        limits: Limits,
        advise: Callable[[LimitHit], LimitHit] | None = None,
    ) -> None:
        self._spending = spending
        self._limits = limits
        self._advise = advise
        self._before = spending.turn

    def begin_run(self) -> None:
        """Begin another run, such as the next reply: its turns are counted from 1."""
        self._before = self._spending.turn

    async def begin_turn(self, turn: int, entry: FallbackPlanEntry, wanted: int | None) -> int:
        """Count a turn, if one is left, and bound its answer by the balance."""
        spending = self._spending
        number = self._before + turn
        hit = spending.overspent_hit() if spending.stopped else None
        if hit is None and number != spending.turn:
            hit = self._limits.hit_by(spending.cost)
        if hit is not None:
            shown = hit if self._advise is None else self._advise(hit)
            raise turn_error("budget_exceeded", shown.message)
        spending.begin_turn(number)
        most_tokens = _longest(entry) if wanted is None else wanted
        provider_id = entry.provider.provider_id
        return await spending.output_bound(most_tokens, 0, provider_id, entry.model)

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Hold the highest cost of an attempt."""
        return await self._spending.before_attempt(entry, request, number)

    async def before_media(self, provider: str, model: str, input_tokens: int) -> AttemptVerdict:
        """Hold the highest cost of a medium."""
        return await self._spending.before_media(provider, model, input_tokens)

    def asks_again(self) -> bool:
        """Whether to repeat a refused request, for as short an answer as the balance allows."""
        return self._spending.asks_again()

    async def settle(self) -> None:
        """Settle the attempts so far, so that a stop takes effect on the next one."""
        await self._spending.settle_unwritten()

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Count the cost of an attempt."""
        self._spending.on_cost(record, cost)


def _longest(entry: FallbackPlanEntry) -> int:
    """Return the most tokens of an answer where no limit is set."""
    try:
        most = entry.provider.capabilities(entry.model).max_output_tokens
    except Exception:  # an unknown ability is assumed: the attempt shows whether it exists
        most = None
    return min(most or MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)


def _of_session(hit: LimitHit) -> LimitHit:
    """Return the hit of a limit with the next step of a session, which has no command line."""
    if hit.reason:
        reason = "A try cost more than was held for it, so this session is stopped."
        return evolve(hit, reason=reason, next_step="See session.spent, and open another session.")
    name = {"spend_exceeded": "spend_usd", "duration_exceeded": "duration_s"}.get(
        hit.code, hit.code.removesuffix("_exceeded")
    )
    return evolve(hit, next_step=f"Open the session with a higher one: Limits({name}=...).")


def checked_limits(limits: Limits | None) -> Limits:
    """Return the limits of a session, or raise an InputError for others."""
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        raise InputError(
            f"AgentSession needs Limits, not a {type(limits).__name__}.",
            next_step="Write AgentSession(..., limits=Limits(spend_usd=0.5)).",
        )
    if limits.spawns is not None or limits.depth is not None:
        raise InputError(
            "A session starts no threads, so spawns and depth can't limit it.",
            next_step="Limit its turns, tokens, spend_usd or duration_s.",
        )
    return limits


class SessionBudget:
    """The budget of a session, and of the agents that its tools call.

    It counts what these agents cost. Where the session has limits, or is itself called by a tool,
    each request is held first, by the rules of threads.

    Attributes:
        limits: The limits of the whole conversation.
        spending: The session's holds and settlements; None without limits.
        turns: The budget of a reply's turns; None without limits.
    """

    def __init__(
        self,
        account: str,
        limits: Limits,
        deps: AgentRunnerDeps,
        above: CallBudget | None,
    ) -> None:
        self.limits = limits
        self._used_s = self._ends = 0.0
        self._began: float | None = None
        self._restored = SavedCosts()
        self._ledger = MemoryLedger(account, limits)
        self._meter: CostMeter | None = None
        self.spending: Spending | None = None
        self.turns: NodeBudget | None = None
        if above is None and limits == Limits():
            return
        # What binds the caller binds here, too: without a price, nothing can be held there.
        bound = limits if above is None else limits.within(above.bounds)
        self.spending = Spending(
            account,
            self._ledger,
            bound,
            deps,
            NoLog(),
            CancelToken(),
            waits=SessionWaits(self._ledger) if above is None else None,
            above=above,
            advise=advise_session,
        )
        self.turns = NodeBudget(self.spending, limits, _of_session)

    @property
    def on_cost(self) -> Callable[[AttemptRecord, AttemptCost], None] | None:
        """What counts the cost of each try of the session's own; None without limits."""
        return None if self.spending is None else self.spending.on_cost

    def count_with(self, meter: CostMeter) -> None:
        """Count what called agents cost in the session's meter."""
        self._meter = meter

    def saved(self, costs: SavedCosts) -> SavedCosts:
        """Return the costs of the session with its turns and the time of its replies."""
        running_s = 0.0 if self._began is None else time.monotonic() - self._began
        costs = evolve(
            costs,
            turns=self._restored.turns + costs.attempts - self._restored.attempts,
            duration_ms=math.ceil(round((self._used_s + running_s) * 1000, 3)),
            charged_microcents=self._restored.charged_microcents,
            charged_tokens=self._restored.charged_tokens,
        )
        if self.spending is None:
            return costs
        charged = self.spending.cost
        return evolve(
            costs,
            turns=charged.turns,
            charged_microcents=charged.spend_microcents,
            charged_tokens=charged.tokens,
        )

    def restore(self, saved: SavedCosts) -> None:
        """Charge what the session had used before it was saved."""
        self._restored = saved
        self._used_s = saved.duration_ms / 1000
        if self.spending is not None:
            spend = max(saved.charged_microcents, saved.cost_microcents)
            tokens = max(saved.charged_tokens, saved.usage.total_tokens)
            written, cost = saved.usage.total_output_tokens, self.spending.cost
            is_estimated = saved.estimated > 0
            self.spending.cost = cost.plus(
                tokens - written, written, spend, turns=saved.turns, estimated=is_estimated
            )
            self._ledger.begin_with(Amount(spend, tokens))

    # A reply

    def begin_reply(self, deadline: float | None) -> float | None:
        """Return the monotonic time when the next reply must have ended; None for no bound."""
        if self.turns is not None:
            self.turns.begin_run()
        self._began = now = time.monotonic()
        most = self.limits.duration_s
        if most is None:
            return deadline
        self._ends = now + max(float(most) - self._used_s, 0.0)
        return self._ends if deadline is None else min(self._ends, deadline)

    async def end_reply(self) -> None:
        """Charge what is open after a reply; its time counts."""
        if self._began is not None:
            self._used_s += time.monotonic() - self._began
        self._began = None
        if self.spending is not None:
            self.spending.assume_open()
            await self.spending.settle_unwritten()

    @property
    def out_of_time(self) -> LimitHit | None:
        """The hit of the limit of duration; None while there is time."""
        most = self.limits.duration_s
        if most is None or time.monotonic() < self._ends:
            return None
        return _of_session(LimitHit("duration_exceeded", round(self._used_s, 3), float(most)))

    # The budget of what tools call

    @property
    def bounds(self) -> Limits:
        """The limits of spend and tokens that bind whoever spends here."""
        return Limits() if self.spending is None else self.spending.bounds

    async def left(self) -> Amount:
        """Return what may still be held."""
        return Amount(MOST, MOST) if self.spending is None else await self.spending.left()

    @property
    def version(self) -> int:
        """Grows whenever budget may have come back."""
        return 0 if self.spending is None else self.spending.version

    async def wait(self, seen: int) -> bool:
        """Wait until budget may have come back since the version `seen`; False if none can."""
        return self.spending is not None and await self.spending.wait(seen)

    async def most_left(self) -> Amount:
        """Return what could be held if all that other runs hold or have reserved came back."""
        return Amount(MOST, MOST) if self.spending is None else await self.spending.most_left()

    async def hold_call(self, agent: str, amount: Amount) -> object:
        """Hold the most that a request of an agent can cost, and return the hold.

        Raises:
            InsufficientBudget: Less is left, here or above.
        """
        return _NO_HOLD if self.spending is None else await self.spending.hold_call(agent, amount)

    def settle_call(self, hold: object, cost: CallCost) -> None:
        """Charge the cost of a request in place of its hold."""
        if self._meter is not None:
            self._meter.add_call(cost)
        if self.spending is not None:
            self.spending.settle_call(hold, cost)
