"""A conversation that keeps its messages, for notebooks and chat applications.

Source: docs/design/agent-node.md#layers; decision 49.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from attrs import evolve

from ryecore.agent.approvals import (
    PendingApproval,
    answered,
    check_idle,
    check_resolved,
    check_resumable,
    check_retryable,
    ends_whole,
    open_calls,
)
from ryecore.agent.budgets import SessionBudget, checked_limits
from ryecore.agent.called import summarizer
from ryecore.agent.compaction import Compact, checked_compact
from ryecore.agent.content import Content, check_content, message_of
from ryecore.agent.costs import Spent
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import AgentEvent, ApprovalResolved, Emit
from ryecore.agent.model import Agent
from ryecore.agent.notebook import conversation_html
from ryecore.agent.opening import (
    ContinuedFields,
    OpenFields,
    checked_agent,
    opened,
)
from ryecore.agent.outcome import OutputT, OutputT_co, TokensUsed
from ryecore.agent.output import OutputCheck
from ryecore.agent.reply import (
    Reply,
    SessionStream,
    checked_listener,
    emit_end,
    failed_end,
    reply_of,
    streamed,
)
from ryecore.agent.replying import SessionTurns
from ryecore.agent.saved import Asked, SavedSession, read_session, write_session
from ryecore.llm.media import MemoryMediaStore
from ryecore.llm.messages import SavedJson, check_order
from ryecore.llm.parts import Message
from ryecore.policy.context import CallContext, CancelToken
from ryecore.policy.limits import Limits

if TYPE_CHECKING:
    from typing_extensions import TypeForm

__all__ = ["AgentSession"]


class AgentSession(Generic[OutputT_co]):
    """A conversation with an agent.

    A reply that fails or is cancelled leaves the conversation unchanged, and `retry` asks for it
    again. The calls and results of tools that ran are kept, so that none of them runs twice.

    Args:
        agent: The agent.
        deps: The host's dependencies.
        messages: The conversation so far.
        session_id: The id of the session in events.
        on_event: Called with each event of every reply.
        call: The caller of the tools; by default the host. A tool passes `ctx.call`, so that what
            the session costs counts in its caller.
        limits: The limits of the whole conversation: turns, tokens, spend, and the time of its
            replies. The most that a request can cost is held before it is sent, as in threads.
        labels: What the conversation is for, such as its tenant; the calls of tools have them too.
        tool_deps: What tools get as `ToolContext.deps`; by default the host's.
        compact: When a summary replaces the conversation's beginning; by default as the host says,
            or never.

    Raises:
        AgentTurnError: The host lacks a provider or a tool, the agent's `output_schema` isn't
            valid, or the size of the context is unknown that `compact` needs.
        InputError: The agent, the limits, the labels or `compact` have the wrong type.
        InvalidConversation: A message has the wrong type, a result of a tool has no call before
            it, or a call has no result behind it.
    """

    def __init__(
        self,
        agent: Agent[OutputT_co],
        deps: AgentRunnerDeps,
        *,
        messages: Iterable[Message] = (),
        session_id: str = "session",
        on_event: Emit | None = None,
        call: CallContext | None = None,
        limits: Limits | None = None,
        labels: Mapping[str, str] | None = None,
        tool_deps: object = None,
        compact: Compact | None = None,
    ) -> None:
        self.agent = checked_agent(agent)
        self._messages = list(messages)
        check_order(self._messages)
        above = call or CallContext()
        self._budget = SessionBudget(session_id, checked_limits(limits), deps, above.budget)
        self._above = above.labelled(labels)
        self._listeners = [checked_listener(on_event)] if on_event else []
        self._unanswered: Message | None = None
        self._pending: tuple[PendingApproval, ...] = ()
        self._asked: Asked | None = None
        self._handed_to: str | None = None
        self._media = MemoryMediaStore()  # for files, where the host has no store
        self._compact = checked_compact(compact)
        compact = compact or deps.compact
        own_call = evolve(self._above, budget=self._budget)
        self._turns = SessionTurns(
            agent,
            deps,
            session_id=session_id,
            emit=self._emit,
            call=own_call,
            budget=self._budget,
            media=self._media,
            tool_deps=tool_deps,
            compact=compact,
            summarize=summarizer(compact, agent, deps, own_call, tool_deps) if compact else None,
        )
        self._setup = self._turns.setup
        self._meter = self._setup.meter

    @overload
    @classmethod
    def open(
        cls,
        model: str,
        *,
        output_type: "type[OutputT] | TypeForm[OutputT]",
        output_check: OutputCheck[OutputT] | None = None,
        deps: AgentRunnerDeps | None = None,
        **fields: Unpack[OpenFields],
    ) -> "AgentSession[OutputT]": ...
    @overload
    @classmethod
    def open(
        cls,
        model: str,
        *,
        output_check: OutputCheck[Any] | None = None,
        deps: AgentRunnerDeps | None = None,
        **fields: Unpack[OpenFields],
    ) -> "AgentSession[object]": ...
    @classmethod
    def open(
        cls,
        model: str,
        *,
        output_type: Any = None,
        output_check: OutputCheck[Any] | None = None,
        deps: AgentRunnerDeps | None = None,
        **fields: Unpack[OpenFields],
    ) -> "AgentSession[Any]":
        """Open a conversation with a model, whose provider's key stands in the environment.

            session = AgentSession.open("anthropic/claude-sonnet-4-5", tools=[tide])
            print(await session.send("When is high water in Dover?"))

        Args:
            model: The model as `provider/model`.
            output_type: The type of the agent's output; see `Agent`.
            output_check: The check of each output; see `Agent`.
            deps: The host's dependencies; by default `AgentRunnerDeps.from_env()`.
            **fields: The other fields of an `Agent`, such as `tools` and `system_prompt`, and
                arguments of an `AgentSession`, such as `messages`. With `saved`, the text of
                `to_json`, that conversation continues; None begins a new one.

        Returns:
            The conversation.

        Raises:
            InputError: The model isn't named as `provider/model`.
            InvalidConversation: `saved` or `messages` can't be continued.
            ConfigError: The environment has no key for the provider, or a field is of the wrong
                form.
            MissingExtra: The provider's extra isn't installed.
            AgentTurnError: The host lacks a provider or a tool.
        """
        agent, deps, rest = opened(
            model, deps, fields, output_type=output_type, output_check=output_check
        )
        saved = rest.pop("saved", None)
        if saved is None:
            return AgentSession(agent, deps, **rest)
        return AgentSession.from_json(agent, deps, saved, **rest)

    @classmethod
    def from_json(
        cls,
        agent: Agent[OutputT],
        deps: AgentRunnerDeps,
        data: SavedJson,
        **fields: Unpack[ContinuedFields],
    ) -> "AgentSession[OutputT]":
        """Continue a conversation that `to_json` saved.

        Args:
            agent: The agent, of the same name.
            deps: The host's dependencies; media are read from its store.
            data: The JSON text, or the object that it holds.
            **fields: The other arguments of an `AgentSession`; without `session_id`, the saved one
                counts. What the conversation has used so far counts within its `limits`.

        Returns:
            The session. Where a message was left without an answer, `retry` asks for one.

        Raises:
            InvalidConversation: The data are damaged, of an unknown version, or of another agent.
            AgentTurnError: The host lacks a provider or a tool.
        """
        saved = read_session(data, checked_agent(agent).name)
        fields.setdefault("session_id", saved.session_id)
        session = AgentSession(agent, deps, messages=(), **fields)
        session._restore(saved)
        return session

    def _restore(self, saved: SavedSession) -> None:
        self._messages += saved.messages
        self._pending = saved.pending
        self._unanswered = saved.unanswered
        self._meter.restore(saved.spent)
        self._budget.restore(saved.spent)

    def to_json(self) -> str:
        """Return the conversation as JSON text, which `from_json` continues in any process.

        It holds the messages, the message that waits for an answer, the calls that wait for an
        approval with the answers so far, and what was spent; media by their handles. It holds
        neither a key nor the agent's definition. Until a reply is complete, it is the conversation
        as it would be if the reply failed now.
        """
        return write_session(self._saved())

    def _saved(self) -> SavedSession:
        kept, unanswered, pending = len(self._messages), self._unanswered, self._pending
        asked = self._asked
        if asked is not None and not (asked.has_begun and ends_whole(self._messages, pending)):
            kept, unanswered = asked.kept(self._messages)
            pending = pending if open_calls(self._messages[:kept]) else ()
        return SavedSession(
            self.agent.name,
            self._setup.node_id,
            tuple(self._messages[:kept]),
            unanswered,
            self._budget.saved(self._meter.saved()),
            pending,
        )

    def hand_to(self, agent: Agent[OutputT]) -> "AgentSession[OutputT]":
        """Hand the conversation to another agent: its model, system prompt and tools continue it.

        Args:
            agent: The agent. It gets no reasoning that is of another provider than its own.

        Returns:
            The session that continues, with the same dependencies, limits, labels and listener, and
            what was spent so far. This one takes no more messages.

        Raises:
            AgentTurnError: The host lacks a provider or a tool.
            InputError: The session is answering, or calls wait for an approval.
        """
        self._check_idle()
        check_resolved(self._pending)
        deps = self._setup.deps
        session = AgentSession(
            agent,
            deps if deps.media is not None else evolve(deps, media=self._media),
            session_id=self._setup.node_id,
            on_event=self._listeners[0] if self._listeners else None,
            call=self._above,
            limits=self._budget.limits,
            tool_deps=self._setup.tool_context.deps,
            compact=self._compact,
        )
        session._restore(self._saved())
        self._handed_to = session.agent.name
        return session

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return tuple(self._messages)

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for an approval, without those that `resolve` has answered."""
        return tuple(one for one in self._pending if one.approved is None)

    @property
    def unanswered(self) -> Message | None:
        """The message that `retry` sends again, as its answer failed; not one of `messages`."""
        return self._unanswered

    @property
    def spent(self) -> Spent:
        """The tokens and the cost of the whole conversation."""
        return self._meter.spent

    @property
    def tokens_used(self) -> TokensUsed:
        """The tokens of the whole conversation."""
        return self.spent.tokens_used

    @property
    def cost_usd(self) -> Decimal:
        """The cost of the whole conversation in US dollars."""
        return self.spent.cost_usd

    async def send(
        self,
        *content: Content,
        on_event: Emit | None = None,
        cancellation: CancelToken | None = None,
        deps: object = None,
    ) -> Reply[OutputT_co]:
        """Send a message, and wait for the answer.

        Args:
            content: Texts, and images and files: `Media(path)`.
            on_event: Called with each event of this reply.
            cancellation: Cancels the reply from outside.
            deps: What tools get as `ctx.deps`; by default the session's `tool_deps`.

        Returns:
            The reply.

        Raises:
            AgentTurnError: The reply failed; `code` says why, `retryable` whether to `retry`.
            InputError: The message is empty or has something else than texts and media, a file
                can't be read, or the session is answering already.
        """
        check_content(content)
        self._check_idle()
        check_resolved(self._pending)
        store = self._setup.deps.media or self._media
        message = await message_of(content, store, self._setup.tool_context.call, cancellation)
        self._check_idle()  # files take a while to be read
        return await self._answer(message, on_event, cancellation, deps)

    async def retry(
        self,
        *,
        on_event: Emit | None = None,
        cancellation: CancelToken | None = None,
        deps: object = None,
    ) -> Reply[OutputT_co]:
        """Ask again for an answer that failed, without a new message.

        It continues after the results of tools that ran: none of them runs again.

        Args:
            on_event: Called with each event of this reply.
            cancellation: Cancels the reply from outside.
            deps: What tools get as `ctx.deps`; by default the session's `tool_deps`.

        Returns:
            The reply.

        Raises:
            AgentTurnError: The reply failed; `code` says why, `retryable` whether to try again.
            InputError: No message waits for an answer, or the session is answering already.
        """
        self._check_idle()
        check_resolved(self._pending)
        check_retryable(self._messages, self._unanswered)
        return await self._answer(self._unanswered, on_event, cancellation, deps)

    def resolve(self, approval_id: str, approve: bool, reason: str = "") -> None:
        """Answer a call that waits for an approval. Nothing runs before `resume`.

        Args:
            approval_id: The id of one of `pending`.
            approve: Whether exactly this call may be made: by this tool, with these arguments.
            reason: The reason; that of a denial is told to the model.

        Raises:
            InputError: No call with this id waits for an answer, or `approve` isn't a bool.
        """
        self._check_idle()
        self._pending, one = answered(self._pending, approval_id, approve, reason)
        self._emit(
            ApprovalResolved(
                self._setup.node_id, one.id, one.call_id, one.tool_name, approve, reason
            )
        )

    async def resume(
        self,
        *,
        on_event: Emit | None = None,
        cancellation: CancelToken | None = None,
        deps: object = None,
    ) -> Reply[OutputT_co]:
        """Continue a reply whose calls waited for an approval, once all of them are answered.

        A call runs if its tool and its arguments are still those that were approved; else it waits
        for another approval.

        Args:
            on_event: Called with each event of this reply.
            cancellation: Cancels the reply from outside.
            deps: What tools get as `ctx.deps`; by default the session's `tool_deps`.

        Returns:
            The reply.

        Raises:
            AgentTurnError: The reply failed; `code` says why, `retryable` whether to `retry`.
            InputError: No call was answered, or some still wait for an answer.
        """
        self._check_idle()
        check_resumable(self._pending)
        return await self._answer(None, on_event, cancellation, deps)

    def _check_idle(self) -> None:
        check_idle(self._handed_to, is_answering=self._asked is not None)

    async def _answer(
        self,
        message: Message | None,
        on_event: Emit | None,
        cancellation: CancelToken | None,
        deps: object,
    ) -> Reply[OutputT_co]:
        heard = self._listeners
        self._listeners = [*heard, checked_listener(on_event)] if on_event else heard
        self._asked = asked = Asked(message, len(self._messages))
        self._unanswered = None
        before = self._meter.spent
        try:
            result = await self._turns.run(asked, self._messages, self._pending, cancellation, deps)
            self._pending = result.pending
            reply = reply_of(result, self._meter.spent.since(before))
            emit_end(self._emit, reply, self._setup.node_id)
        except BaseException as problem:
            # Restore the conversation, but keep the results of tools, so that none runs twice.
            kept, self._unanswered = asked.kept(self._messages)
            del self._messages[kept:]
            if not open_calls(self._messages):
                self._pending = ()
            with suppress(Exception):  # whatever the listeners do, the failure is told
                spent = self._meter.spent.since(before)
                self._emit(failed_end(problem, self._setup.node_id, spent))
            raise
        finally:
            self._asked = None
            self._listeners = heard
        return reply

    @asynccontextmanager
    async def stream(
        self, *content: Content, cancellation: CancelToken | None = None, deps: object = None
    ) -> AsyncIterator["SessionStream[OutputT_co]"]:
        """Send a message, and read the events as they arrive. Leaving early cancels the reply.

            async with session.stream("Hello") as events:
                async for event in events:
                    ...
            reply = events.reply

        Args:
            content: Texts, and images and files: `Media(path)`. Without any, the last reply goes
                on, as with `resume` where calls waited for an approval, else with `retry`.
            cancellation: Cancels the reply from outside.
            deps: What tools get as `ctx.deps`; by default the session's `tool_deps`.

        Yields:
            The events, which can be iterated once.
        """
        go_on = self.resume if self._pending else self.retry
        ask = partial(self.send, *content) if content else go_on
        async with streamed(partial(ask, cancellation=cancellation, deps=deps)) as stream:
            yield stream

    def _emit(self, event: AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def __repr__(self) -> str:
        return f"AgentSession({self.agent.name!r}, {len(self._messages)} messages)"

    def _repr_html_(self) -> str:
        return conversation_html(self._messages, self.spent)
