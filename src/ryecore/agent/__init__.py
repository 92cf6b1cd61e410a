"""Agents: the turns of a model, run end to end."""

from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if TYPE_CHECKING:
    from ryecore.agent.approvals import PendingApproval as PendingApproval
    from ryecore.agent.compaction import Compact as Compact
    from ryecore.agent.compaction import Summarize as Summarize
    from ryecore.agent.costs import Spent as Spent
    from ryecore.agent.deps import AgentRunnerDeps as AgentRunnerDeps
    from ryecore.agent.deps import AgentTurnLimits as AgentTurnLimits
    from ryecore.agent.deps import Egress as Egress
    from ryecore.agent.deps import MediaSurface as MediaSurface
    from ryecore.agent.deps import PreEgress as PreEgress
    from ryecore.agent.deps import ResolverCapabilities as ResolverCapabilities
    from ryecore.agent.events import AgentEnd as AgentEnd
    from ryecore.agent.events import AgentEvent as AgentEvent
    from ryecore.agent.events import AgentReasoning as AgentReasoning
    from ryecore.agent.events import AgentToken as AgentToken
    from ryecore.agent.events import AgentToolCall as AgentToolCall
    from ryecore.agent.events import AgentToolResult as AgentToolResult
    from ryecore.agent.events import ApprovalRequested as ApprovalRequested
    from ryecore.agent.events import ApprovalResolved as ApprovalResolved
    from ryecore.agent.events import CompactionFailed as CompactionFailed
    from ryecore.agent.events import ConversationCompacted as ConversationCompacted
    from ryecore.agent.events import CostUpdated as CostUpdated
    from ryecore.agent.events import Emit as Emit
    from ryecore.agent.model import Agent as Agent
    from ryecore.agent.model import AgentNode as AgentNode
    from ryecore.agent.model import FallbackChoice as FallbackChoice
    from ryecore.agent.model import RetrySpec as RetrySpec
    from ryecore.agent.node import NodeExecContext as NodeExecContext
    from ryecore.agent.node import NodeExecutor as NodeExecutor
    from ryecore.agent.node import TurnBudget as TurnBudget
    from ryecore.agent.node import Vertex as Vertex
    from ryecore.agent.outcome import ERROR_CODES as ERROR_CODES
    from ryecore.agent.outcome import RETRYABLE_CODES as RETRYABLE_CODES
    from ryecore.agent.outcome import ErrorCode as ErrorCode
    from ryecore.agent.outcome import NodeFailure as NodeFailure
    from ryecore.agent.outcome import NodeOutcome as NodeOutcome
    from ryecore.agent.outcome import TokensUsed as TokensUsed
    from ryecore.agent.prompts import PromptTemplate as PromptTemplate
    from ryecore.agent.reply import Reply as Reply
    from ryecore.agent.reply import SessionStream as SessionStream
    from ryecore.agent.runner import AgentNodeExecutor as AgentNodeExecutor
    from ryecore.agent.runner import create_agent_node_executor as create_agent_node_executor
    from ryecore.agent.session import AgentSession as AgentSession
    from ryecore.agent.telemetry import Observer as Observer
    from ryecore.agent.telemetry import OtelObserver as OtelObserver
    from ryecore.errors import Retry as Retry
else:
    __getattr__, __dir__ = lazy_names(__name__)
