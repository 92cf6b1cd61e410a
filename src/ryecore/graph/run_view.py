"""The view of one run of a graph, read from its row and its journal, wherever it runs or ran."""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field

from ryecore.agent.outcome import NodeFailure
from ryecore.display.text import Rendered, StyledText
from ryecore.errors import BudgetNotRegistered, StateError
from ryecore.frozen import frozen
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import Fold, RecoveredRun
from ryecore.graph.model import AgentVertex, Graph
from ryecore.graph.projection import NodeStatus, RunProjection, RunStatus
from ryecore.graph.rendering import render_run
from ryecore.graph.resume import outcome_options, unknown_members
from ryecore.graph.schedule import write_failure
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.events import RunEvent
from ryecore.state.model import ThreadRecord, ThreadRecords

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["RunCheckpoint", "RunView", "is_run", "list_runs", "load_run_view", "with_graph"]

_WIDTH: Final = 80


@frozen
class RunCheckpoint:
    """A checkpoint of a run, which it can be resumed from.

    Attributes:
        step: The number of nodes executed before it, as passed to `--at`.
        node: The next node; None where the run has ended.
    """

    step: int
    node: str | None


@frozen(kw_only=True, repr=False)
class RunView(Rendered):
    """One run of a graph: the status of each node, and how it can be resumed.

    Attributes:
        record: Its row in the registry.
        run_status: The status, node by node.
        folder: Its folder below `.ai/state/threads`; None where this machine has none.
        inputs: Its inputs.
        state: The state at the last checkpoint; None where it can't be read.
        checkpoints: The last checkpoints, at most 1,000, oldest first.
        is_unknown: Whether a call had begun when its process died, and its outcome is unknown: to
            resume the run, its outcome must be passed.
        unknown_members: The indexes of the foreach's members whose outcome is unknown.
        only: The single node that it ran; empty where it ran the graph.
        followed_by: The run that resumes it; None for none.
        errors: The first hundred of the ignored errors.
        cost: The money and the tokens that it and all below it have used.
        graph: Its graph as it is now; None where that can't be loaded.
        is_changed: Whether the graph has changed since the run began.
        problem: Why a part of it could not be read; empty where all could.
    """

    record: ThreadRecord
    run_status: RunStatus
    folder: str | None
    inputs: Mapping[str, object] = field(factory=dict)
    state: Mapping[str, object] | None = None
    checkpoints: tuple[RunCheckpoint, ...] = ()
    is_unknown: bool = False
    unknown_members: tuple[int, ...] = ()
    only: str = ""
    followed_by: str | None = None
    errors: tuple[NodeFailure, ...] = ()
    cost: Amount = NOTHING
    graph: Graph | None = None
    is_changed: bool = False
    problem: str = ""

    @property
    def lasted_s(self) -> float:
        """How long it took, or has taken so far, in seconds."""
        until = _seconds(self.record.completed_at) if self.record.completed_at else time.time()
        return until - _seconds(self.record.created_at)

    @property
    def run_id(self) -> str:
        """Its id, for `rye.graphs`, `rye.threads` and the command line."""
        return self.record.thread_id

    @property
    def item_id(self) -> str:
        """The graph, as a canonical ref."""
        return self.record.item_id

    @property
    def status(self) -> str:
        """Its status: running, completed, completed_with_errors, error, cancelled or killed."""
        is_partly = self.run_status.status == "completed_with_errors"
        return self.run_status.status if is_partly else self.record.status

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.record.ended

    @property
    def nodes(self) -> Mapping[str, NodeStatus]:
        """The status of each node that was reached, by its id."""
        return self.run_status.nodes

    @property
    def node(self) -> str | None:
        """The current node; None where the run has ended."""
        return self.run_status.node

    @property
    def steps(self) -> int:
        """The number of executed nodes."""
        return self.run_status.steps

    @property
    def error(self) -> str | None:
        """The reason for its failure; None where it didn't fail."""
        return self.run_status.error or None

    @property
    def next_step(self) -> str:
        """The command that resumes it; empty where it can't be resumed.

        A node that refused its parameters would refuse them again: then the command names the
        options that change them.
        """
        if self.followed_by is not None:
            return f"rye graph show {self.followed_by}"
        if not self.ended:
            return f"rye threads wait {self.run_id}"
        if self.record.status == "completed" or self.only or not self.run_status.started_at:
            return ""
        if self._refused_parameters and not self.is_changed:
            if any(one.status == "completed" for one in self.nodes.values()):
                return f"rye graph resume {self.run_id} --set KEY=VALUE"
            return f"rye graph run {self.item_id} KEY=VALUE"
        unknown = f" {outcome_options(self.unknown_members)}" if self.is_unknown else ""
        changed = " --changed" if self.is_changed else ""
        return f"rye graph resume {self.run_id}{changed}{unknown}"

    @property
    def _refused_parameters(self) -> bool:
        """Return whether a node's parameters didn't fit, which a retry doesn't change."""
        node = self.graph.nodes.get(self.node or "") if self.graph is not None else None
        return self.run_status.code == "validation" and not isinstance(node, AgentVertex)

    def to_dict(self) -> dict[str, object]:
        """Return the run as a JSON-ready object."""
        record = self.record
        return {
            "run_id": self.run_id,
            "item_id": self.item_id,
            "status": self.status,
            "node": self.node,
            "steps": self.steps,
            "error": self.error,
            "errors": [write_failure(one) for one in self.errors],
            "created_at": record.created_at,
            "completed_at": record.completed_at,
            "parent_id": record.parent_id,
            "continuation_of": record.continuation_of,
            "followed_by": self.followed_by,
            "inputs": dict(self.inputs),
            "nodes": {name: one.to_dict() for name, one in self.nodes.items()},
            "state": None if self.state is None else dict(self.state),
            "checkpoints": [{"step": one.step, "node": one.node} for one in self.checkpoints],
            "cost": self.cost.to_dict(),
            "is_unknown": self.is_unknown,
            "unknown_members": list(self.unknown_members),
            "is_changed": self.is_changed,
            "folder": self.folder,
            "problem": self.problem or None,
            "next_step": self.next_step or None,
        }

    def render(self, *, width: int = _WIDTH) -> StyledText:
        """Render the run for a terminal or a notebook, with the status of each node.

        Args:
            width: The width in columns.
        """
        return render_run(self, width=width)

    def __repr__(self) -> str:
        return f"RunView({self.run_id!r}, {self.status})"

    def _repr_html_(self) -> str:
        html = self.render().html()
        if self.graph is None:
            return html
        from ryecore.display import to_html  # noqa: PLC0415 - only for notebooks
        from ryecore.graph.picture import graph_picture  # noqa: PLC0415

        return to_html(graph_picture(self.graph, self.run_status)) + html


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


# Views read from the store


_MAX_CHECKPOINTS: Final = 1000


def is_run(record: ThreadRecord) -> bool:
    """Return whether a thread is the run of a graph, by its id."""
    kind, _, tool_id = record.item_id.partition(":")
    return kind == "tool" and record.thread_id.startswith(f"{tool_id}/")


async def list_runs(
    store: "ThreadStore", *, running: bool = False, limit: int = 50, offset: int = 0
) -> ThreadRecords:
    """List the runs of graphs, newest first. Runs whose process died are ended before."""
    if running:
        active = await store.look_at_all(lambda found: found.list_active())
        runs = [one for one in reversed(active) if is_run(one)]
        return ThreadRecords(runs[offset : offset + limit], len(runs))
    rows = await store.look_at_all(lambda found: found.list_runs(limit=limit, offset=offset))
    return ThreadRecords(rows, await store.registry.count_threads(only_runs=True))


async def load_run_view(store: "ThreadStore", run_id: str) -> tuple[RunView, RecoveredRun | None]:
    """Return the view of a run, without its graph, and its recovered state where it can be read.

    The journal isn't proved; `rye threads verify` does that. A run whose process died is ended
    first.
    """
    record = await store.look(run_id)
    projection, fold = RunProjection(), Fold()
    steps: deque[RunCheckpoint] = deque(maxlen=_MAX_CHECKPOINTS)
    problem, found = "", None
    try:
        async with aclosing(store.records.read(run_id)) as records:
            async for line in records:
                fold.take(line)
                projection.take(RunEvent.of(line))
                if line.type == "state_checkpoint":
                    steps.append(_step(line.payload))
        if fold.started is not None:
            states = PositionStore(store.objects(run_id), run_id)
            found = await fold.found(run_id, states, store.records)
    except StateError as error:
        problem = error.message
    started = fold.started or {}
    inputs = started.get("inputs")
    position = None if found is None else found.position
    folder = store.found_folder(run_id)
    view = RunView(
        record=record,
        run_status=projection.snapshot(record.status if record.ended else ""),
        folder=None if folder is None else str(folder),
        inputs=inputs if isinstance(inputs, Mapping) else {},
        state=None if position is None else position.state,
        checkpoints=tuple(dict.fromkeys(steps)),
        only=str(started.get("only") or ""),
        followed_by=await _follower(store, run_id),
        errors=() if position is None else position.errors,
        cost=await _cost(store, run_id),
        problem=problem,
    )
    return view, found


def with_graph(view: RunView, found: RecoveredRun | None, graph: Graph) -> RunView:
    """Return the view with the run's graph, as it is now."""
    if found is None:
        return evolve(view, graph=graph)
    unknown = None
    if view.ended and found.position is not None:
        unknown = unknown_members(graph, found, view.run_id, view.inputs)
    return evolve(
        view,
        graph=graph,
        is_changed=found.started.get("item_hash") != graph.digest,
        is_unknown=unknown is not None,
        unknown_members=unknown or (),
    )


def _step(payload: Mapping[str, Any]) -> RunCheckpoint:
    step, node = payload.get("step"), payload.get("node")
    return RunCheckpoint(step if type(step) is int else 0, node if isinstance(node, str) else None)


async def _follower(store: "ThreadStore", run_id: str) -> str | None:
    """Return the last run that resumed another one, which may have been resumed several times."""
    for one in reversed(await store.registry.list_following(run_id)):
        if not one.ended or await _has_begun(store, one.thread_id):
            return one.thread_id
    return None


async def _has_begun(store: "ThreadStore", run_id: str) -> bool:
    """Return whether a run reached its first checkpoint, before which it does nothing."""
    fold = Fold()
    try:
        async with aclosing(store.records.read(run_id)) as records:
            async for record in records:
                fold.take(record)
                if fold.attested is not None:
                    return True
    except StateError:  # missing or not a journal: resuming the run will report it
        pass
    return False


async def _cost(store: "ThreadStore", run_id: str) -> Amount:
    try:
        return (await store.ledger.tree(run_id)).spent
    except BudgetNotRegistered:  # it ended before it had an account
        return NOTHING
