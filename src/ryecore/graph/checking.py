"""Check a graph together with what it calls."""

from collections.abc import Callable, Mapping

from attrs import evolve

from ryecore.errors.graphs import GraphProblem
from ryecore.graph.reading import GraphReport, located
from ryecore.graph.validation.calls import check_calls
from ryecore.items.refs import ItemRef

__all__ = ["with_calls"]


def with_calls(
    report: GraphReport, text: str, lookup: Callable[[ItemRef], Mapping[str, object] | None]
) -> GraphReport:
    """A report with what is wrong, or looks so, between a graph and the items that it calls.

    Args:
        report: What was found in the graph's own file.
        text: The file's text.
        lookup: Finds an item's schema. It raises RyeError where the item can't be used.

    Returns:
        The report. Its graph is there all the same: what it calls may be mended without it.
    """
    if report.graph is None:
        return report
    found, path = check_calls(report.graph, lookup), report.graph.path
    return evolve(
        report,
        errors=_sorted((*report.errors, *located(found.errors, text, path))),
        warnings=_sorted((*report.warnings, *located(found.warnings, text, path))),
    )


def _sorted(problems: tuple[GraphProblem, ...]) -> tuple[GraphProblem, ...]:
    return tuple(sorted(problems, key=lambda one: one.line or 0))
