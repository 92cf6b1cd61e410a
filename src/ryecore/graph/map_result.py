"""The result of a map: a row for each row that it was given, in their order, and what it cost."""

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from attrs import field, fields_dict

from ryecore.convert.money import to_usd, write_usd
from ryecore.display.text import (
    BoxStatus,
    Rendered,
    StyledText,
    brief,
    counted,
    dollars,
    duration,
    main_line,
    noun_of,
    status_mark,
    status_words,
)
from ryecore.frozen import frozen

if TYPE_CHECKING:
    from ryecore.display.chart import Amounts

__all__ = ["MapReport", "MapRow", "MapStatus", "RowStatus", "fields_of"]

RowStatus = Literal["completed", "failed", "interrupted", "pending"]
MapStatus = Literal["running", "completed", "completed_with_errors", "error", "cancelled", "killed"]

_MOST_SHOWN: Final = 10
_WORDS: Final[Mapping[RowStatus, str]] = {
    "completed": "completed", "failed": "failed", "interrupted": "interrupted",
    "pending": "not run",
}  # fmt: skip
_BOXES: Final[Mapping[RowStatus, BoxStatus]] = {
    "completed": "completed", "failed": "failed", "interrupted": "cancelled", "pending": "pending",
}  # fmt: skip


class MapRow(NamedTuple):
    """What came of one row.

    It is a named tuple, so that `pandas.DataFrame(result.results)` has its fields as columns.

    Attributes:
        row: Its place among the rows, from 0.
        status: `completed`, `failed`, `interrupted` (it had begun when the map ended, and its end
            is unknown), or `pending` (the map ended before it began).
        output: What the item returned: the outputs of a directive, its text without declared
            outputs, or a tool's data; None if it didn't complete.
        error: Why it failed, and what to do; None otherwise.
        cost_usd: What it cost in US dollars, all its tries included.
        thread_id: The thread of the directive, or the run of the graph; None for another tool.
        inputs: The row itself.
    """

    row: int
    status: RowStatus
    output: object
    error: str | None
    cost_usd: Decimal
    thread_id: str | None
    inputs: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        """Return the row as JSON types; its cost is `spend`, as in all JSON of threads."""
        return {
            "row": self.row,
            "status": self.status,
            "output": self.output,
            "error": self.error,
            "spend": float(self.cost_usd),
            "thread_id": self.thread_id,
            "inputs": dict(self.inputs),
        }


@frozen(kw_only=True, repr=False)
class MapReport(Rendered):
    """The rows of a map and what it cost, as far as it has come.

    Attributes:
        run_id: Its run, for `rye.map.resume`, `rye.graphs` and `rye.threads`.
        item_id: What it called for each row, as a canonical ref.
        status: `completed`, `completed_with_errors` where rows failed, `cancelled`, `killed`,
            `error` where the map itself was ended, or `running`.
        results: A row for each row that it was given, in their order.
        error: Why the map itself ended before its rows; None otherwise.
        spend_microcents: What it and the runs that it resumes have cost, in units of 1e-8 USD.
        limit_microcents: The caller's limit on that; None for no limit.
        duration_s: How long it ran.
    """

    run_id: str
    item_id: str
    status: MapStatus
    results: tuple[MapRow, ...]
    error: str | None = None
    spend_microcents: int = 0
    limit_microcents: int | None = None
    duration_s: float = 0.0
    next_step: str = field(default="", eq=False)

    @property
    def failed(self) -> tuple[MapRow, ...]:
        """The rows that failed or were interrupted, in their order."""
        return tuple(one for one in self.results if one.status in ("failed", "interrupted"))

    @property
    def outputs(self) -> list[object]:
        """The outputs of all rows, in their order: None for one that didn't complete."""
        return [one.output for one in self.results]

    @property
    def cost_usd(self) -> Decimal:
        """What all rows have cost in US dollars, in all tries and runs."""
        return to_usd(self.spend_microcents)

    @property
    def counts(self) -> Mapping[RowStatus, int]:
        """The number of rows of each status, without those that no row has."""
        return Counter(one.status for one in self.results)

    def to_dict(self) -> dict[str, object]:
        """Return the result as a JSON-ready object."""
        return {
            "status": self.status,
            "item_id": self.item_id,
            "run_id": self.run_id,
            **({} if self.error is None else {"error": self.error}),
            "rows": len(self.results),
            **{f"rows_{status}": count for status, count in self.counts.items()},
            "spend": write_usd(self.spend_microcents),
            "duration_s": round(self.duration_s, 3),
            "results": [one.to_dict() for one in self.results],
            **({"next_step": self.next_step} if self.next_step else {}),
        }

    def render(self) -> StyledText:
        """Render the result for a terminal or a notebook, with the first rows that failed."""
        text = StyledText()
        mark = status_mark(self.status)
        text.line(
            mark,
            (self.item_id, "strong"),
            (f"  {status_words(self.status)}", mark[1]),
            f"  {counted(len(self.results), 'row')}",
            (f"  {duration(self.duration_s)}", "dim"),
        )
        counts = self.counts
        if len(counts) > 1 or "completed" not in counts:
            said = ", ".join(
                f"{counts[one]:,} {word}" for one, word in _WORDS.items() if one in counts
            )
            text.line(("  rows    ", "dim"), said)
        done = counts.get("completed", 0)
        each = f"  {dollars(round(self.spend_microcents / done))} a row" if done else ""
        text.line(("  cost    ", "dim"), self._money(), (each, "dim"))
        text.line(("  run     ", "dim"), (self.run_id, "id"))
        if self.error is not None:
            text.line("  ", (main_line(self.error), "bad"))
        failed = self.failed
        for one in failed[:_MOST_SHOWN]:
            why = one.error or "it had begun when the map ended: whether it took effect is unknown"
            text.line(
                status_mark("failed"), f"row {one.row}  ", (brief(main_line(why), 160), "bad")
            )
        if len(failed) > _MOST_SHOWN:
            more = len(failed) - _MOST_SHOWN
            text.line((f"  … {more:,} more {noun_of(more, 'row')} failed", "dim"))
        text.next_step(self.next_step)
        return text

    def to_svg(self) -> str:
        """Draw what it cost, row by row, as one `<svg>` element, which is a file as well."""
        from ryecore.display.chart import chart_to_svg  # noqa: PLC0415 - only to be drawn

        return chart_to_svg(self._chart())

    def _chart(self) -> "Amounts":
        from ryecore.display.chart import Amounts, Share  # noqa: PLC0415 - only to be drawn

        counts = self.counts
        shares = [
            Share(counts[one], _BOXES[one], f"{counts[one]:,} {word}")
            for one, word in _WORDS.items()
            if one in counts
        ]
        amounts = [int(one.cost_usd.scaleb(8)) for one in self.results]
        facts = [counted(len(self.results), "row"), self._money(), duration(self.duration_s)]
        if any(amounts):
            dearest = max(range(len(amounts)), key=amounts.__getitem__)
            facts.append(f"the dearest is row {dearest} with {dollars(amounts[dearest])}")
        return Amounts(
            title=f"{self.item_id} for each row",
            facts=", ".join(facts),
            noun="row",
            amounts=amounts or [0],
            statuses=[_BOXES[one.status] for one in self.results] or ["pending"],
            write=dollars,
            shares=shares,
        )

    def _money(self) -> str:
        limit = self.limit_microcents
        of_limit = "" if limit is None else f" of {dollars(limit)}"
        return f"{dollars(self.spend_microcents)}{of_limit}"

    def _repr_html_(self) -> str:
        from ryecore.display.svg import scrollable  # noqa: PLC0415 - only for notebooks

        return scrollable(self.to_svg()) + self.render().html()

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[MapRow]:
        return iter(self.results)

    def __getitem__(self, index: int) -> MapRow:
        return self.results[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.status}, {len(self.results)} rows, {self.run_id!r})"


def fields_of(report: MapReport) -> dict[str, Any]:
    """Return the fields of a report, to make one of another class of them."""
    return {name: getattr(report, name) for name in fields_dict(MapReport)}
