"""Look at a run: from its row and its journal, wherever it runs or ran."""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve

from ryecore.errors import BudgetNotRegistered, StateError
from ryecore.graph.journal.events import event_of
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import Fold, Found, is_unknown
from ryecore.graph.model import Graph, VertexOfGraph
from ryecore.graph.view.run_view import RunView, StepSeen
from ryecore.graph.view.seen import RunSight
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.model import ThreadRecord, ThreadRecords
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.transcript_check import read_records

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["is_run", "list_runs", "look_at_run", "with_graph"]

_MAX_CHECKPOINTS: Final = 1000


def is_run(record: ThreadRecord) -> bool:
    """Whether a thread is the run of a graph: a tool's that is named after it."""
    kind, _, tool_id = record.item_id.partition(":")
    return kind == "tool" and record.thread_id.startswith(f"{tool_id}/")


def list_runs(
    store: "ThreadStore", *, running: bool = False, limit: int = 50, offset: int = 0
) -> ThreadRecords:
    """The runs of graphs, newest first; those nobody runs any more are ended first.

    Args:
        store: The project's threads.
        running: Whether those that have not ended count alone.
        limit: How many at most.
        offset: How many to pass over.
    """
    if running:
        active = store.look_at_all(lambda found: found.list_active())
        runs = [one for one in reversed(active) if is_run(one)]
        return ThreadRecords(runs[offset : offset + limit], len(runs))
    rows = store.look_at_all(lambda found: found.list_runs(limit=limit, offset=offset))
    return ThreadRecords(rows, store.registry.count_threads(only_runs=True))


def look_at_run(
    store: "ThreadStore", run_id: str, *, settles: bool = True
) -> tuple[RunView, Found | None]:
    """Read how a run stands. Whether its journal is true, `rye threads verify` says.

    Args:
        store: The project's threads.
        run_id: The run.
        settles: Whether one that nobody runs any more is ended first; else nothing is written.

    Returns:
        The run, without its graph; and what it can be gone on from, where that can be read.

    Raises:
        ThreadNotFound: There is none of this id.
    """
    record = store.look(run_id) if settles else store.registry.get_thread(run_id)
    sight, fold = RunSight(), Fold()
    steps: deque[StepSeen] = deque(maxlen=_MAX_CHECKPOINTS)
    path = store.folder_of(run_id) / TRANSCRIPT
    problem, found = "", None
    try:
        for line in read_records(path):
            fold.take(line)
            sight.take(event_of(line))
            if line.type == "state_checkpoint":
                steps.append(_step(line.payload))
        if fold.started is not None:
            states = PositionStore(store.folder.parent / "objects", run_id, durable=False)
            found = fold.found(run_id, states, path)
    except StateError as error:
        problem = error.message
    started = fold.started or {}
    inputs = started.get("inputs")
    position = None if found is None else found.position
    view = RunView(
        record=record,
        seen=sight.seen(record.status if record.ended else ""),
        folder=str(store.folder_of(run_id)),
        inputs=inputs if isinstance(inputs, Mapping) else {},
        state=None if position is None else position.state,
        checkpoints=tuple(dict.fromkeys(steps)),
        only=str(started.get("only") or ""),
        followed_by=_follower(store, run_id),
        cost=_cost(store, run_id),
        problem=problem,
    )
    return view, found


def with_graph(view: RunView, found: Found | None, graph: Graph) -> RunView:
    """The same with the run's graph, as it is now."""
    if found is None:
        return evolve(view, graph=graph)
    node = graph.nodes.get(view.node or "")
    return evolve(
        view,
        graph=graph,
        is_changed=found.started.get("item_hash") != graph.digest,
        is_unknown=_asks(view, found, node),
    )


def _asks(view: RunView, found: Found, node: VertexOfGraph | None) -> bool:
    """Whether to resume it somebody has to say what came of what had begun."""
    if not view.ended or node is None or found.completed is not None:
        return False
    return is_unknown(node, found)


def _step(payload: Mapping[str, Any]) -> StepSeen:
    step, node = payload.get("step"), payload.get("node")
    return StepSeen(step if type(step) is int else 0, node if isinstance(node, str) else None)


def _follower(store: "ThreadStore", run_id: str) -> str | None:
    """The last run that goes on with one: it may be taken up several times."""
    for one in reversed(store.registry.list_following(run_id)):
        if not one.ended or _has_begun(store, one.thread_id):
            return one.thread_id
    return None


def _has_begun(store: "ThreadStore", run_id: str) -> bool:
    """Whether a run came to its first checkpoint, behind which it does something."""
    fold = Fold()
    try:
        for record in read_records(store.folder_of(run_id) / TRANSCRIPT):
            fold.take(record)
            if fold.attested is not None:
                return True
    except StateError:  # it isn't there, or is no journal: going on with the run will tell
        pass
    return False


def _cost(store: "ThreadStore", run_id: str) -> Amount:
    try:
        return store.ledger.tree(run_id).spent
    except BudgetNotRegistered:  # it ended before it had an account
        return NOTHING
