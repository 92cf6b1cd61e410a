"""`SyncGraphs`: the graphs of a project, with calls that block."""

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ryecore.items.refs import ItemRef
from ryecore.sync_loop import check_process

if TYPE_CHECKING:
    from ryecore.actions.graphs import Graphs
    from ryecore.graph.journal.events import GraphEvent
    from ryecore.graph.model import Graph
    from ryecore.graph.reading import GraphReport
    from ryecore.graph.result import GraphResult
    from ryecore.graph.run import GraphRun
    from ryecore.graph.view.run_view import RunView
    from ryecore.policy.budget import Amount
    from ryecore.state.model import ThreadRecords

__all__ = ["SyncGraphRun", "SyncGraphs"]

T = TypeVar("T")


class SyncGraphRun:
    """A graph's run that was started: what `rye.graphs.start` gives, with calls that block.

    Args:
        run: The run.
        call: Makes a call on the event loop's thread, and waits for it.
    """

    def __init__(
        self, run: "GraphRun", call: Callable[[str, Callable[[], Awaitable[Any]]], Any]
    ) -> None:
        self._run = run
        self._call_on_loop = call
        self._process = os.getpid()

    @property
    def run_id(self) -> str:
        """What `rye.graphs` and `rye.threads` know it by."""
        return self._run.run_id

    @property
    def item_id(self) -> str:
        """The graph, as a canonical ref."""
        return self._run.item_id

    @property
    def graph(self) -> "Graph":
        """Its graph, as it runs."""
        return self._run.graph

    @property
    def status(self) -> str:
        """Where it stands; see `GraphRun.status`."""
        return self._run.status

    @property
    def cost(self) -> "Amount":
        """The money and the tokens that it and all below it have used."""
        return self._run.cost

    def result(self) -> "GraphResult":
        """Wait until it has ended; see `GraphRun.result`."""
        result: GraphResult = self._call(self._run.result)
        return result

    def events(self) -> "Iterator[GraphEvent]":
        """What happens in it, until it has ended; see `GraphRun.events`."""
        events = self._run.events()
        try:
            while True:
                event = self._call(partial(anext, events, None))
                if event is None:
                    return
                yield event
        finally:
            self._call(events.aclose)

    def cancel(self) -> None:
        """Ask it, and all below it, to stop."""
        self._check_process()
        self._run.cancel()

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        self._check_process()
        result: T = self._call_on_loop(self.run_id, function)
        return result

    def _check_process(self) -> None:
        check_process(
            self._process,
            f"The handle of the run {self.run_id}",
            f"See how it stands: rye.graphs.show({self.run_id!r}).",
        )

    def __repr__(self) -> str:
        return f"SyncGraphRun({self.run_id!r})"

    def _repr_html_(self) -> str:
        return self._run._repr_html_()


class SyncGraphs:
    """The graphs of a project, with calls that block: `rye.graphs` of a `SyncRye`.

    Args:
        graphs: Gives the graphs.
        call: Makes a call on the event loop's thread, and waits for it.
    """

    def __init__(
        self,
        graphs: "Callable[[], Graphs]",
        call: Callable[[str, Callable[[], Awaitable[Any]]], Any],
    ) -> None:
        self._of_process = graphs
        self._call = call

    @property
    def _graphs(self) -> "Graphs":
        return self._of_process()

    def load(self, ref: str | ItemRef) -> "Graph":
        """Load a graph, verified and checked; see `Graphs.load`."""
        graph: Graph = self._call(str(ref), partial(self._graphs.load, ref))
        return graph

    def validate(self, ref: str | ItemRef) -> "GraphReport":
        """Check a graph and all that it calls; see `Graphs.validate`."""
        report: GraphReport = self._call(str(ref), partial(self._graphs.validate, ref))
        return report

    def run(
        self, ref: str | ItemRef, inputs: Mapping[str, Any] | None = None, **options: Any
    ) -> "GraphResult":
        """Run a graph to its end; see `Graphs.run` for the options."""
        return self._result(str(ref), partial(self._graphs.run, ref, inputs, **options))

    def start(
        self, ref: str | ItemRef, inputs: Mapping[str, Any] | None = None, **options: Any
    ) -> SyncGraphRun:
        """Start a graph, and return as soon as it runs; see `Graphs.start` for the options."""
        call = partial(self._graphs.start, ref, inputs, **options)
        return SyncGraphRun(self._call(str(ref), call), self._call)

    def step(self, ref: str | ItemRef, node: str, **options: Any) -> "GraphResult":
        """Run a single node with a state that is given; see `Graphs.step` for the options."""
        return self._result(str(ref), partial(self._graphs.step, ref, node, **options))

    def resume(self, run_id: str, **options: Any) -> "GraphResult":
        """Go on with a run that has ended, in a new one; see `Graphs.resume` for the options."""
        return self._result(run_id, partial(self._graphs.resume, run_id, **options))

    def show(self, run_id: str) -> "RunView":
        """Show a run: what happened at each node, and where it stands; see `Graphs.show`."""
        view: RunView = self._call(run_id, partial(self._graphs.show, run_id))
        return view

    def list(self, *, running: bool = False, limit: int = 50, offset: int = 0) -> "ThreadRecords":
        """List the runs of graphs, newest first; see `Graphs.list`."""
        call = partial(self._graphs.list, running=running, limit=limit, offset=offset)
        found: ThreadRecords = self._call("graphs", call)
        return found

    def forget_results(self) -> int:
        """Forget the results that nodes remember; see `Graphs.forget_results`."""
        count: int = self._call("graphs", self._graphs.forget_results)
        return count

    def _result(self, ref: str, call: Callable[[], "Awaitable[GraphResult]"]) -> "GraphResult":
        result: GraphResult = self._call(ref, call)
        return result
