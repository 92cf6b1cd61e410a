"""Nodes as far as they could be read, and the edges between them."""

from collections.abc import Iterable, Mapping

from attrs import Factory

from ryecore.convert.lines import Place, quoted
from ryecore.frozen import frozen
from ryecore.graph.model import AgentForeach, AgentVertex, Edge, VertexOfGraph
from ryecore.graph.validation.problems import Problems
from ryecore.items.refs import ItemRef
from ryecore.policy.expressions import Template

__all__ = ["Draft", "DraftEdge", "Slot", "check_flow"]


@frozen
class DraftEdge:
    """An edge, and where the file names its target."""

    edge: Edge
    place: Place


@frozen
class Slot:
    """A value with expressions: for `params`, `over`, `assign` or `output`, as `what` says."""

    template: Template
    place: Place
    what: str


@frozen(kw_only=True)
class Draft:
    """A node as far as it could be read; its `vertex` is None where problems leave that open.

    `collect` is the key of the state that a foreach sets, `as_` its name for each member, `slots`
    the values with expressions, and `item` what the action executes.
    """

    id: str
    type: str
    place: Place
    edges: tuple[DraftEdge, ...] = ()
    on_error: str | None = None
    assign: Mapping[str, Template] = Factory(dict)
    collect: str | None = None
    as_: str | None = None
    slots: tuple[Slot, ...] = ()
    item: ItemRef | None = None
    agent_ref: str | None = None
    vertex: VertexOfGraph | None = None

    @property
    def agent(self) -> AgentVertex | None:
        """The agent that it runs, by itself or for each member."""
        one = self.vertex.agent if isinstance(self.vertex, AgentForeach) else self.vertex
        return one if isinstance(one, AgentVertex) else None

    def at(self, *rest: str | int) -> Place:
        """Return a place in the node."""
        return (*self.place, *rest)


def check_flow(
    drafts: Mapping[str, Draft], start: str | None, start_place: Place, problems: Problems
) -> None:
    """Report edges without a target, edges that are never taken, and nodes that nothing reaches.

    `start_place` is where the file names the first node, if it does.
    """
    if start is not None:
        _check_target(start, start_place, drafts, problems)
    for draft in drafts.values():
        for one in draft.edges:
            _check_target(one.edge.to, one.place, drafts, problems)
        if draft.on_error is not None:
            _check_target(draft.on_error, draft.at("on_error"), drafts, problems)
        for one in _never_taken(draft):
            problems.error(
                one.place,
                f"The edge to {quoted(one.edge.to)} is never taken: "
                "one before it has no condition.",
            )
    if start is None or start not in drafts:
        return
    ways = {name: _ways(draft, drafts) for name, draft in drafts.items()}
    reached = _reached(start, ways)
    named = {one.edge.to for draft in drafts.values() for one in _never_taken(draft)}
    for name, draft in drafts.items():
        if name not in reached and name not in named:
            problems.error(draft.place, f"No edge leads from the start to {quoted(name)}.")
    _check_ends(drafts, ways, reached, problems)


def _check_target(to: str, place: Place, drafts: Mapping[str, Draft], problems: Problems) -> None:
    if to not in drafts:
        problems.error(place, f"There is no node {quoted(to)}.{problems.guess(to, drafts)}")


def _open_edges(draft: Draft) -> tuple[DraftEdge, ...]:
    """Return the edges that may be taken: all up to the first without a condition."""
    for at, one in enumerate(draft.edges):
        if one.edge.when is None:
            return draft.edges[: at + 1]
    return draft.edges


def _never_taken(draft: Draft) -> tuple[DraftEdge, ...]:
    return draft.edges[len(_open_edges(draft)) :]


def _ways(draft: Draft, drafts: Mapping[str, Draft]) -> list[str]:
    targets = [one.edge.to for one in _open_edges(draft)]
    if draft.on_error is not None:
        targets.append(draft.on_error)
    return [to for to in targets if to in drafts]


def _reached(start: str, ways: Mapping[str, Iterable[str]]) -> set[str]:
    reached, to_visit = {start}, [start]
    while to_visit:
        for to in ways.get(to_visit.pop(), ()):
            if to not in reached:
                reached.add(to)
                to_visit.append(to)
    return reached


def _check_ends(
    drafts: Mapping[str, Draft],
    ways: Mapping[str, Iterable[str]],
    reached: set[str],
    problems: Problems,
) -> None:
    """Warn of reachable nodes from which no end can be reached.

    A run ends at a return node, and after a node whose edges may all fail to hold.
    """
    back: dict[str, list[str]] = {}
    for name, targets in ways.items():
        for to in targets:
            back.setdefault(to, []).append(name)
    leads_out: set[str] = set()
    for name, draft in drafts.items():
        edges = _open_edges(draft)
        is_end = draft.type == "return" or not edges or edges[-1].edge.when is not None
        if is_end and name not in leads_out:
            leads_out |= _reached(name, back)
    for name, draft in drafts.items():
        if name in reached and name not in leads_out:
            problems.warn(
                draft.place,
                f"No path leads from {quoted(name)} to an end: "
                "a run repeats its nodes until max_steps.",
            )
            return
