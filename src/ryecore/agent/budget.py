"""What bounds what a vertex spends, where its run loop keeps accounts."""

from typing import Protocol

from ryecore.llm.cost import AttemptCost
from ryecore.llm.options import AttemptVerdict
from ryecore.llm.plan import AttemptRecord, FallbackPlanEntry
from ryecore.llm.request import LlmRequest

__all__ = ["TurnBudget"]


class TurnBudget(Protocol):
    """A run loop's account, as one run of an agent's vertex draws on it.

    Source: docs/design/agent-node.md#events; decisions 39 and 40.
    """

    def begin_turn(self, turn: int, entry: FallbackPlanEntry, wanted: int | None) -> int:
        """Begin a turn. Asking again after an error is the same one.

        Args:
            turn: The vertex's turn, from 1.
            entry: Who is asked first.
            wanted: How long the answer may be; None where nobody says.

        Returns:
            How long it may be within what is left.

        Raises:
            AgentTurnError: `budget_exceeded`: nothing more may be asked.
        """
        ...

    async def before_attempt(
        self, entry: FallbackPlanEntry, request: LlmRequest, number: int
    ) -> AttemptVerdict:
        """Hold what a try may cost at most; it is refused where that is too much."""
        ...

    async def before_media(self, provider: str, model: str, input_tokens: int) -> AttemptVerdict:
        """The same for media, which are made at an endpoint of their own.

        Args:
            provider: Who is asked.
            model: The model.
            input_tokens: How much is about to be read, roughly.
        """
        ...

    def asks_again(self) -> bool:
        """Whether what was refused is to be asked once more, for as short an answer as is left."""
        ...

    def on_cost(self, record: AttemptRecord, cost: AttemptCost) -> None:
        """Settle what a try has cost."""
        ...
