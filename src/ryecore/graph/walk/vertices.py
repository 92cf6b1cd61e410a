"""The handlers of the node executor for all types of nodes except agents.

Source: docs/design/agent-node.md#layers. Agents are the executor's own; these are its handlers.
"""

import random
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias, cast

import anyio
from attrs import evolve

from ryecore.agent.node import NodeExecContext, NodeExecutor
from ryecore.agent.outcome import NodeOutcome
from ryecore.chain.primitives import EFFECT_UNKNOWN
from ryecore.graph.journal.journal import Journal
from ryecore.graph.model import (
    ActionForeach,
    ActionVertex,
    AgentForeach,
    Graph,
    ReturnVertex,
    Tries,
)
from ryecore.graph.walk.calls import Call, CallOutcome, ItemCaller
from ryecore.graph.walk.foreach import for_each
from ryecore.llm.fallback_rules import backoff_s
from ryecore.policy import CallContext
from ryecore.policy.context import place_id

__all__ = ["Vertices"]

_MAX_NAMED: Final = 5


RunMember: TypeAlias = Callable[[AgentForeach, object, CallContext], Awaitable[CallOutcome]]
"""Runs the agent of a foreach for one member."""


class Vertices:
    """The handlers of one run. `facts` about the last node are recorded with its end.

    `known` holds the outcomes of the members of the foreach at which a resumed run stopped.
    """

    def __init__(
        self,
        graph: Graph,
        caller: ItemCaller,
        journal: Journal,
        run_member: RunMember,
        known: Mapping[int, NodeOutcome] | None = None,
    ) -> None:
        self._graph = graph
        self._caller = caller
        self._journal = journal
        self._run_member = run_member
        self._known = known or {}
        self.facts: dict[str, object] = {}

    def handlers(self) -> dict[str, NodeExecutor]:
        """Return the handlers, by the type of node."""
        return {
            "action": self.act,
            "gate": self.pass_through,
            "foreach": self.each,
            "return": self.give_back,
        }

    async def pass_through(self, ctx: NodeExecContext, /) -> NodeOutcome:
        """Handle a gate, which does nothing: its edges decide."""
        return NodeOutcome("completed")

    async def give_back(self, ctx: NodeExecContext, /) -> NodeOutcome:
        """Handle a return node: return its output."""
        vertex = cast("ReturnVertex", ctx.vertex)
        return NodeOutcome("completed", vertex.output.value(ctx.ctx))

    async def act(self, ctx: NodeExecContext, /) -> NodeOutcome:
        """Handle an action node: call its item."""
        vertex = cast("ActionVertex", ctx.vertex)
        params = _given(vertex.action.params.value(ctx.ctx))
        call = Call(vertex, vertex.action, params, _within(ctx.call))
        about = {"node": vertex.id, "type": vertex.type, "item_id": str(vertex.action.ref)}
        return await self._tried(partial(self._caller, call), vertex.tries, "node", about)

    async def each(self, ctx: NodeExecContext, /) -> NodeOutcome:
        """Handle a foreach node: call its item, or run its agent, for each member of a list."""
        vertex = cast("ActionForeach | AgentForeach", ctx.vertex)
        members = vertex.over.value(ctx.ctx)
        if not isinstance(members, list | tuple):
            found = "null" if members is None else type(members).__name__
            return NodeOutcome.failed(
                "validation", f"'{vertex.id}' needs a list in 'over', not {found}."
            )
        self._journal.append(
            "node_started", {"node": vertex.id, "type": vertex.type, "count": len(members)}
        )
        await self._journal.commit()
        known, self._known = self._known, {}  # only the first resumed foreach has them
        within = _within(ctx.call)
        over, in_flight = len(known), set[int]()

        async def call(index: int, member: object) -> NodeOutcome:
            nonlocal over
            in_flight.add(index)
            about: dict[str, object] = {"node": vertex.id, "index": index}
            here = evolve(within, call_id=place_id(within.call_id, index))
            if isinstance(vertex, AgentForeach):
                about["agent"] = vertex.agent.agent.name
                run = partial(self._caller.guarded, partial(self._run_member, vertex, member, here))
                outcome = await self._tried(run, Tries(), "item", about)
            else:
                about["item_id"] = str(vertex.action.ref)
                params = _given(vertex.action.params.value({**ctx.ctx, vertex.as_: member}))
                made = Call(vertex, vertex.action, params, here)
                outcome = await self._tried(
                    partial(self._caller, made), vertex.tries, "item", about
                )
            over += 1
            in_flight.discard(index)
            return outcome

        at_once = vertex.max_concurrency or self._graph.max_concurrency
        stops = vertex.on_error is not None or self._graph.on_error == "fail"
        done = await for_each(
            members,
            call,
            at_once=min(at_once, self._graph.max_concurrency) if vertex.parallel else 1,
            stops_at_error=stops,
            known=known,
        )
        self._journal.append(
            "foreach_completed",
            {"node": vertex.id, "count": len(members), "failed": done.failed},
        )
        self.facts = {"count": len(members), "done": over, "failed": done.failed}
        if done.failed and stops:
            return _stopped_at(done.errors[0], vertex.id, in_flight)
        value = done.to_dict()
        if isinstance(vertex, ActionForeach) and not vertex.returns_items:
            value["items"] = []
        return NodeOutcome("completed", value)

    async def _tried(
        self,
        call: Callable[[], Awaitable[CallOutcome]],
        tries: Tries,
        what: str,
        about: Mapping[str, object],
    ) -> NodeOutcome:
        """Make a call with retries, and record every attempt.

        The end of a node's last attempt is recorded with the node's outcome; that of a member's
        here, since nothing else of it survives a killed run.
        """
        tried = 0
        while True:
            tried += 1
            began = time.perf_counter()
            self._journal.append(f"{what}_started", {**about, "try": tried})
            await self._journal.commit()
            outcome = await call()
            failure, told = outcome.failure, _facts_of(outcome, tried, began)
            if outcome.why_uncached:
                self._journal.append("cache_skipped", {**about, "why": outcome.why_uncached})
            if failure is None or not failure.retryable or tried >= tries.max:
                if what == "item":
                    kept = self._journal.outcome_of(outcome)
                    self._journal.append("item_completed", {**about, **told, **kept})
                    await self._journal.flush()
                else:
                    self.facts = told
                return outcome
            jitter = random.random()  # noqa: S311 - no secret
            wait_s = backoff_s(tried, tries.base_s, tries.cap_s, jitter)
            why = {"wait_s": round(wait_s, 3), "error": failure.message}
            self._journal.append(f"{what}_retry", {**about, **told, **why})
            await self._journal.flush()
            await anyio.sleep(wait_s)


def _facts_of(outcome: CallOutcome, tried: int, began: float) -> dict[str, object]:
    """Return the facts about an ended call, besides its outcome."""
    elapsed_ms = round((time.perf_counter() - began) * 1000, 3)
    told: dict[str, object] = {"try": tried, "elapsed_ms": elapsed_ms}
    if outcome.is_from_cache:
        told["cache_hit"] = True
    if outcome.thread_id is not None:
        told["thread_id"] = outcome.thread_id
    if outcome.spend_microcents:
        told["spend_microcents"] = outcome.spend_microcents
    return told


def _given(params: object) -> dict[str, object]:
    """Return the parameters without those that are None."""
    given = cast("Mapping[str, object]", params)
    return {name: value for name, value in given.items() if value is not None}


def _within(call: CallContext) -> CallContext:
    return evolve(call, depth=call.depth + 1)


def _stopped_at(error: Mapping[str, object], node: str, in_flight: Collection[int]) -> NodeOutcome:
    """Return the outcome of a foreach whose member failed while others were in flight."""
    return NodeOutcome.failed(
        "tool_failed",
        f"Member {error['index']} of '{node}': {error['error']}{_broken_off(in_flight)}",
        effect_unknown=bool(in_flight) or "effect_unknown" in error,
    )


def _broken_off(members: Collection[int]) -> str:
    """Return the line that names the members of a foreach that were broken off; empty for none."""
    if not members:
        return ""
    shown = ", ".join(map(str, sorted(members)[:_MAX_NAMED]))
    more = f" and {len(members) - _MAX_NAMED} more" if len(members) > _MAX_NAMED else ""
    are = "Member {} was" if len(members) == 1 else "Members {} were"
    return f"\n{are.format(shown + more)} broken off. {EFFECT_UNKNOWN}"
