"""A conversation that keeps its messages, for notebooks and chat applications.

Source: docs/design/agent-node.md#layers; decision 49.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from decimal import Decimal
from inspect import iscoroutinefunction
from typing import Final, Self, TypeAlias

import anyio

from ryecore.agent.assembly import (
    TurnSetup,
    build_plan,
    build_setup,
    cost_meter,
    observed_run,
    output_schema,
)
from ryecore.agent.deps import AgentRunnerDeps
from ryecore.agent.events import AgentEvent, Emit, Spent
from ryecore.agent.model import Agent
from ryecore.agent.outcome import NodeFailure, TokensUsed, failure_of
from ryecore.agent.policies import SessionPolicy
from ryecore.agent.turns import TurnResult, run_turns
from ryecore.agent.verdicts import THE_TEXT
from ryecore.display.text import StyledText, counted
from ryecore.errors import AgentTurnError, InputError
from ryecore.frozen import frozen
from ryecore.llm.parts import (
    MediaPart,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from ryecore.llm.result import StopReason
from ryecore.policy.cancelling import bounded_by, is_cancelled
from ryecore.policy.context import CallContext, CancelToken

__all__ = ["AgentSession", "Reply", "SessionStream"]

Content: TypeAlias = str | TextPart | MediaPart

_CONTENT: Final = (str, TextPart, MediaPart)

_BROKEN_OFF: Final = Message.assistant("(My answer broke off here.)")
"""The message after tool results whose answer failed, before the next one of the user."""

_LINE_CHARS: Final = 300
_STYLES: Final = {False: "good", True: "bad"}


@frozen
class Reply:
    """The answer of an agent.

    Attributes:
        text: The answer's text.
        output: The structured value if the agent has an `output_schema`, else the text.
        media: Media that the model made.
        stop_reason: Why the model stopped; `length` means that the answer was cut off.
        turns: The number of turns.
        spent: The tokens and the cost of the reply's tries, failed ones included.
    """

    text: str
    output: object
    media: tuple[MediaPart, ...]
    stop_reason: StopReason
    turns: int
    spent: Spent

    @property
    def tokens_used(self) -> TokensUsed:
        """The tokens of the reply's tries."""
        return self.spent.tokens_used

    @property
    def cost_usd(self) -> Decimal:
        """The cost of the reply in US dollars; a try without a price costs zero."""
        return self.spent.cost_usd

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self._styled().html()

    def _styled(self) -> StyledText:
        styled = StyledText()
        for line in self.text.splitlines() or [""]:
            styled.line(line)
        styled.line((f"{counted(self.turns, 'turn')}, {_figures(self.spent)}", "dim"))
        return styled


class AgentSession:
    """A conversation with an agent.

    A reply that fails or is cancelled leaves the conversation unchanged, and `retry` asks for it
    again. The calls and results of tools that ran are kept, so that none of them runs twice.

    Args:
        agent: The agent.
        deps: The host's dependencies.
        messages: The conversation so far.
        session_id: The id of the session in events.
        on_event: Called with each event of every reply.
        call: The caller of the tools; by default the host.

    Raises:
        AgentTurnError: The host lacks a provider or a tool, or the agent's `output_schema` isn't
            valid.
        InputError: The agent or a message has the wrong type.
    """

    def __init__(
        self,
        agent: Agent,
        deps: AgentRunnerDeps,
        *,
        messages: Iterable[Message] = (),
        session_id: str = "session",
        on_event: Emit | None = None,
        call: CallContext | None = None,
    ) -> None:
        if not isinstance(agent, Agent):
            raise InputError(
                f"AgentSession needs an Agent, not a {type(agent).__name__}.",
                next_step="Write AgentSession(Agent(name=..., provider=..., model=...), deps).",
            )
        self.agent = agent
        self._messages = list(messages)
        for one in self._messages:
            if not isinstance(one, Message):
                raise InputError(
                    f"A {type(one).__name__} isn't a Message.",
                    next_step='Write AgentSession(messages=[Message.user("…"), …]).',
                )
        self._call = call or CallContext()
        self._listeners = [_checked(on_event)] if on_event else []
        self._is_busy = False
        self._unanswered: Message | None = None
        output = output_schema(agent.name, agent.output_schema)
        self._meter = cost_meter(deps, self._emit, session_id)
        self._setup: TurnSetup = build_setup(
            deps,
            agent,
            build_plan(deps, agent),
            output=output,
            node_id=session_id,
            emit=self._emit,
            call=self._call,
            policy=SessionPolicy(deps.pre_egress, session_id, output),
            meter=self._meter,
        )

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return tuple(self._messages)

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
    ) -> Reply:
        """Send a message, and wait for the answer.

        Args:
            content: Texts and media.
            on_event: Called with each event of this reply.
            cancellation: Cancels the reply from outside.

        Returns:
            The reply.

        Raises:
            AgentTurnError: The reply failed; `code` says why, `retryable` whether to `retry`.
            InputError: The message is empty or has something else than texts and media, or the
                session is answering already.
        """
        for one in content:
            if not isinstance(one, _CONTENT):
                raise InputError(
                    f"A {type(one).__name__} can't be sent to an agent.",
                    next_step="Pass texts and media; messages go to AgentSession(messages=...).",
                )
        if not any(not isinstance(one, str) or one.strip() for one in content):
            raise InputError("The message is empty.", next_step="Pass a text or a medium.")
        self._check_idle()
        return await self._answer(Message.user(*content), on_event, cancellation)

    async def retry(
        self, *, on_event: Emit | None = None, cancellation: CancelToken | None = None
    ) -> Reply:
        """Ask again for an answer that failed, without a new message.

        It continues after the results of tools that ran: none of them runs again.

        Args:
            on_event: Called with each event of this reply.
            cancellation: Cancels the reply from outside.

        Returns:
            The reply.

        Raises:
            AgentTurnError: The reply failed; `code` says why, `retryable` whether to try again.
            InputError: No message waits for an answer, or the session is answering already.
        """
        self._check_idle()
        is_open = bool(self._messages) and self._messages[-1].role != "assistant"
        if self._unanswered is None and not is_open:
            raise InputError(
                "Nothing waits for an answer.", next_step="Send one with session.send(...)."
            )
        return await self._answer(self._unanswered, on_event, cancellation)

    def _check_idle(self) -> None:
        if self._is_busy:
            raise InputError(
                "The session is answering already.",
                next_step="Wait for that reply, or open another AgentSession.",
            )

    async def _answer(
        self, message: Message | None, on_event: Emit | None, cancellation: CancelToken | None
    ) -> Reply:
        heard = self._listeners
        self._listeners = [*heard, _checked(on_event)] if on_event else heard
        self._is_busy = True
        self._unanswered = None
        before = len(self._messages)
        try:
            if message is not None:
                if self._messages and self._messages[-1].role == "tool":
                    self._messages.append(_BROKEN_OFF)  # many servers insist that roles alternate
                self._messages.append(message)
            reply = await self._reply(cancellation)
        except BaseException:
            self._take_back(before, message)
            raise
        finally:
            self._is_busy = False
            self._listeners = heard
        return reply

    def _take_back(self, before: int, message: Message | None) -> None:
        """Restore the conversation, but keep the results of tools, so that none runs twice."""
        kept = len(self._messages)
        while kept > before and self._messages[kept - 1].role != "tool":
            kept -= 1
        del self._messages[kept:]
        if kept == before:
            self._unanswered = message

    @asynccontextmanager
    async def stream(
        self, *content: Content, cancellation: CancelToken | None = None
    ) -> AsyncIterator["SessionStream"]:
        """Send a message, and read the events as they arrive. Leaving early cancels the reply.

            async with session.stream("Hello") as events:
                async for event in events:
                    ...
            reply = events.reply

        Args:
            content: Texts and media.
            cancellation: Cancels the reply from outside.

        Yields:
            The events, which can be iterated once.
        """
        stream = SessionStream()
        problem: Exception | None = None

        async def answer() -> None:
            try:
                ended: Reply | Exception = await self.send(
                    *content, on_event=stream._take, cancellation=cancellation
                )
            except Exception as failure:
                ended = failure
            stream._end(ended)

        async with anyio.create_task_group() as group:
            group.start_soon(answer)
            try:
                yield stream
            except Exception as raised:
                problem = raised
            group.cancel_scope.cancel()
        stream._leave()
        if problem is not None:
            raise problem

    async def _reply(self, cancellation: CancelToken | None) -> Reply:
        tokens, deadline = (cancellation, self._call.cancellation), self._call.deadline
        before = self._meter.spent
        result: TurnResult | None = None
        failed = NodeFailure("cancelled", "The reply was cancelled.", retryable=False)
        try:
            with bounded_by(*tokens, deadline=deadline):
                if not is_cancelled(*tokens):
                    with observed_run(self._setup.deps, self._setup.node_id, self.agent):
                        result = await run_turns(self._setup, self._messages)
        except Exception as error:
            if not is_cancelled(*tokens, deadline=deadline):
                failed = failure_of(error)
        if result is not None and not is_cancelled(*tokens):
            return _made(result, self._meter.spent.since(before))
        raise AgentTurnError(failed.message, code=failed.code, retryable=failed.retryable)

    def _emit(self, event: AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def __repr__(self) -> str:
        return f"AgentSession({self.agent.name!r}, {len(self._messages)} messages)"

    def _repr_html_(self) -> str:
        styled = StyledText()
        for message in self._messages:
            for part in message.parts:
                who, style, text = _shown(message.role, part)
                styled.line((f"{who:>9}  ", style), text)
        styled.line((_figures(self.spent), "dim"))
        return styled.html()


class SessionStream:
    """The events of one reply, as they arrive.

    Attributes:
        reply: The reply, available after the last event.
    """

    def __init__(self) -> None:
        # The events of an answer are bounded in number, and stored until they are read.
        self._events: deque[AgentEvent] = deque()
        self._more: anyio.Event | None = None
        self._ended: Reply | Exception | None = None

    @property
    def reply(self) -> Reply:
        """The reply.

        Raises:
            InputError: The events haven't ended yet.
            AgentTurnError: There is no reply.
        """
        if self._ended is None:
            raise InputError(
                "The reply isn't there yet.", next_step="Read the events to their end first."
            )
        if isinstance(self._ended, Exception):
            raise self._ended
        return self._ended

    def _take(self, event: AgentEvent) -> None:
        self._events.append(event)
        if self._more is not None:
            self._wake(self._more)

    def _end(self, ended: Reply | Exception) -> None:
        self._ended = ended
        if self._more is not None:
            self._wake(self._more)

    def _leave(self) -> None:
        """End the events of a cancelled reply, so that no reader waits for them."""
        if self._ended is None:
            self._end(
                AgentTurnError(
                    "The reply was cancelled, because its block was left.",
                    next_step="Read the events to their end within `async with`.",
                    code="cancelled",
                )
            )

    def _wake(self, waiting: anyio.Event) -> None:
        self._more = None
        waiting.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AgentEvent:
        while not self._events:
            if isinstance(self._ended, Exception):
                raise self._ended
            if self._ended is not None:
                raise StopAsyncIteration
            self._more = self._more or anyio.Event()
            await self._more.wait()
        return self._events.popleft()


def _checked(listener: Emit) -> Emit:
    if iscoroutinefunction(listener):
        raise InputError(
            "on_event is async, and nobody would await it.",
            next_step="Pass a plain function, or read the events of session.stream(...).",
        )
    return listener


def _made(result: TurnResult, spent: Spent) -> Reply:
    last = result.last
    text = last.text if last else ""
    return Reply(
        text,
        text if result.output is THE_TEXT else result.output,
        tuple(part for part in last.parts if isinstance(part, MediaPart)) if last else (),
        last.stop_reason if last else "stop",
        result.turns,
        spent,
    )


def _figures(spent: Spent) -> str:
    used = spent.tokens_used
    cost = f"${spent.cost_usd:.6f}{' and what has no price' * bool(spent.unpriced)}"
    about = "about " * used.estimated
    tokens = f"{about}{counted(used.input, 'token')} in, {used.output:,} out"
    return f"{tokens}, {about}{cost}, {used.model}"


def _shown(role: Role, part: Part) -> tuple[str, str, str]:
    """Return the speaker of a part, its style, and a line of its text."""
    match part:
        case ToolCallPart():
            return "calls", "id", f"{part.name} {_line(part.arguments_json)}"
        case ToolResultPart():
            return "fails" if part.is_error else "gives", _STYLES[part.is_error], _line(part.text)
        case ReasoningPart():
            return "thinks", "dim", _line(part.text)
        case MediaPart():
            return role, "strong", f"{part.media_type}, {part.size_bytes:,} bytes"
        case TextPart():
            return role, "strong", _line(part.text)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}…"
