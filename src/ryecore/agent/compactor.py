"""What shortens the conversation of a session, a node or a thread as it grows.

Source: ADR 038.
"""

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Final

from ryecore.agent.compaction import (
    Compact,
    Compaction,
    ContextUse,
    NotCompacted,
    Summarize,
    context_tokens,
    cut_for_summary,
    pinned_parts,
    summary_in,
    with_summary,
)
from ryecore.agent.events import AgentEvent, CompactionFailed, ConversationCompacted
from ryecore.agent.outcome import failure_of, turn_error
from ryecore.errors import AgentTurnError
from ryecore.llm.fallback_rules import FallbackPlanEntry
from ryecore.llm.parts import Message, Part
from ryecore.llm.result import LlmResult
from ryecore.llm.token_estimates import message_tokens

__all__ = ["Compactor", "compaction_event", "window_tokens"]

_LESS: Final = "Send less at once, or begin another conversation."
_PART_OF_WINDOW: Final = 10


def compaction_event(node_id: str, outcome: Compaction | NotCompacted) -> AgentEvent:
    """Return the event of a compaction, or of a failure."""
    before, window = outcome.tokens_before, outcome.window_tokens
    if isinstance(outcome, NotCompacted):
        return CompactionFailed(node_id, outcome.reason, before, window)
    return ConversationCompacted(
        node_id, outcome.replaced, before, outcome.tokens_after, window, outcome.summary.text
    )


def window_tokens(compact: Compact, entry: FallbackPlanEntry) -> int:
    """Return the size of a model's context, or raise an AgentTurnError where nobody knows it."""
    known = compact.window_tokens or context_tokens(entry.provider, entry.model)
    if known is None:
        raise turn_error(
            "internal",
            f"The size of the context of {entry.provider.provider_id}/{entry.model} isn't known, "
            "so there is no share of it at which to shorten a conversation.",
            next_step="Write Compact(window_tokens=...), or give the provider "
            "Capabilities(context_tokens=...).",
        )
    return known


class Compactor:
    """Shortens one conversation once it fills a share of the model's context.

    Args:
        compact: When, and what stays.
        window: The size of the model's context in tokens.
        summarize: Makes the summary.
        tell: Called with each compaction before it counts, and with each failure.
        is_pinned: Whether a part of the user's messages has to stay as it is.

    Attributes:
        use: How much of the context the conversation uses.
    """

    def __init__(
        self,
        compact: Compact,
        window: int,
        summarize: Summarize,
        tell: Callable[[Compaction | NotCompacted], None],
        is_pinned: Callable[[Part], bool] | None = None,
    ) -> None:
        self._compact = compact
        self._window = window
        self._summarize = summarize
        self._tell = tell
        self._is_pinned = is_pinned
        self._again_at = 0  # so that neither a failure nor a long end is summarized at each turn
        self._was_refused = False
        self.use = ContextUse()

    def note(self, answer: LlmResult, messages: int) -> None:
        """Note an answer to a number of messages."""
        self.use.note(answer, messages)
        self._was_refused = False

    async def when_due(
        self, messages: Sequence[Message], *added: Message
    ) -> Compaction | NotCompacted | None:
        """Shorten a conversation, if it is time for that; None if it isn't.

        The next request also has the messages that are added, which stay as they are.
        """
        used = self.use.of((*messages, *added))
        if used < max(self._compact.due_at(self._window), self._again_at):
            return None
        return await self._shorten(messages, used)

    async def when_refused(self, messages: Sequence[Message]) -> Compaction | NotCompacted:
        """Shorten a conversation that the provider refused as too long: once for each answer."""
        used = self.use.of(messages)
        if self._was_refused:
            return NotCompacted("it was shortened already.", used, self._window)
        self._was_refused = True
        return await self._shorten(messages, used)

    def refuse(self, why: NotCompacted) -> AgentTurnError:
        """Return the error of a conversation that no longer fits."""
        return turn_error(
            "validation",
            f"The conversation no longer fits into the model's context of {self._window:,} tokens, "
            f"and it can't be shortened: {why.reason}",
            next_step=_LESS,
        )

    async def fitting(
        self, messages: Sequence[Message], *added: Message
    ) -> tuple[Message, ...] | None:
        """Return a shorter conversation, if it is time for that.

        What can't be shortened goes on while it fits, else this raises an AgentTurnError.
        """
        done = await self.when_due(messages, *added)
        if isinstance(done, Compaction):
            return done.messages
        if done is not None and done.tokens_before > self._window and self.use.is_counted(messages):
            raise self.refuse(done)
        return None

    async def _shorten(self, messages: Sequence[Message], used: int) -> Compaction | NotCompacted:
        done = await self._summarized(messages, used)
        if isinstance(done, Compaction):
            self.use.forget()
        self._again_at = done.tokens_after + self._window // _PART_OF_WINDOW
        self._tell(done)
        return done

    async def _summarized(
        self, messages: Sequence[Message], used: int
    ) -> Compaction | NotCompacted:
        cut = cut_for_summary(messages, self._compact.kept_tokens(self._window))
        if not cut:
            return self._failed(used, "no messages are old enough to be summarized.")
        try:
            text = self._summarize(tuple(messages[:cut]))
            if isawaitable(text):
                text = await text
        except Exception as error:
            return self._failed(used, f"the summary failed: {failure_of(error).message}")
        if not isinstance(text, str) or not text.strip():
            made = "is empty" if isinstance(text, str) else f"is a {type(text).__name__}, not text"
            return self._failed(used, f"the summary {made}.")
        pinned = () if self._is_pinned is None else pinned_parts(messages[:cut], self._is_pinned)
        shorter = with_summary(messages, cut, text, pinned)
        was, now = sum(map(message_tokens, messages)), sum(map(message_tokens, shorter))
        if now >= was:
            return self._failed(used, "the summary is no shorter than the messages it replaces.")
        summary = next(part for part in map(summary_in, shorter[:1]) if part is not None)
        # The provider's tokens, in proportion to what is estimated.
        around = self.use.without_messages()
        after = -(-used * (around + now) // (around + was))
        replaced = len(messages) - len(shorter) + 1
        return Compaction(shorter, replaced, summary, used, after, self._window)

    def _failed(self, used: int, reason: str) -> NotCompacted:
        return NotCompacted(reason, used, self._window)
