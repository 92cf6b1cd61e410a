"""What a host may watch of runs, for traces and metrics."""

from contextlib import AbstractContextManager
from typing import Protocol

from ryecore.agent.model import Agent
from ryecore.llm.parts import ToolCallPart
from ryecore.llm.plan import AttemptRecord

__all__ = ["AgentObserver"]


class AgentObserver(Protocol):
    """Watches runs. One serves any number of concurrent runs; it must neither block nor raise.

    What it gives for a run and for a tool call is entered in the task that does the work, and left
    when it ends. What ends it badly, cancellation too, passes through as an exception.
    """

    def run(self, node_id: str, agent: Agent) -> AbstractContextManager[object]:
        """Around a run of an agent.

        Args:
            node_id: The vertex, or the session.
            agent: The agent.
        """
        ...

    def attempt(self, node_id: str, record: AttemptRecord) -> None:
        """After each try to ask a model, skipped ones too.

        Args:
            node_id: The vertex, or the session.
            record: What came of it.
        """
        ...

    def tool(self, node_id: str, call: ToolCallPart) -> AbstractContextManager[object]:
        """Around a tool call.

        Args:
            node_id: The vertex, or the session.
            call: The call, as the model made it.
        """
        ...
