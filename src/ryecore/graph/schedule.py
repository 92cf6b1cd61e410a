"""The position of a run, and the next one. Pure: a function of graph, position and outcome.

Source: docs/design/graphs.md#the-walk; decision 42.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, Self

from attrs import evolve, field

from ryecore.agent.outcome import ERROR_CODES, ErrorCode, NodeFailure, NodeOutcome
from ryecore.convert.strict import RECORDS
from ryecore.errors import TextTooLong
from ryecore.frozen import frozen
from ryecore.graph.model import (
    ForeachVertex,
    Graph,
    ReturnVertex,
    VertexOfGraph,
)
from ryecore.policy.hooks import Control

__all__ = [
    "Ending",
    "Position",
    "after",
    "context_of",
    "first",
    "read_failure",
    "stopped",
    "write_failure",
]

_MAX_ERRORS: Final = 100
"""The most ignored errors that are stored; the others are counted."""

_MAX_HOOK_RETRIES: Final = 3

EndStatus = Literal["completed", "completed_with_errors", "error", "cancelled"]


@frozen
class Ending:
    """The ending of a run. The code of its error is `turn_limit` where the steps were used up."""

    status: EndStatus
    output: object = None
    error: NodeFailure | None = None


@frozen
class Position:
    """The position of a run: everything that decides what comes next.

    Attributes:
        node: The next node's id; after a failure or a stop, the one to resume with; None where the
            run has ended.
        step: The number of executed nodes.
        state: The state.
        hook_retries: How often hooks made a node run again, by node.
        errors: The first of the ignored errors.
        suppressed: The number of ignored errors.
        ending: Its ending; None while it runs.
        visit: The step at which the run reached the node; a retried node keeps it.
    """

    node: str | None
    step: int = 0
    state: Mapping[str, object] = field(factory=dict)
    hook_retries: Mapping[str, int] = field(factory=dict)
    errors: tuple[NodeFailure, ...] = ()
    suppressed: int = 0
    ending: Ending | None = None
    visit: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the position without its state, JSON-ready. `RECORDS` reads it.

        Source: docs/design/formats.md#by-hand-and-why.
        """
        document: dict[str, object] = {"node": self.node, "step": self.step}
        if self.visit != self.step:
            document["visit"] = self.visit
        if self.hook_retries:
            document["hook_retries"] = dict(self.hook_retries)
        if self.suppressed:
            document["errors"] = [RECORDS.write(one) for one in self.errors]
            document["suppressed"] = self.suppressed
        if self.ending is not None:
            document["ending"] = RECORDS.write(self.ending)
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, object], state: Mapping[str, object]) -> Self:
        """Return the position that `to_dict` wrote, with its state; else raise ConversionError."""
        visit = document.get("visit", document.get("step"))
        return RECORDS.read({**document, "visit": visit, "state": state}, cls)


def write_failure(failure: NodeFailure) -> dict[str, object]:
    """Return a failure as users see it in `_last_error` and results: {node, error, code}.

    It has `effect_unknown` only where that is so.
    """
    document: dict[str, object] = {
        "node": failure.node,
        "error": failure.message,
        "code": failure.code,
    }
    if failure.effect_unknown:
        document["effect_unknown"] = True
    return document


def read_failure(document: Mapping[str, Any]) -> NodeFailure:
    """Return the failure that `write_failure` wrote, or that a journal's record holds."""
    codes: dict[object, ErrorCode] = {code: code for code in ERROR_CODES}
    return NodeFailure(
        codes.get(document.get("code"), "internal"),
        str(document["error"]),
        document.get("retryable") is True,
        document.get("effect_unknown") is True,
        str(document.get("node") or ""),
    )


def first(graph: Graph) -> Position:
    """Return the first position of a run."""
    return Position(graph.start, state=dict(graph.state))


def after(
    graph: Graph,
    position: Position,
    inputs: Mapping[str, object],
    outcome: NodeOutcome,
    control: Control | None = None,
    *,
    now_ms: int = 0,
) -> Position:
    """Return the position of a run after the outcome of its node's last attempt, at a Unix time.

    It has ended where no edge holds, where a node returned or failed for good, and where the steps
    are used up. `control` is the first control result of the hooks of its error that counts.
    """
    node = graph.nodes[position.node or ""]
    value = outcome.output
    if outcome.failure is not None:
        moved = _after_error(graph, node, position, inputs, outcome.failure, control, now_ms)
    elif isinstance(node, ReturnVertex):
        moved = _ended(position, value)
    else:
        if isinstance(node, ForeachVertex) and isinstance(value, Mapping):
            position = _passed_over(position, _failures(node, value), value["failed"])
        state = _assigned(graph, node, position, inputs, value, now_ms)
        moved = _along(graph, node, position, state, inputs, value, now_ms)
    if moved.ending is None and moved.step >= graph.max_steps:
        said = f"max_steps ({graph.max_steps}) is used up before '{moved.node}'."
        error = NodeFailure("turn_limit", said, node=moved.node or "")
        return evolve(moved, ending=Ending("error", error=error))
    return moved


def stopped(position: Position, why: str, *, in_flight: bool = False) -> Position:
    """Return the position of a run that was cancelled after `position`.

    A node that was `in_flight` may have had its effect.
    """
    error = NodeFailure("cancelled", why, effect_unknown=in_flight, node=position.node or "")
    return evolve(position, ending=Ending("cancelled", error=error))


def context_of(
    graph: Graph, state: Mapping[str, object], inputs: Mapping[str, object], now_ms: int
) -> dict[str, object]:
    """Return the context of expressions in parameters."""
    return {"inputs": inputs, "state": _WithTime(state, now_ms) if graph.uses_time else state}


class _WithTime(dict[str, object]):
    """A state with the time in it, which is formatted only when it is read."""

    def __init__(self, state: Mapping[str, object], now_ms: int) -> None:
        super().__init__(state)
        self._now_ms = now_ms

    def __missing__(self, key: str) -> object:
        if key == "_timestamp":
            return self._now_ms
        if key == "_now":
            at = datetime.fromtimestamp(self._now_ms / 1000, UTC)
            return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in ("_now", "_timestamp") or super().__contains__(key)

    def get(self, key: str, default: object = None) -> object:
        try:
            return self[key]
        except KeyError:
            return default


def _assigned(
    graph: Graph,
    node: VertexOfGraph,
    position: Position,
    inputs: Mapping[str, object],
    value: object,
    now_ms: int,
) -> Mapping[str, object]:
    """Return the state after a node's assignments, all of which read the state before."""
    changed: dict[str, object] = {}
    if isinstance(node, ForeachVertex) and node.collect is not None and isinstance(value, Mapping):
        changed[node.collect] = value["items"]
    if node.assign:
        context = {**context_of(graph, position.state, inputs, now_ms), "result": value}
        for key, template in node.assign.items():
            changed[key] = template.value(context)
    return {**position.state, **changed} if changed else position.state


def _along(
    graph: Graph,
    node: VertexOfGraph,
    position: Position,
    state: Mapping[str, object],
    inputs: Mapping[str, object],
    value: object,
    now_ms: int,
) -> Position:
    """Return the position behind the first edge that holds; the end where none does."""
    context: dict[str, object] = {}
    for edge in node.next:
        if edge.when is not None:
            context = context or {**context_of(graph, state, inputs, now_ms), "result": value}
            try:
                if not edge.when.holds(context):
                    continue
            except TextTooLong as problem:
                error = NodeFailure("validation", str(problem), node=node.id)
                return evolve(position, state=state, ending=Ending("error", error=error))
        return _moved(position, edge.to, state)
    return _ended(evolve(position, state=state), None)


def _after_error(
    graph: Graph,
    node: VertexOfGraph,
    position: Position,
    inputs: Mapping[str, object],
    error: NodeFailure,
    control: Control | None,
    now_ms: int,
) -> Position:
    """Return the position after a failed node: by its hooks, its own edge, then the policy."""
    here = evolve(_moved(position, node.id, position.state), visit=position.visit)
    if error.code == "cancelled":
        return evolve(here, ending=Ending("cancelled", error=error))
    if control == "retry":
        count = position.hook_retries.get(node.id, 0) + 1
        if count <= _MAX_HOOK_RETRIES:
            return evolve(here, hook_retries={**position.hook_retries, node.id: count})
    if control in ("fail", "abort", "handoff"):
        return evolve(here, ending=Ending("error", error=error))
    state = {**position.state, "_last_error": write_failure(error)}
    if control not in ("continue", "skip"):
        if node.on_error is not None:
            return _moved(position, node.on_error, state)
        if graph.on_error == "fail":
            return evolve(here, ending=Ending("error", error=error))
    passed = _passed_over(position, (error,), 1)
    return _along(graph, node, passed, state, inputs, None, now_ms)


def _moved(position: Position, node_id: str, state: Mapping[str, object]) -> Position:
    """Return the position one step further; without `evolve`, which is too slow here."""
    return Position(
        node_id,
        position.step + 1,
        state,
        position.hook_retries,
        position.errors,
        position.suppressed,
        None,
        position.step + 1,
    )


def _passed_over(position: Position, errors: tuple[NodeFailure, ...], count: int) -> Position:
    if not count:
        return position
    kept = (*position.errors, *errors)[:_MAX_ERRORS]
    return evolve(position, errors=kept, suppressed=position.suppressed + count)


def _failures(node: ForeachVertex, value: Mapping[str, Any]) -> tuple[NodeFailure, ...]:
    """Return the failures of a foreach's members, from its value."""
    return tuple(
        read_failure({**one, "node": f"{node.id}[{one['index']}]"}) for one in value["errors"]
    )


def _ended(position: Position, output: object) -> Position:
    status: EndStatus = "completed_with_errors" if position.suppressed else "completed"
    return evolve(position, node=None, step=position.step + 1, ending=Ending(status, output))
