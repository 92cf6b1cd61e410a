"""What is done once a run is over."""

from contextlib import suppress

from ryecore.errors import RyeError, StateError, ThreadConflict
from ryecore.graph.host import GraphHost
from ryecore.graph.journal.journal import Journal
from ryecore.graph.loading import LoadedGraph
from ryecore.graph.projection import RunSight
from ryecore.graph.result import GraphResult, document_of, status_of
from ryecore.graph.schedule import Ending, Position
from ryecore.policy.budget import Amount
from ryecore.runs.unwritten import OVERSPENT, Unwritten
from ryecore.state.model import Cost, Status

__all__ = ["made_result", "settle_failed"]


def made_result(
    loaded: LoadedGraph,
    run_id: str,
    position: Position,
    cost: Cost,
    total: Amount,
    duration_s: float,
    sight: RunSight,
) -> GraphResult:
    """What came of a run, for whoever waits for it."""
    ending = position.ending or Ending("cancelled")
    document = document_of(run_id, position, total)
    is_well = document["success"]
    return GraphResult(
        status="success" if is_well else "error",
        item_id=str(loaded.graph.ref),
        data=document,
        error=None if is_well else str(document.get("error") or ending.status),
        chain=loaded.chain,
        duration_ms=duration_s * 1000,
        effect_unknown=document.get("effect_unknown") is True,
        run_id=run_id,
        ended=ending.status,
        output=ending.output,
        steps=position.step,
        state=position.state,
        failed=ending.error,
        errors=position.errors,
        suppressed=position.suppressed,
        cost=cost,
        total=total,
        graph=loaded.graph,
        seen=sight.seen(status_of(ending)),
    )


def settle_failed(
    host: GraphHost,
    run_id: str,
    item_id: str,
    fence: int,
    error: BaseException,
    journal: Journal | None,
    unwritten: Unwritten | None,
) -> None:
    """End a run's journal, row and account. The supervisor retries what can't be written now."""
    said = str(error) or type(error).__name__
    if isinstance(error, RyeError):
        error.facts = {**error.facts, "thread_id": run_id}
    status: Status = "error" if isinstance(error, Exception) else "cancelled"
    document = {"success": False, "status": status, "error": said, "graph_run_id": run_id}
    result = {"status": "error", "item_id": item_id, "error": said, "data": document}
    is_closed = journal is None
    if journal is not None:
        with suppress(StateError):  # where that is what failed, what was committed stands
            for one in () if unwritten is None else unwritten.overspent:
                journal.append(OVERSPENT, one)
            journal.break_off(f"run_{status}", {"error": said})
            is_closed = True
    snapshot = None if unwritten is None else unwritten.cost
    try:
        if unwritten is not None:
            unwritten.write(host.ledger)
        host.store.settle(run_id, status, result, fence, snapshot=snapshot)
        if is_closed:
            host.store.end_file(run_id)
    except ThreadConflict:
        pass  # it has ended otherwise
    except StateError:
        host.supervisor.defer(run_id, fence, status, result, unwritten, is_closed=is_closed)
