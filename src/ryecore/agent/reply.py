"""The reply of an agent in a session, and the stream of its events."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from inspect import iscoroutinefunction
from typing import Any, Generic, Literal, Self, cast

import anyio

from ryecore.agent.costs import Spent
from ryecore.agent.events import AgentEnd, AgentEvent, Emit
from ryecore.agent.notebook import figures
from ryecore.agent.outcome import ErrorCode, OutputT_co, TokensUsed, failure_of
from ryecore.agent.turns import TurnResult
from ryecore.agent.verdicts import THE_TEXT
from ryecore.display.text import StyledText, counted
from ryecore.errors import AgentTurnError, InputError
from ryecore.frozen import frozen
from ryecore.llm.parts import MediaPart
from ryecore.llm.result import StopReason

__all__ = [
    "Reply",
    "SessionStream",
    "checked_listener",
    "emit_end",
    "failed_end",
    "reply_of",
    "streamed",
]


@frozen
class Reply(Generic[OutputT_co]):
    """The answer of an agent.

    Attributes:
        text: The answer's text.
        output: A value of the agent's `output_type`, or the JSON value of its `output_schema`, else
            the text. None while calls wait for an approval.
        media: Media that the model made.
        stop_reason: Why the model stopped; `length` means that the answer was cut off, `approval`
            that calls wait for an answer, see `AgentSession.pending`.
        turns: The number of turns.
        spent: The tokens and the cost of the reply's tries, failed ones included.
        reasoning: The reasoning of all its turns, as far as the model shows it.
    """

    text: str
    output: OutputT_co
    media: tuple[MediaPart, ...]
    stop_reason: StopReason | Literal["approval"]
    turns: int
    spent: Spent
    reasoning: str = ""

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
        styled.line((f"{counted(self.turns, 'turn')}, {figures(self.spent)}", "dim"))
        return styled


def reply_of(result: TurnResult, spent: Spent) -> Reply[Any]:
    """Return the reply that the turns ended with."""
    last = result.last
    text = last.text if last else ""
    reasoning = "\n\n".join(result.reasoning)
    if result.ended == "suspended":
        return Reply(text, None, (), "approval", result.turns, spent, reasoning)
    return Reply(
        text,
        text if result.output is THE_TEXT else result.output,
        tuple(part for part in last.parts if isinstance(part, MediaPart)) if last else (),
        last.stop_reason if last else "stop",
        result.turns,
        spent,
        reasoning,
    )


def emit_end(emit: Emit, reply: Reply[Any], session_id: str) -> None:
    """Emit the event of a reply's end; raise what a listener raises as an AgentTurnError."""
    stop_reason, turns = reply.stop_reason, reply.turns
    try:
        emit(AgentEnd.of(session_id, reply.spent, stop_reason=stop_reason, turns=turns))
    except Exception as error:
        failed = failure_of(error)
    else:
        return
    raise AgentTurnError(failed.message, code=failed.code, retryable=failed.retryable)


def failed_end(problem: BaseException, session_id: str, spent: Spent) -> AgentEnd:
    """Return the event of the end of a reply that failed, or was cancelled."""
    code = cast("ErrorCode", problem.code) if isinstance(problem, AgentTurnError) else None
    return AgentEnd.of(session_id, spent, error_code=code or "cancelled")


class SessionStream(Generic[OutputT_co]):
    """The events of one reply, as they arrive.

    Attributes:
        reply: The reply, available after the last event.
    """

    def __init__(self) -> None:
        # The events of an answer are bounded in number, and stored until they are read.
        self._events: deque[AgentEvent] = deque()
        self._more: anyio.Event | None = None
        self._ended: Reply[OutputT_co] | Exception | None = None

    @property
    def reply(self) -> Reply[OutputT_co]:
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

    def _end(self, ended: Reply[Any] | Exception) -> None:
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


@asynccontextmanager
async def streamed(
    send: Callable[..., Awaitable[Reply[OutputT_co]]],
) -> AsyncIterator[SessionStream[OutputT_co]]:
    """Send a message with `send(on_event=...)`, and yield its events; see `AgentSession.stream`."""
    stream: SessionStream[OutputT_co] = SessionStream()
    problem: Exception | None = None

    async def answer() -> None:
        try:
            ended: Reply[OutputT_co] | Exception = await send(on_event=stream._take)
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


def checked_listener(listener: Emit) -> Emit:
    """Return a listener, which can't be async."""
    if iscoroutinefunction(listener):
        raise InputError(
            "on_event is async, and nobody would await it.",
            next_step="Pass a plain function, or read the events of session.stream(...).",
        )
    return listener
