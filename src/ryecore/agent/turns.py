"""The turn core: ask a model, stream its events, serve its tool calls, and repeat to the end.

It is the same for runs, sessions and threads, which differ by their policies.

Source: docs/design/agent-node.md#failures; decisions 49 to 57.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Literal

from attrs import evolve

from ryecore.agent.approvals import PendingApproval, results_so_far
from ryecore.agent.assembly import TurnSetup
from ryecore.agent.calls import Served, ServedCalls
from ryecore.agent.events import AgentReasoning, AgentToken
from ryecore.agent.outcome import ErrorCode, turn_error
from ryecore.agent.verdicts import (
    THE_TEXT,
    Accept,
    Continue,
    Fail,
    Finish,
    Go,
    GoWithin,
    HandOff,
    Nudge,
    Raise,
    Replace,
    RetryTurn,
    Stop,
    TurnState,
)
from ryecore.errors import LlmError
from ryecore.frozen import frozen
from ryecore.llm.parts import Message, ReasoningPart
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import LlmResult
from ryecore.llm.stream import (
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)

__all__ = ["TurnResult", "run_turns"]

_CALL_CHARS: Final = 100  # the least that a call counts, however short its name


@frozen
class TurnResult:
    """The result of the turns.

    Attributes:
        ended: `answered` by text, `finished` by a call, `handed_off`, `stopped`, or `suspended`
            until calls are approved.
        output: The output of `Accept` or `Finish`; `THE_TEXT` for the text of the last answer.
        hand_off: The data for the thread that continues.
        reason: The reason for a stop.
        reasoning: The readable reasoning of all its answers.
        pending: The calls that wait for an approval.
    """

    ended: Literal["answered", "finished", "handed_off", "stopped", "suspended"]
    output: object = THE_TEXT
    last: LlmResult | None = None
    turns: int = 0
    hand_off: Mapping[str, object] | None = None
    reason: str = ""
    reasoning: tuple[str, ...] = ()
    pending: tuple[PendingApproval, ...] = ()


async def run_turns(
    setup: TurnSetup, messages: list[Message], answers: Sequence[PendingApproval] = ()
) -> TurnResult:
    """Run the turns of a conversation until they end, or fail with an AgentTurnError or LlmError.

    The conversation grows only by whole turns: even after an error, every tool call has its result.
    Only suspended turns leave calls without one: those that wait for an approval. With the answers
    to all of them, the turns continue with these calls.
    """
    return await _Turns(setup, messages).run(answers)


class _Turns:
    """The turns of one conversation."""

    def __init__(self, setup: TurnSetup, messages: list[Message]) -> None:
        self._setup = setup
        self._messages = messages
        self._state = TurnState(0, messages)
        self._tool_turns = 0
        self._last: LlmResult | None = None
        self._on_chunk = _chunk_reader(setup)
        self._reasoning: list[str] = []

    async def run(self, answers: Sequence[PendingApproval]) -> TurnResult:
        policy = self._setup.policy
        if answers:
            ended = await self._resume(answers)
            if ended is not None:
                return ended
        while True:
            before = self._state
            turn = before.turn + (not before.errors)  # a retry belongs to the same turn
            state = self._state = TurnState(turn, self._messages, before.corrections, before.errors)
            match await policy.before_turn(state):
                case Stop(reason):
                    return self._result("stopped", reason=reason)
                case GoWithin(most):
                    asked = await self._ask(most)
                case Go():
                    asked = await self._ask(self._setup.request.max_output_tokens)
            if isinstance(asked, Stop):
                return self._result("stopped", reason=asked.reason)
            if asked is None:
                continue
            self._last = asked = await policy.on_answer(state, asked)
            for part in asked.parts:
                if type(part) is ReasoningPart and part.text:
                    self._reasoning.append(part.text)
            ended = await (self._serve(asked) if asked.tool_calls else self._read(asked))
            if ended is not None:
                return ended

    async def _ask(self, max_output_tokens: int | None) -> LlmResult | Stop | None:
        """Ask the model for an answer; return None for another try."""
        setup, common = self._setup, self._setup.request
        request = LlmRequest(  # inlined: `evolve` takes over 50% longer
            common.model,
            tuple(self._messages),
            common.system,
            common.tools,
            common.tool_choice,
            max_output_tokens,
            common.temperature,
            common.response_format,
            common.reasoning,
            common.stop,
            common.cache,
        )
        setup.meter.request = request
        try:
            result = await setup.chain.stream(request, self._on_chunk())
        except LlmError as error:
            match await setup.policy.on_error(self._state, error):
                case Raise():
                    raise
                case RetryTurn(delay_s):
                    self._state = evolve(self._state, errors=self._state.errors + 1)
                    await setup.deps.sleep(delay_s)
                    return None
                case Replace(messages):
                    self._messages[:] = messages
                    self._state = evolve(self._state, errors=self._state.errors + 1)
                    return None
                case Stop() as stop:
                    return stop
        if self._state.errors:
            self._state = evolve(self._state, errors=0)
        if result.stop_reason == "content_filter":
            raise turn_error(
                "content_filter", f"The content filter of {result.provider} stopped the answer."
            )
        return result

    async def _serve(self, asked: LlmResult) -> TurnResult | None:
        """Serve the tool calls of an answer."""
        most = self._setup.max_tool_turns
        self._tool_turns += 1
        if self._tool_turns > most:
            raise turn_error(
                "turn_limit",
                f"The model asked for tools in more than {most} turns.",
                next_step="Raise AgentTurnLimits.max_tool_turns, or give it less to do.",
            )
        calls = ServedCalls(self._setup, self._state, asked)
        return await self._close(asked, calls, calls.serve(), len(self._messages))

    async def _resume(self, answers: Sequence[PendingApproval]) -> TurnResult | None:
        """Serve the calls of the last answer that waited for an approval."""
        place, results = results_so_far(self._messages)
        asked = LlmResult(
            self._messages[place].parts, "tool_use", None, self._setup.request.model, ""
        )
        self._last = asked
        answered = {one.place: one for one in answers}
        calls = ServedCalls(self._setup, self._state, asked, answered, results)
        return await self._close(asked, calls, calls.resume(), place)

    async def _close(
        self,
        asked: LlmResult,
        calls: ServedCalls,
        serving: Awaitable[Served],
        start: int,
    ) -> TurnResult | None:
        try:
            served = await serving
        finally:
            # After a cancellation, too: tools that ran have had effects, which a resume must know.
            results = calls.results()
            closed = (asked.message, Message("tool", results)) if results else (asked.message,)
            self._messages[start:] = closed
            await calls.report_rest()
        if served.pending:
            return evolve(self._result("suspended"), pending=served.pending)
        match served.ending:
            case Finish(output):
                return self._result("finished", output)
            case Fail(code, message):
                raise turn_error(code, message)
            case None:
                pass
        if served.correction:
            self._correct("tool_failed", served.correction)
        match await self._setup.policy.after_turn(self._state, asked):
            case Replace(messages):
                self._messages[:] = messages
            case HandOff(data):
                return self._result("handed_off", hand_off=data)
            case Stop(reason):
                return self._result("stopped", reason=reason)
            case Continue():
                pass
        return None

    async def _read(self, asked: LlmResult) -> TurnResult | None:
        """Handle an answer without tool calls."""
        match await self._setup.policy.on_text(self._state, asked):
            case Accept(output):
                self._keep(asked)
                return self._result("answered", output)
            case Nudge(text, is_correction, code):
                self._keep(asked)
                self._messages.append(Message.user(text))
                if is_correction:
                    self._correct(code, text)
            case Fail(code, message):
                self._keep(asked)
                raise turn_error(code, message)
        return None

    def _keep(self, asked: LlmResult) -> None:
        if asked.parts:  # providers refuse a message without content
            self._messages.append(asked.message)

    def _correct(self, code: ErrorCode, why: str) -> None:
        """Spend a correction, or fail if none is left."""
        budget = self._setup.deps.limits.correction_budget
        if self._state.corrections >= budget:
            raise turn_error(
                code, f"After {budget} corrections the model still does it wrong: {why}"
            )
        self._state = evolve(self._state, corrections=self._state.corrections + 1)

    def _result(
        self,
        ended: Literal["answered", "finished", "handed_off", "stopped", "suspended"],
        output: object = THE_TEXT,
        *,
        hand_off: Mapping[str, object] | None = None,
        reason: str = "",
    ) -> TurnResult:
        return TurnResult(
            ended, output, self._last, self._state.turn, hand_off, reason, tuple(self._reasoning)
        )


def _chunk_reader(setup: TurnSetup) -> Callable[[], Callable[[StreamChunk], None]]:
    """Return a factory of readers, each of which turns the chunks of one answer into events."""
    chain, emit, node_id = setup.chain, setup.emit, setup.node_id
    most = setup.deps.limits.max_answer_chars

    def begin() -> Callable[[StreamChunk], None]:
        left = most

        def on_chunk(chunk: StreamChunk) -> None:
            nonlocal left
            if type(chunk) is TextDelta:
                chars = len(chunk.text)
                if chars:
                    emit(AgentToken(node_id, chunk.text, chain.active_model))
            elif type(chunk) is ToolCallDelta:
                chars = len(chunk.arguments_json)
            elif type(chunk) is ReasoningDelta:
                chars = len(chunk.text) + len(chunk.opaque)
                if chunk.text:
                    emit(AgentReasoning(node_id, chunk.text, chain.active_model))
            elif type(chunk) is ToolCallStart:
                chars = _CALL_CHARS + len(chunk.call_id) + len(chunk.name)
            else:
                chars = 0
            left -= chars or 1  # empty chunks may be endless, too
            if left < 0:
                raise turn_error(
                    "provider_unavailable",
                    f"The answer of {chain.active_model} has over {most} characters and continues.",
                    next_step="If it is meant to, raise AgentTurnLimits.max_answer_chars.",
                )

        return on_chunk

    return begin
