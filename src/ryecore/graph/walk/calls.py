"""The calls of actions' items, and their outcomes."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from attrs import evolve

from ryecore.agent.outcome import ErrorCode, NodeOutcome
from ryecore.convert.money import read_usd
from ryecore.errors import (
    CallCancelled,
    InputError,
    IntegrityError,
    NotApproved,
    RemoteError,
    RemoteUnavailable,
    RemoteUntrusted,
    RyeError,
    SpawnFailed,
)
from ryecore.errors.state import InsufficientBudget, LimitReached
from ryecore.frozen import frozen
from ryecore.graph.model import Action, CallingVertex
from ryecore.policy import CallContext
from ryecore.runs.ports import CallOptions, Dispatcher

if TYPE_CHECKING:
    from ryecore.graph.result_cache import ResultsCache

__all__ = ["Call", "CallOutcome", "FatalProblem", "ItemCaller", "Unkeyed"]

_BROKEN_OFF: Final = ("cancelled", "killed", "duration_exceeded")
"""The states and codes of a thread that ended while a tool of it may have been running."""

_ENDED_BADLY: Final = ("error", "cancelled", "killed")


class FatalProblem(Exception):
    """An error that no edge or policy may ignore: an item that no trusted key signed."""

    def __init__(self, error: RyeError) -> None:
        super().__init__(str(error))
        self.error = error


@frozen
class Call:
    """One call that a node makes."""

    vertex: CallingVertex
    action: Action
    params: Mapping[str, object]
    ctx: CallContext


@frozen
class CallOutcome(NodeOutcome):
    """The outcome of a call, with what its thread or run has cost with all below it.

    `why_uncached`: why a wanted caching was left out.
    """

    is_from_cache: bool = False
    thread_id: str | None = None
    spend_microcents: int = 0
    why_uncached: str = ""


@frozen
class Unkeyed:
    """The reason why a result can't be cached."""

    why: str


class ItemCaller:
    """The caller of items through the verified chain, with a cache of results if there is one."""

    def __init__(self, dispatcher: Dispatcher, cache: "ResultsCache | None" = None) -> None:
        self._dispatcher = dispatcher
        self._cache = cache

    async def __call__(self, call: Call) -> CallOutcome:
        """Return the outcome of a call, also of a failure.

        An item that isn't what a trusted key signed raises FatalProblem.
        """
        timeout_s, deadline = call.vertex.timeout_s, call.ctx.deadline
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        is_nodes = until < (math.inf if deadline is None else deadline)
        if is_nodes:
            call = evolve(call, ctx=evolve(call.ctx, deadline=until))
        outcome = await self.guarded(partial(self._made, call))
        failure = outcome.failure
        if failure is None or failure.code == "cancelled" or not is_nodes:
            return outcome
        if time.monotonic() < until:
            return outcome
        said = f"'{call.vertex.id}' took longer than its {timeout_s:g} s: {failure.message}"
        late = CallOutcome.failed("tool_failed", said, effect_unknown=failure.effect_unknown)
        return evolve(outcome, failure=late.failure)

    async def guarded(self, call: Callable[[], Awaitable[CallOutcome]]) -> CallOutcome:
        """Return the outcome of what a node does; errors are outcomes, but for FatalProblem."""
        try:
            return await call()
        except IntegrityError as error:
            raise FatalProblem(error) from error
        except RyeError as error:
            return _failed(error)

    async def _made(self, call: Call) -> CallOutcome:
        if self._cache is None or not call.vertex.cache_result:
            return await self._dispatched(call)
        key = await self._cache.key(call)
        if isinstance(key, Unkeyed):
            return evolve(await self._dispatched(call), why_uncached=key.why)
        known = await self._cache.get(key)
        if known is not None:
            return CallOutcome("completed", known[0], is_from_cache=True)
        outcome = await self._dispatched(call)
        if outcome.status != "completed":
            return outcome
        unkeyed = await self._kept(call, key, outcome.output)
        return outcome if unkeyed is None else evolve(outcome, why_uncached=unkeyed.why)

    async def _kept(self, call: Call, key: str, result: object) -> Unkeyed | None:
        """Cache a result. A failure to do so doesn't affect the call."""
        if self._cache is None:
            return None
        try:
            return await self._cache.put(call, key, result)
        except RyeError as error:
            return Unkeyed(error.message)

    async def _dispatched(self, call: Call) -> CallOutcome:
        action, given = call.action, call.params
        options: CallOptions = {}
        if action.remote is not None:
            options["target"] = f"remote:{action.remote}"
        if action.limits:
            options["limits"] = action.limits
        if action.thread == "fork":
            forked = await self._dispatcher.fork(
                action.ref,
                given,
                model=action.model,
                ctx=call.ctx,
                **options,
            )
            said = dict(forked.to_dict())
            thread_id = str(said.get("thread_id") or "") or None
            spent = _spent(said.get("total_cost") or said.get("cost"))
            if said.get("status") == "error" or said.get("state") in _ENDED_BADLY:
                why = str(said.get("error") or "Its thread failed.")
                is_unknown = not {said.get("state"), said.get("error_code")}.isdisjoint(_BROKEN_OFF)
                failed = CallOutcome.failed("tool_failed", why, effect_unknown=is_unknown)
                return evolve(failed, thread_id=thread_id, spend_microcents=spent)
            return CallOutcome("completed", said, thread_id=thread_id, spend_microcents=spent)
        done = await self._dispatcher.execute(action.ref, given, ctx=call.ctx, **options)
        if not done.success:
            why = done.error or "The tool failed."
            failed = CallOutcome.failed("tool_failed", why, effect_unknown=done.effect_unknown)
            return _of_run(failed, done.data)
        if action.ref.kind == "directive":
            return CallOutcome("completed", dict(done.to_dict()))
        return _of_run(CallOutcome("completed", done.data), done.data)


def _of_run(outcome: CallOutcome, data: object) -> CallOutcome:
    """Return an outcome with the run and the cost, where a graph was called."""
    run_id = data.get("graph_run_id") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(run_id, str):
        return outcome
    return evolve(outcome, thread_id=run_id, spend_microcents=_spent(data.get("cost")))


def _spent(cost: object) -> int:
    """Return the money in a result's cost, in microcents."""
    spend = cost.get("spend") if isinstance(cost, Mapping) else None
    return read_usd(spend) if isinstance(spend, int | float) else 0


def _failed(error: RyeError) -> CallOutcome:
    return CallOutcome.failed(
        _code_of(error),
        str(error),
        retryable=isinstance(error, SpawnFailed),
        effect_unknown=isinstance(error, CallCancelled | RemoteUnavailable | RemoteUntrusted),
    )


def _code_of(error: RyeError) -> ErrorCode:
    match error:
        case CallCancelled():
            return "cancelled"
        case NotApproved():
            return "tool_denied"
        case InputError() if "capability" in error.facts:
            return "tool_denied"
        case InsufficientBudget() | LimitReached():
            return "budget_exceeded"
        case InputError():
            return "validation"
        case SpawnFailed() | RemoteError():
            return "tool_failed"
        case _:
            return "internal"
