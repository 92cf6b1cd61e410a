"""ryecore: run AI agents you can trust.

Tools, runtimes, directives and graphs are files under `.ai/`, each signed with Ed25519 and
verified before every use. What runs is exactly what was verified.

    from ryecore import SyncRye

    with SyncRye.open(".") as rye:
        print(rye.execute("tool:rye/bash", {"command": "echo hello"}))
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ryecore._lazy import lazy_names

if sys.platform != "linux":
    raise ImportError(
        f"ryecore runs on Linux (x86-64, arm64); this is {sys.platform}. "
        "On Windows, run it inside WSL."
    )

try:
    import_module("ryecore._native")
except ModuleNotFoundError as problem:
    if problem.name != "ryecore._native":
        raise
    raise ImportError(
        "ryecore's native extension is not built. In a checkout: make build. "
        "Otherwise: pip install --force-reinstall ryecore"
    ) from None

if TYPE_CHECKING:
    from ryecore.actions.settings import OpenOptions as OpenOptions
    from ryecore.agent.approvals import PendingApproval as PendingApproval
    from ryecore.agent.deps import AgentRunnerDeps as AgentRunnerDeps
    from ryecore.agent.deps import AgentTurnLimits as AgentTurnLimits
    from ryecore.agent.deps import MediaSurface as MediaSurface
    from ryecore.agent.events import AgentToken as AgentToken
    from ryecore.agent.events import AgentToolCall as AgentToolCall
    from ryecore.agent.events import AgentToolResult as AgentToolResult
    from ryecore.agent.events import ApprovalRequested as ApprovalRequested
    from ryecore.agent.events import ApprovalResolved as ApprovalResolved
    from ryecore.agent.events import CostUpdated as CostUpdated
    from ryecore.agent.model import Agent as Agent
    from ryecore.agent.model import AgentNode as AgentNode
    from ryecore.agent.node import NodeExecContext as NodeExecContext
    from ryecore.agent.node import NodeExecutor as NodeExecutor
    from ryecore.agent.outcome import ErrorCode as ErrorCode
    from ryecore.agent.outcome import NodeFailure as NodeFailure
    from ryecore.agent.outcome import NodeOutcome as NodeOutcome
    from ryecore.agent.runner import create_agent_node_executor as create_agent_node_executor
    from ryecore.agent.session import AgentSession as AgentSession
    from ryecore.calls import rye_execute as rye_execute
    from ryecore.calls import rye_fetch as rye_fetch
    from ryecore.calls import rye_sign as rye_sign
    from ryecore.chain.builder import MAX_CHAIN_DEPTH as MAX_CHAIN_DEPTH
    from ryecore.chain.elements import ChainElement as ChainElement
    from ryecore.chain.model import Chain as Chain
    from ryecore.chain.model import ExecutionPlan as ExecutionPlan
    from ryecore.chain.model import ExecutionResult as ExecutionResult
    from ryecore.chain.primitives import PRIMITIVE_MAP as PRIMITIVE_MAP
    from ryecore.chain.primitives import ExecutePrimitive as ExecutePrimitive
    from ryecore.errors import IntegrityError as IntegrityError
    from ryecore.errors import ItemNotFound as ItemNotFound
    from ryecore.errors import RyeError as RyeError
    from ryecore.errors import ToolFailed as ToolFailed
    from ryecore.items.refs import ItemRef as ItemRef
    from ryecore.items.signing import sign_item as sign_item
    from ryecore.items.spaces import Space as Space
    from ryecore.items.trust import TrustStore as TrustStore
    from ryecore.items.verification import VerifiedItem as VerifiedItem
    from ryecore.items.verification import verify_item as verify_item
    from ryecore.lillux.keys import SigningKey as SigningKey
    from ryecore.llm.attachments import Media as Media
    from ryecore.llm.cost import CostTracker as CostTracker
    from ryecore.llm.fallback import FallbackChain as FallbackChain
    from ryecore.llm.fallback_rules import FallbackPlanEntry as FallbackPlanEntry
    from ryecore.llm.provider import LlmProvider as LlmProvider
    from ryecore.policy.context import CallContext as CallContext
    from ryecore.policy.context import CancelToken as CancelToken
    from ryecore.policy.limits import Limits as Limits
    from ryecore.policy.permissions import ApprovalRequest as ApprovalRequest
    from ryecore.policy.permissions import Approve as Approve
    from ryecore.policy.reports import Ask as Ask
    from ryecore.rye import Rye as Rye
    from ryecore.state.events import EventBus as EventBus
    from ryecore.sync import SyncRye as SyncRye
    from ryecore.threads.harness import SafetyHarness as SafetyHarness
    from ryecore.threads.thread import Thread as Thread
    from ryecore.tools.definition import ToolDef as ToolDef
    from ryecore.tools.definition import tool as tool
    from ryecore.tools.registry import ToolRegistry as ToolRegistry
else:
    __getattr__, __dir__ = lazy_names(__name__)

__version__ = "0.1.0"
