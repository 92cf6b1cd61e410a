"""The walker of a graph: it runs each node by the one executor, and asks the schedule for the next.

Source: docs/design/runtimes.md#state-graphs; docs/design/agent-node.md#layers; decisions 42, 49 and
50.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio
import anyio.lowlevel
from attrs import evolve, field

from ryecore.agent.node import NodeExecContext
from ryecore.agent.outcome import NodeFailure, NodeOutcome
from ryecore.agent.runner import AgentNodeExecutor
from ryecore.chain.primitives import with_unknown_effect
from ryecore.errors import CallCancelled, IntegrityError
from ryecore.frozen import frozen
from ryecore.graph.journal.journal import Journal
from ryecore.graph.members import MEMBER
from ryecore.graph.model import AgentVertex, Graph, VertexOfGraph
from ryecore.graph.projection import RunProjection
from ryecore.graph.schedule import Position, after, context_of, stopped, write_failure
from ryecore.graph.walk.agents import AgentWork
from ryecore.graph.walk.calls import FatalProblem
from ryecore.graph.walk.vertices import Vertices
from ryecore.policy import CallContext
from ryecore.policy.cancelling import bounded_by, is_cancelled
from ryecore.policy.context import place_id
from ryecore.policy.hooks import Control
from ryecore.runs.hooks import HookRunner

__all__ = ["GraphWalk", "Walker"]

_YIELD_EVERY_S: Final = 0.005
"""How often, in seconds, nodes that never wait let other tasks run."""


@frozen
class GraphWalk:
    """The parts of a run: the handlers of nodes, the graph's own hooks, and the context of calls.

    `member` is the name of a foreach's member, in the run of one. `projection` receives the end of
    each node, for the status in the result.
    """

    run_id: str
    graph: Graph
    inputs: Mapping[str, object]
    executor: AgentNodeExecutor
    vertices: Vertices
    agents: AgentWork
    journal: Journal
    hooks: HookRunner
    call: CallContext
    member: str | None = None
    projection: RunProjection = field(factory=RunProjection)


class Walker:
    """The walker of one graph in one run, with its current position."""

    def __init__(self, walk: GraphWalk, position: Position) -> None:
        self._walk = walk
        self._yielded = time.perf_counter()
        self.position = position

    async def to_the_end(self) -> Position:
        """Run node after node until the run has ended or is cancelled; return the last position.

        A checkpoint stores each step before the next one begins. A journal that can't be written
        stops the run.
        """
        return await self._bounded(self._all_steps)

    async def one_step(self) -> Position:
        """Run the current node only."""
        return await self._bounded(self.step)

    async def _all_steps(self) -> None:
        while self.position.ending is None and not is_cancelled(self._walk.call.cancellation):
            await self.step()

    async def _bounded(self, walk: Callable[[], Awaitable[None]]) -> Position:
        """GraphWalk until the run is cancelled or its time is up."""
        token, deadline = self._walk.call.cancellation, self._walk.call.deadline
        is_over = False
        try:
            with bounded_by(token, deadline=deadline):
                await walk()
                is_over = True
        except Exception:
            if not is_cancelled(token, deadline=deadline):
                raise
        if self.position.ending is None and (not is_over or is_cancelled(token)):
            was_asked = is_cancelled(token)
            why = "The run was cancelled." if was_asked else "The run's time is up."
            said = why if is_over else with_unknown_effect(why)
            self.position = stopped(self.position, said, in_flight=not is_over)
        return self.position

    async def step(self) -> None:
        """Run one node, and record its outcome."""
        walk, vertex = self._walk, self._walk.graph.nodes[self.position.node or ""]
        began = time.perf_counter()
        now_ms = time.time_ns() // 1_000_000
        outcome, control = await self._run_node(vertex, now_ms)
        following = after(walk.graph, self.position, walk.inputs, outcome, control, now_ms=now_ms)
        ended = time.perf_counter()
        try:
            await self._keep(vertex, following, outcome, control, (ended - began) * 1000)
        except anyio.get_cancelled_exc_class():
            self.position = following  # the node has ended all the same
            raise
        self.position = following
        if walk.hooks.listens("after_step"):
            await walk.journal.commit()
            await walk.hooks.run("after_step", self._told(vertex))
        if ended - self._yielded > _YIELD_EVERY_S:
            await walk.journal.commit()
            await anyio.lowlevel.checkpoint()
            self._yielded = time.perf_counter()

    async def _run_node(
        self, vertex: VertexOfGraph, now_ms: int
    ) -> tuple[NodeOutcome, Control | None]:
        """Return the outcome of a node, and the hooks' control result where it failed."""
        walk = self._walk
        walk.vertices.facts = {}
        context = context_of(walk.graph, self.position.state, walk.inputs, now_ms)
        if walk.member is not None:
            context[walk.member] = self.position.state[MEMBER]
        try:
            outcome = await self._outcome(vertex, context)
            self._check_time(outcome)
            if outcome.failure is None:
                return outcome, None
            failure = evolve(outcome.failure, node=vertex.id)
            outcome = evolve(outcome, failure=failure)
            if not walk.hooks.listens("error"):
                return outcome, None
            told = await walk.hooks.run("error", {**self._told(vertex), **write_failure(failure)})
        except FatalProblem as problem:
            return _untrusted(vertex, str(problem.error)), "abort"
        except IntegrityError as error:  # a hook's
            return _untrusted(vertex, str(error)), "abort"
        return outcome, told.control

    def _check_time(self, outcome: NodeOutcome) -> None:
        """Raise where the run's deadline interrupted a node: then the run ends, not the node.

        The node's process is stopped at that time too, and its end may be noticed first.
        """
        failure = outcome.failure
        if failure is None or not failure.effect_unknown:
            return
        if is_cancelled(deadline=self._walk.call.deadline):
            raise CallCancelled("The run's time is up.")

    async def _outcome(self, vertex: VertexOfGraph, context: Mapping[str, object]) -> NodeOutcome:
        """Run a node by the node executor."""
        walk, call = self._walk, self._walk.call
        if vertex.kind.acts:
            call = call.part(place_id(call.call_id, vertex.id, self.position.visit))
        if isinstance(vertex, AgentVertex):
            return await walk.agents.run(vertex, walk.inputs, context, call)
        return await walk.executor(
            NodeExecContext(vertex=vertex, inputs=walk.inputs, ctx=context, call=call)
        )

    async def _keep(
        self,
        vertex: VertexOfGraph,
        following: Position,
        outcome: NodeOutcome,
        control: Control | None,
        elapsed_ms: float,
    ) -> None:
        """Write a node's end and the next checkpoint in one write."""
        told: dict[str, object] = {
            "step": following.step,
            "node": vertex.id,
            "type": vertex.type,
            "status": outcome.status,
            "elapsed_ms": round(elapsed_ms, 3),
            "next": following.node if following.ending is None else None,
            **self._walk.vertices.facts,
            **self._walk.journal.outcome_of(outcome),
        }
        if control is not None:
            told["control"] = control
        self._walk.journal.append("node_completed", told)
        self._walk.projection.completed(vertex.id, told)
        await self._walk.journal.checkpoint(following)

    def _told(self, vertex: VertexOfGraph) -> dict[str, object]:
        """Return the context of hooks."""
        return {
            "graph": self._walk.graph.ref.id,
            "run_id": self._walk.run_id,
            "node": vertex.id,
            "step": self.position.step,
            "state": self.position.state,
            "inputs": self._walk.inputs,
        }


def _untrusted(vertex: VertexOfGraph, said: str) -> NodeOutcome:
    failure = NodeFailure("integrity", said, node=vertex.id)
    return NodeOutcome("failed", failure=failure)
