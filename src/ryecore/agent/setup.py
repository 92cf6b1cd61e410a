"""What a conversation's turns run with."""

from collections.abc import Awaitable, Callable

from attrs import frozen

from ryecore.agent.events import Emit
from ryecore.agent.limits import AgentTurnLimits
from ryecore.agent.meter import CostMeter
from ryecore.agent.observer import AgentObserver
from ryecore.agent.verdicts import TurnPolicy
from ryecore.llm.fallback import FallbackChain
from ryecore.llm.request import LlmRequest
from ryecore.tools.context import ToolContext
from ryecore.tools.registry import ToolRegistry

__all__ = ["TurnSetup"]


@frozen
class TurnSetup:
    """What a conversation's turns run with.

    Attributes:
        chain: Whom to ask.
        registry: Whose tools may be called.
        tool_context: On whose behalf, within what.
        request: What every request has in common; its messages are put in.
        node_id: What events call the run.
        emit: Told each event as it happens.
        meter: Counts what it costs.
        limits: What bounds it.
        policy: What is done where callers differ.
        sleep: Waits.
        observer: Watches the tool calls.
    """

    chain: FallbackChain
    registry: ToolRegistry
    tool_context: ToolContext
    request: LlmRequest
    node_id: str
    emit: Emit
    meter: CostMeter
    limits: AgentTurnLimits
    policy: TurnPolicy
    sleep: Callable[[float], Awaitable[object]]
    observer: AgentObserver | None = None
