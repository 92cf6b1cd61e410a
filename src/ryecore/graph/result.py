"""The result of a graph's run."""

from collections.abc import Mapping
from typing import Final

from attrs import field
from typing_extensions import override

from ryecore.agent.outcome import NodeFailure
from ryecore.chain.model import ExecutionResult
from ryecore.display.sanitize import to_one_line
from ryecore.display.text import (
    StyledText,
    brief,
    counted,
    dollars,
    main_line,
    status_mark,
    status_words,
)
from ryecore.errors import ToolFailed
from ryecore.frozen import frozen
from ryecore.graph.model import Graph
from ryecore.graph.projection import RunProjection, RunStatus
from ryecore.graph.reading import LoadedGraph
from ryecore.graph.schedule import Ending, EndStatus, Position, write_failure
from ryecore.policy.budget import NOTHING, Amount
from ryecore.state.model import Cost, Status

__all__ = [
    "GraphResult",
    "document_of",
    "failure_document",
    "failure_result",
    "make_result",
    "status_of",
]

_MOST_ERRORS: Final = 3
"""The number of ignored errors that are shown."""


@frozen(kw_only=True, repr=False)
class GraphResult(ExecutionResult):
    """The result of a graph's run. `data` is its document.

    Attributes:
        run_id: Its id, for `rye.graphs` and `rye.threads`.
        ended: How it ended: completed, completed_with_errors, error or cancelled.
        output: The output of its return node.
        steps: The number of executed nodes.
        state: The values of the graph at its end.
        failed: The error that ended it, with its node.
        errors: The first of the ignored errors.
        suppressed: The number of ignored errors.
        cost: The cost of its own agents.
        total: The money and the tokens that it and all below it used.
        graph: The graph, as it ran; None where the result was read from elsewhere.
        run_status: The status of each of its nodes.
    """

    run_id: str
    ended: EndStatus
    output: object = None
    steps: int = 0
    state: Mapping[str, object] = field(factory=dict)
    failed: NodeFailure | None = None
    errors: tuple[NodeFailure, ...] = ()
    suppressed: int = 0
    cost: Cost = field(factory=Cost)
    total: Amount = NOTHING
    graph: Graph | None = field(default=None, eq=False)
    run_status: RunStatus | None = field(default=None, eq=False)

    @property
    @override
    def error_code(self) -> str:
        """The code of its error, such as `tool_failed`; empty where it didn't fail."""
        if self.ended == "cancelled":
            return "cancelled"
        return super().error_code if self.failed is None else self.failed.code

    def _failure(self) -> ToolFailed:
        return ToolFailed(
            f"{self.item_id} failed: {self.error}",
            next_step=f"See what happened, and how to resume it: rye graph show {self.run_id}",
            data=self.data,
        )

    def render(self) -> StyledText:
        """Render the result for a terminal or a notebook."""
        text = StyledText()
        mark = status_mark(self.ended)
        text.line(
            mark,
            (self.item_id, "strong"),
            (f"  {status_words(self.ended)}", mark[1]),
            (f"  {counted(self.steps, 'step')}", "dim"),
            (f"  {round(self.duration_ms)} ms", "dim"),
        )
        for line in (self.error or "").splitlines():
            text.line("  ", (line, "bad"))
        if self.suppressed:
            count = counted(self.suppressed, "error")
            text.line("  ", (f"{count} passed over", "warn"))
            for one in self.errors[:_MOST_ERRORS]:
                text.line((f"    {one.node}: ", "dim"), brief(main_line(one.message)))
            if self.suppressed > _MOST_ERRORS:
                text.line((f"    … more: rye graph show {self.run_id} --json", "dim"))
        if self.total != Amount():
            spend = dollars(self.total.spend_microcents)
            text.line("  ", (f"{counted(self.total.tokens, 'token')}, {spend}", "dim"))
        text.line("  ", (f"run {self.run_id}", "dim"))
        if isinstance(self.output, Mapping):
            for key, value in self.output.items():
                text.line((f"  {to_one_line(str(key))}: ", "dim"), brief(value))
        elif self.output is not None:
            text.line("  ", brief(self.output))
        return text

    def _repr_html_(self) -> str:
        if self.graph is None or self.run_status is None:
            return self.render().html()
        from ryecore.display import to_html  # noqa: PLC0415 - only for notebooks
        from ryecore.graph.picture import graph_picture  # noqa: PLC0415

        return to_html(graph_picture(self.graph, self.run_status)) + self.render().html()


def status_of(ending: Ending) -> Status:
    """Return the status that a run's row ends with."""
    return "completed" if ending.status == "completed_with_errors" else ending.status


def document_of(run_id: str, position: Position, total: Amount) -> dict[str, object]:
    """Return a run's result as the document for models and parent processes.

    Source: docs/design/graphs.md#the-result.
    """
    ending = position.ending or Ending("cancelled")
    is_well = ending.status in ("completed", "completed_with_errors")
    document: dict[str, object] = {"success": is_well, "status": ending.status}
    if is_well:
        document["output"] = ending.output
    document |= {"steps": position.step, "graph_run_id": run_id}
    if ending.error is not None:
        document |= {"error": _said(ending.error), "node": ending.error.node}
        document["error_code"] = ending.error.code
        if ending.error.effect_unknown:
            document["effect_unknown"] = True
        document["state"] = dict(position.state)
    if position.suppressed:
        document["errors_suppressed"] = position.suppressed
        document["errors"] = [write_failure(one) for one in position.errors]
    if total != Amount():
        document["cost"] = total.to_dict()
    return document


def make_result(
    loaded: LoadedGraph,
    run_id: str,
    position: Position,
    cost: Cost,
    total: Amount,
    duration_s: float,
    projection: RunProjection,
) -> GraphResult:
    """Make the result of a run that has ended."""
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
        run_status=projection.snapshot(status_of(ending)),
    )


def failure_document(run_id: str, error: str, status: str = "error") -> dict[str, object]:
    """Return the document of a run that ended without its own: as `error` or `cancelled`."""
    return {"success": False, "status": status, "error": error, "graph_run_id": run_id}


def failure_result(item_id: str, document: Mapping[str, object]) -> dict[str, object]:
    """Return the stored result of such a run, from its document."""
    error = document["error"]
    return {"status": "error", "item_id": item_id, "error": error, "data": document}


def _said(error: NodeFailure) -> str:
    is_nodes = error.node and error.code not in ("cancelled", "turn_limit")
    return f"{error.node}: {error.message}" if is_nodes else error.message
