"""The compaction of a thread's conversation: what is asked for it, and its records.

Source: ADR 038; docs/design/threads.md#turn-loop.
"""

from typing import Any, Final

from attrs import evolve

from ryecore.agent.called import summarizer
from ryecore.agent.compaction import (
    Compact,
    Compaction,
    NotCompacted,
    context_tokens,
)
from ryecore.agent.compactor import Compactor
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.model import Agent
from ryecore.llm.fallback_rules import FallbackPlanEntry
from ryecore.llm.parts import Part, TextPart
from ryecore.policy.context import CallContext
from ryecore.threads.events import ThreadRecorder
from ryecore.threads.planner.settings import LoopConfig
from ryecore.threads.records.messages import compaction_payload

__all__ = ["compact_of", "make_compactor", "window_of"]

_CONTEXT_TOKENS: Final = 200_000


def compact_of(deps: AgentRunnerDeps, config: LoopConfig) -> Compact | None:
    """Return when a thread's conversation is shortened; None for never.

    Signed configuration says at which share, the host who summarizes.
    """
    if config.compact_at is None:
        return deps.compact
    return evolve(deps.compact or Compact(), at=config.compact_at)


def window_of(entry: FallbackPlanEntry, compact: Compact | None) -> int:
    """Return the size of the context of a thread's model in tokens; a guess where nobody knows."""
    said = compact.window_tokens if compact is not None else None
    return said or context_tokens(entry.provider, entry.model) or _CONTEXT_TOKENS


def make_compactor(
    compact: Compact,
    window: int,
    agent: Agent[Any],
    deps: AgentRunnerDeps,
    call: CallContext,
    recorder: ThreadRecorder,
    opening: str,
) -> Compactor:
    """Return what shortens a thread's conversation, which keeps the part with the directive.

    What a summary costs counts in the budget of the call, which is the thread's.
    """

    def tell(outcome: Compaction | NotCompacted) -> None:
        kind = "conversation_compacted" if isinstance(outcome, Compaction) else "compaction_failed"
        recorder.append(kind, compaction_payload(recorder.turn, outcome))

    def is_directive(part: Part) -> bool:
        return isinstance(part, TextPart) and opening in part.text

    return Compactor(compact, window, summarizer(compact, agent, deps, call), tell, is_directive)
