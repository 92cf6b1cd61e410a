"""The account of a run, as its agents' nodes draw on it.

Source: decisions 39 and 40.
"""

from ryecore.agent.outcome import turn_error
from ryecore.llm.cost import AttemptCost
from ryecore.llm.options import AttemptVerdict
from ryecore.llm.plan import AttemptRecord, FallbackPlanEntry
from ryecore.llm.request import LlmRequest
from ryecore.runs.limit_hit import LimitHit
from ryecore.runs.spending import MAX_OUTPUT_TOKENS, Spending

__all__ = ["NodeBudget"]


class NodeBudget:
    """What one run of an agent's node may spend: the `TurnBudget` of a graph's run.

    The ledger knows each try by its turn, so the turns are counted over all nodes of the run.

    Args:
        spending: Holds and settles in the run's account.
        most_turns: How often models may be asked in the whole run; None for no bound.
    """

    def __init__(self, spending: Spending, most_turns: int | None) -> None:
        self._spending = spending
        self._most_turns = most_turns
        self._before = spending.turn

    def begin_turn(self, turn: int, entry: FallbackPlanEntry, wanted: int | None) -> int:
        """Count a turn, and bound its answer by what is left.

        Raises:
            AgentTurnError: `budget_exceeded`: the run may ask nothing more.
        """
        spending = self._spending
        number = self._before + turn
        if spending.stopped:
            raise turn_error("budget_exceeded", spending.overspent_hit().message)
        most, used = self._most_turns, spending.cost.turns
        if most is not None and used >= most and number != spending.turn:
            raise turn_error("budget_exceeded", LimitHit("turns_exceeded", used, most).message)
        spending.begin_turn(number)
        most_tokens = _longest(entry) if wanted is None else wanted
        provider_id = entry.provider.provider_id
        return spending.output_bound(most_tokens, 0, provider_id, entry.model)

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Hold what a try may cost at most."""
        return await self._spending.before_attempt(entry, request, number)

    async def before_media(self, provider: str, model: str, input_tokens: int) -> AttemptVerdict:
        """Hold what a medium may cost at most."""
        return await self._spending.before_media(provider, model, input_tokens)

    def asks_again(self) -> bool:
        """Whether what was refused is to be asked once more, for as short an answer as is left."""
        return self._spending.asks_again()

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Settle what a try has cost."""
        self._spending.on_cost(record, cost)


def _longest(entry: FallbackPlanEntry) -> int:
    """How long an answer may be where nobody says."""
    try:
        most = entry.provider.capabilities(entry.model).max_output_tokens
    except Exception:  # what isn't known is taken to be possible; the try will tell
        most = None
    return min(most or MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS)
