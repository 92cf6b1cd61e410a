"""A run that was started before with the same idempotency key: read from its row and journal."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from attrs import frozen

from ryecore.chain.model import ValidChain
from ryecore.errors import BudgetNotRegistered, RyeError
from ryecore.graph.host import GraphHost
from ryecore.graph.journal.events import GraphEvent, event_of
from ryecore.graph.loading import LoadedGraph
from ryecore.graph.model import Graph
from ryecore.graph.result import GraphResult
from ryecore.graph.run_view import RunView, look_at_run, with_graph
from ryecore.graph.schedule import EndStatus, NodeError
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.record_stream import follow_records
from ryecore.state.waiting import run_in_thread

__all__ = ["EarlierRun"]

_NO_CHAIN: Final = ValidChain(())
_ENDED: Final[Mapping[object, EndStatus]] = {
    "completed": "completed",
    "completed_with_errors": "completed_with_errors",
    "error": "error",
    "cancelled": "cancelled",
    "killed": "cancelled",
}


@frozen
class EarlierRun:
    """A run that another start began, in this process or another one; it may have ended.

    Attributes:
        host: What all runs of the Rye have in common.
        run_id: Its id.
        item_id: The graph, as a canonical ref.
        loaded: The graph as its file is now, or why it can't be loaded.
    """

    host: GraphHost
    run_id: str
    item_id: str
    loaded: LoadedGraph | RyeError

    @property
    def graph(self) -> Graph:
        """The graph as its file is now.

        Raises:
            RyeError: It can't be loaded.
        """
        if isinstance(self.loaded, RyeError):
            raise self.loaded
        return self.loaded.graph

    @property
    def total(self) -> Amount:
        """The money and the tokens that it and all below it have used, with what is held."""
        try:
            account = self.host.ledger.account(self.run_id)
        except BudgetNotRegistered:  # it ended before it had an account
            return NOTHING
        return account.total + account.held

    async def events(self) -> AsyncGenerator[GraphEvent, None]:
        """The records of its journal, as they come, until it has ended."""
        store = self.host.store
        folder = store.folder_of(self.run_id)
        followed = follow_records(folder, lambda: store.look(self.run_id).ended)
        async with aclosing(followed) as records:
            async for record in records:
                yield event_of(record)

    def cancel(self) -> None:
        """Ask it, and all below, to stop."""
        running = self.host.running.get(self.run_id)
        if running is not None:
            running.cancellation.cancel()
        self.host.store.cancel(self.run_id)

    async def result(self) -> GraphResult:
        """Wait for its end, and return its result from the registry and its journal."""
        await self.host.store.wait(self.run_id)
        return await run_in_thread(self._read_result)

    def _read_result(self) -> GraphResult:
        view, found = look_at_run(self.host.store, self.run_id)
        if isinstance(self.loaded, LoadedGraph):
            view = with_graph(view, found, self.loaded.graph)
            if found is not None and not view.is_changed:
                return _made_result(
                    view, self._stored_result(), self.loaded.chain, self.loaded.graph
                )
        return _made_result(view, self._stored_result(), _NO_CHAIN, None)

    def _stored_result(self) -> Mapping[str, Any]:
        stored = self.host.registry.get_result(self.run_id)
        return stored if isinstance(stored, Mapping) else {}


def _made_result(
    view: RunView, stored: Mapping[str, Any], chain: ValidChain, graph: Graph | None
) -> GraphResult:
    """Make a run's result from its row, journal and stored result, which a death leaves short."""
    document, metadata = stored.get("data"), stored.get("metadata")
    if not isinstance(document, Mapping):
        error = stored.get("error") or f"The run ended as {view.record.status}."
        document = {"success": False, "status": view.record.status, "error": error}
        document["graph_run_id"] = view.run_id
    is_well = view.record.status == "completed"
    ended = _ENDED.get(document.get("status")) or _ENDED.get(view.record.status, "error")
    error = document.get("error")
    took = metadata.get("duration_ms") if isinstance(metadata, Mapping) else None
    errors = document.get("errors")
    return GraphResult(
        status="success" if is_well else "error",
        item_id=view.item_id,
        data=document,
        error=None if is_well else str(error or ended),
        chain=chain,
        duration_ms=float(took) if isinstance(took, int | float) else view.lasted_s * 1000,
        # Of one whose process died, its journal says whether something had begun.
        effect_unknown=document.get("effect_unknown", stored.get("died") and view.is_unknown)
        is True,
        run_id=view.run_id,
        ended=ended,
        output=document.get("output"),
        steps=view.steps,
        state=view.state or {},
        failed=None if is_well else _failed(document),
        errors=tuple(map(_error, errors)) if isinstance(errors, list) else (),
        suppressed=int(document.get("errors_suppressed", 0)),
        cost=view.record.cost,
        total=view.cost,
        graph=graph,
        seen=view.seen,
    )


def _failed(document: Mapping[str, Any]) -> NodeError:
    node, message = str(document.get("node") or ""), str(document.get("error") or "")
    code = str(document.get("error_code") or "internal")
    is_unknown = document.get("effect_unknown") is True
    message = message.removeprefix(f"{node}: ") if node else message
    return NodeError(node, message, code, is_unknown)


def _error(document: Mapping[str, Any]) -> NodeError:
    is_unknown = document.get("effect_unknown") is True
    return NodeError(document["node"], document["error"], document["code"], is_unknown)
