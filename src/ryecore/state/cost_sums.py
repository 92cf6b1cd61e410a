"""Sums of what threads have cost, by directive, model, label or day: one statement over their rows.

Each row holds a thread's own cost, without its children's, so that nothing is counted twice.

Source: docs/concepts/limits-and-budgets.md#what-everything-cost.
"""

# ruff: noqa: S608 - what is spliced into statements is this module's own constants

from collections.abc import Mapping
from typing import Final

from ryecore.frozen import frozen
from ryecore.state.model import Cost

__all__ = ["COST_GROUPS", "CostSum", "sum_costs_query"]

_GROUPS: Final = {
    "directive": "item_id",
    "model": "model",
    "day": "substr(created_at, 1, 10)",
}
_LABEL: Final = "label:"

COST_GROUPS: Final = (*_GROUPS, "label", "label:NAME")
"""By what costs are summed."""

_SUMS: Final = (
    "count(*), CAST(sum(turns) AS BIGINT), CAST(sum(input_tokens) AS BIGINT),"
    " CAST(sum(output_tokens) AS BIGINT), CAST(sum(spend_microcents) AS BIGINT),"
    " count(*) FILTER (WHERE cost_estimated), CAST(sum(cached_tokens) AS BIGINT),"
    " CAST(sum(unpriced) AS BIGINT)"
)
_HAS_COST: Final = "(turns > 0 OR spend_microcents > 0 OR input_tokens > 0)"


@frozen
class CostSum:
    """What some threads have cost.

    Attributes:
        name: The directive, model, label or day; None for threads that have none.
        threads: The number of threads.
        cost: Their cost, each without its children's.
        estimated: The number of threads a part of whose cost is an estimate.
    """

    name: str | None
    threads: int
    cost: Cost
    estimated: int

    @classmethod
    def of_row(cls, row: "tuple[str | None, int, int, int, int, int, int, int, int]") -> "CostSum":
        """Return a row of the statement."""
        name, threads, turns, read, written, spend, estimated, cached, unpriced = row
        cost = Cost(turns, read, written, spend, estimated > 0, cached, unpriced)
        return cls(name, threads, cost, estimated)


def sum_costs_query(
    by: str, since: str | None, labels: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Return the statement and its parameters; the dearest first, days in order.

    Args:
        by: One of `COST_GROUPS`; `label` sums by each label and its value, `label:tenant` by one.
        since: The time of registration, as rows have it, from which threads count.
        labels: The labels that a thread must have.

    Raises:
        ValueError: There is no such group.
    """
    values: list[str] = []
    tables = "threads"
    if by == "label":
        group, tables = "one.key || '=' || one.value", "threads, json_each(labels) AS one"
    elif isinstance(by, str) and by.startswith(_LABEL) and by != _LABEL:
        group = "json_extract(labels, ?)"
        values.append(_path(by.removeprefix(_LABEL)))
    elif isinstance(by, str) and by in _GROUPS:
        group = _GROUPS[by]
    else:
        raise ValueError(f"{by!r} isn't one of: {', '.join(COST_GROUPS)}")
    conditions = [_HAS_COST]
    if since is not None:
        conditions.append("created_at >= ?")
        values.append(since)
    matches, wanted = label_conditions(labels)
    conditions += matches
    values += wanted
    order = "1" if by == "day" else "sum(spend_microcents) DESC, sum(input_tokens) DESC, 1"
    query = (
        f"SELECT {group} AS name, {_SUMS} FROM {tables}"
        f" WHERE {' AND '.join(conditions)} GROUP BY 1 ORDER BY {order}"
    )
    return query, tuple(values)


def label_conditions(labels: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the conditions on a thread's labels, and their parameters.

    Raises:
        ValueError: A name isn't one of a label.
    """
    values = [part for name, value in labels.items() for part in (_path(name), value)]
    return ["json_extract(labels, ?) = ?"] * len(labels), values


def _path(name: str) -> str:
    """Return the JSON path of a label; its name has no quotation marks."""
    if '"' in name or "\\" in name:
        raise ValueError(f"{name!r} isn't the name of a label")
    return f'$."{name}"'
