"""The tool calls of one answer, and how they are served."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from types import MappingProxyType
from typing import Final

import anyio
from attrs import evolve

from ryecore.agent.approvals import PendingApproval
from ryecore.agent.assembly import TurnSetup
from ryecore.agent.events import AgentToolCall, AgentToolResult, ApprovalRequested
from ryecore.agent.verdicts import Dispatch, Fail, Feed, Finish, OnCall, TurnState
from ryecore.errors import ToolCallError, ToolCancelledError
from ryecore.frozen import frozen
from ryecore.llm.parts import TextPart, ToolCallPart, ToolResultPart
from ryecore.llm.result import LlmResult
from ryecore.policy.cancelling import run_to_end
from ryecore.policy.context import place_id
from ryecore.strict_json import read_json
from ryecore.tools.approval import CallSuspended, denial
from ryecore.tools.context import ToolApprovalRequest, ToolContext
from ryecore.tools.results import ToolCalled, ToolOutcome, ToolReturned

__all__ = ["Served", "ServedCalls"]

_SUMMARY_CHARS: Final = 500
_CUT: Final = "not run: your answer was cut at its longest, before the arguments of this call"
_NOT_RUN: Final = "not run: another call of this turn ended it, or it was cancelled"
_READ: Final = "broken off while it ran. It changes nothing, so it may be called again"
_UNKNOWN: Final = "broken off while it ran: whether it has had its effect is not known"


@frozen
class Served:
    """The verdict that ends the turns, if one does, and the mistake that was fed back, if any.

    `pending` are the calls that wait for an approval; the others have their results.
    """

    ending: Finish | Fail | None = None
    correction: str = ""
    pending: tuple[PendingApproval, ...] = ()


_NOTHING_ENDS: Final = Served()


class ServedCalls:
    """The calls of one answer, served in parallel if all tools allow it.

    `answers` are those to the calls that waited for an approval, by their places, and `results`
    those of the others.
    """

    def __init__(
        self,
        setup: TurnSetup,
        state: TurnState,
        asked: LlmResult,
        answers: Mapping[int, PendingApproval] = MappingProxyType({}),
        results: Mapping[int, ToolResultPart] = MappingProxyType({}),
    ) -> None:
        self._setup = setup
        self._state = state
        self._asked = asked
        self._calls = asked.tool_calls
        self._answers = answers
        self._results = {**results}
        self._pending: dict[int, PendingApproval] = {}
        self._unreported: dict[int, ToolResultPart] = {}
        self._begun: set[int] = set()
        self._fail: Fail | None = None
        self._suspended = False
        self._correction = ""

    async def serve(self) -> Served:
        """Serve the calls. If a tool was cancelled, its `ToolCancelledError` propagates."""
        # Judge all calls before the first one runs, so that one that ends the turns comes first.
        judged: list[OnCall] = []
        ending: Finish | Fail | None = None
        registry, policy = self._setup.registry, self._setup.policy
        most = self._setup.deps.limits.max_calls_a_turn
        for place, call in enumerate(self._calls):
            verdict: OnCall
            if place >= most:
                verdict = Feed(f"not run: a turn may call {most} tools at most")
            elif self._is_cut(call):
                verdict = Feed(_CUT)
            else:
                verdict = await policy.on_call(self._state, call, registry.get(call.name))
                if ending is None and isinstance(verdict, (Finish, Fail)):
                    ending = verdict
            judged.append(verdict)
        if ending is not None:
            for place, verdict in enumerate(judged):
                if verdict is ending:
                    text = "done" if isinstance(ending, Finish) else ending.message
                    await self._answer(place, text, is_error=isinstance(ending, Fail))
            return Served(ending, self._correction)
        places: list[int] = []
        for place, verdict in enumerate(judged):
            match verdict:
                case Dispatch():
                    places.append(place)
                case Feed() as feed:
                    await self._feed(place, feed)
                    self._tell_unrun(place, feed)
        await self._run(places)
        return self._served()

    async def resume(self) -> Served:
        """Serve the calls that a person has answered, in their order."""
        for place, answer in sorted(self._answers.items()):
            if self._fail is not None:
                break
            if answer.approved:
                await self._dispatch(place)
            else:
                why = f": {answer.answer_reason}" if answer.answer_reason else "."
                feed = Feed(str(denial(answer.tool_name, why)))
                await self._feed(place, feed)
                self._tell_unrun(place, feed)
        return self._served()

    def _served(self) -> Served:
        if not self._pending:
            if self._fail is None and not self._correction:
                return _NOTHING_ENDS
            return Served(self._fail, self._correction)
        if self._fail is not None:
            return Served(self._fail, self._correction)
        pending = tuple(one for _, one in sorted(self._pending.items()))
        for one in pending:
            self._setup.emit(
                ApprovalRequested(
                    self._setup.node_id,
                    one.id,
                    one.call_id,
                    one.tool_name,
                    one.arguments,
                    one.reason,
                )
            )
        self._suspended = True
        return Served(None, self._correction, pending)

    def _is_cut(self, call: ToolCallPart) -> bool:
        """Return whether the answer was cut off before the call's arguments."""
        if self._asked.stop_reason != "length" or call is not self._asked.parts[-1]:
            return False
        return call.arguments_json in ("", "{}")  # as adapters write missing arguments

    async def _run(self, places: Sequence[int]) -> None:
        if len(places) == 1:
            await self._dispatch(places[0])
            return
        # If a denied call ends the turns, none of its siblings has had an effect.
        denied = [place for place in places if self._is_denied(place)]
        await self._run_in_order(denied)
        rest = [place for place in places if place not in denied]
        if self._fail is None and all(self._is_parallel_safe(place) for place in rest):
            await self._run_together(rest)
        else:
            await self._run_in_order(rest)

    async def _run_in_order(self, places: Sequence[int]) -> None:
        for place in places:
            if self._fail is not None:
                return
            await self._dispatch(place)

    def _is_denied(self, place: int) -> bool:
        return self._setup.registry.denies(self._calls[place].name, self._setup.tool_context)

    def _is_parallel_safe(self, place: int) -> bool:
        tool = self._setup.registry.get(self._calls[place].name)
        return tool is not None and tool.runs_in_parallel and not self._setup.in_order

    async def _run_together(self, places: Sequence[int]) -> None:
        raised: list[ToolCancelledError] = []

        async def one(place: int) -> None:
            try:
                await self._dispatch(place)
            except ToolCancelledError as error:
                raised.append(error)
            if self._fail is not None or raised:
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for place in places:
                group.start_soon(one, place)
        if raised:
            raise raised[0]

    async def _dispatch(self, place: int) -> None:
        call, setup = self._calls[place], self._setup
        self._begun.add(place)
        told = _CallEvents(setup, call, self._asked.model)
        context = self._context(place)
        came: ToolOutcome | ToolCallError
        try:
            if setup.deps.observer is None:
                came = await setup.registry.dispatch(call, context, told.on_event)
            else:
                with setup.deps.observer.tool(setup.node_id, call):
                    came = await setup.registry.dispatch(call, context, told.on_event)
        except ToolCancelledError:
            raise
        except CallSuspended as waits:
            self._suspend(place, waits.request)
            return
        except ToolCallError as error:
            came = error
            if not told.result:
                told.failed(str(error))
        verdict = await setup.policy.on_result(self._state, call, came)
        match verdict:
            case Fail():
                self._fail = self._fail or verdict
                await self._answer(place, verdict.message, is_error=True)
            case Feed():
                await self._feed(place, verdict)
            case _ if isinstance(came, ToolOutcome):
                await self._keep(place, came.part)
            case _:
                await self._answer(place, str(came), is_error=True)

    def _context(self, place: int) -> ToolContext:
        """Return the tool context of one call, with its own id where the tool can see it."""
        context, call = self._setup.tool_context, self._calls[place]
        tool = self._setup.registry.get(call.name)
        if tool is None or not tool.is_told_its_call:
            return context
        turn = self._state.turn
        call_id = place_id(context.call.call_id, turn, place, call.name, call.arguments_json)
        own = context.as_call(call_id)
        if self._setup.suspends and (tool.needs_approval or tool.policy.unlisted == "ask"):
            own = evolve(own, approve=partial(self._approve, place))
        return own

    async def _approve(self, place: int, request: ToolApprovalRequest) -> bool:
        """Approve exactly what a person has approved; anything else waits for an answer."""
        answer = self._answers.get(place)
        if answer is not None and answer.approved and answer.covers(request):
            return True
        raise CallSuspended(request)

    def _suspend(self, place: int, request: ToolApprovalRequest) -> None:
        self._begun.discard(place)
        self._pending[place] = PendingApproval(
            token_hex(8),
            request.tool_name,
            request.arguments,
            request.reason,
            request.tool_digest,
            request.tool_call_id,
            place,
        )

    def _tell_unrun(self, place: int, feed: Feed) -> None:
        if feed.is_error:
            _CallEvents(self._setup, self._calls[place], self._asked.model).failed(feed.text)

    async def _feed(self, place: int, feed: Feed) -> None:
        await self._answer(place, feed.text, is_error=feed.is_error)
        if feed.is_correction:
            self._correction = self._correction or feed.text

    async def _answer(self, place: int, text: str, *, is_error: bool) -> None:
        await self._keep(place, self._part(place, text, is_error=is_error))

    def _part(self, place: int, text: str, *, is_error: bool) -> ToolResultPart:
        call = self._calls[place]
        # Our own words, but they may quote a tool or the model.
        return ToolResultPart(call.call_id, call.name, (TextPart(text),), is_error=is_error)

    async def _keep(self, place: int, part: ToolResultPart) -> None:
        self._results[place] = part
        await self._setup.policy.on_final_result(self._state, part)

    def results(self) -> tuple[ToolResultPart, ...]:
        """Return a result for each call, also for calls that were not run or were interrupted.

        Only the calls of suspended turns that wait for an approval have none.
        """
        results, count = self._results, len(self._calls)
        if self._suspended:
            return tuple([results[place] for place in range(count) if place in results])
        for place in range(count):
            if place not in results:
                text = self._broken_off(place) if place in self._begun else _NOT_RUN
                part = self._part(place, text, is_error=True)
                results[place] = self._unreported[place] = part
        return tuple([results[place] for place in range(count)])

    def _broken_off(self, place: int) -> str:
        tool = self._setup.registry.get(self._calls[place].name)
        return _READ if tool is not None and tool.read_only else _UNKNOWN

    async def report_rest(self) -> None:
        """Report to the policy the results that `results` made."""
        if self._unreported:
            await run_to_end(self._report_unreported)

    async def _report_unreported(self) -> None:
        for part in self._unreported.values():
            await self._setup.policy.on_final_result(self._state, part)


class _CallEvents:
    """Emits the events of one call, with the facts of its run."""

    __slots__ = ("_call", "_called", "_model", "_setup", "result")

    def __init__(self, setup: TurnSetup, call: ToolCallPart, model: str) -> None:
        self._setup = setup
        self._call = call
        self._model = model
        self._called = False
        self.result = False

    def on_event(self, event: ToolCalled | ToolReturned) -> None:
        setup, call = self._setup, self._call
        if isinstance(event, ToolCalled):
            self._called = True
            setup.emit(
                AgentToolCall(
                    setup.node_id,
                    self._model,
                    call.call_id,
                    call.name,
                    event.tool_input,
                    setup.meter.attempt_number,
                )
            )
            return
        self.result = True
        if setup.emits_results:
            setup.emit(
                AgentToolResult(
                    setup.node_id,
                    call.call_id,
                    call.name,
                    event.success,
                    event.output_summary,
                    setup.meter.attempt_number,
                )
            )

    def failed(self, why: str) -> None:
        """Emit the events of a call that never reached its tool."""
        if not self._called:
            self.on_event(ToolCalled(self._call.name, _shown_input(self._call.arguments_json)))
        self.on_event(ToolReturned(self._call.name, False, why[:_SUMMARY_CHARS]))


def _shown_input(arguments_json: str) -> Mapping[str, object] | str:
    """Return a refused call's arguments for events: an object, or shortened text."""
    if len(arguments_json) <= _SUMMARY_CHARS:
        with suppress(ValueError):
            found = read_json(arguments_json)
            if isinstance(found, dict):
                return found
    return arguments_json[:_SUMMARY_CHARS]
