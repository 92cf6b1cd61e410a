"""What the threads of a project have cost: `rye.costs` and `rye costs`."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, Self

from ryecore.convert.money import to_usd, write_usd
from ryecore.display.text import Rendered, StyledText, compact, counted, dollars
from ryecore.errors import ConfigError, InputError
from ryecore.policy.context import check_labels
from ryecore.state.cost_sums import CostSum, sum_costs_query
from ryecore.state.pruning import AGE_UNITS, parse_age
from ryecore.state.waiting import run_in_thread

if TYPE_CHECKING:
    from ryecore.state.store import ThreadStore

__all__ = ["CostRow", "CostRows", "sum_costs"]


class CostRow(NamedTuple):
    """What some threads have cost, each without its children.

    It is a named tuple, so that `pandas.DataFrame(rows)` has its fields as columns.

    Attributes:
        name: The directive, model, label or day; None for threads that have none.
        threads: The number of threads.
        turns: Turns of their models.
        input_tokens: Tokens that were read, from a cache or not.
        output_tokens: Tokens that were written.
        cached_tokens: The part of `input_tokens` that was read from providers' caches.
        spend_usd: The money in US dollars.
        estimated: The number of threads a part of whose cost is an estimate.
        unpriced: The number of requests to models without a price, which count as free.
    """

    name: str | None
    threads: int
    turns: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    spend_usd: Decimal
    estimated: int
    unpriced: int

    @classmethod
    def of(cls, found: CostSum) -> "CostRow":
        """Return the row of a sum."""
        cost = found.cost
        return cls(
            found.name, found.threads, cost.turns, cost.input_tokens, cost.output_tokens,
            cost.cached_tokens, to_usd(cost.spend_microcents), found.estimated, cost.unpriced,
        )  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        """Return the row as JSON types, with `spend` in US dollars."""
        row: dict[str, object] = self._asdict()
        del row["spend_usd"]
        return {**row, "spend": write_usd(int(self.spend_usd.scaleb(8)))}


class CostRows(Rendered, tuple[CostRow, ...]):
    """The costs of a project's threads, the dearest first, days in order.

    Attributes:
        by: By what they are summed.
        since: The time from which threads count, in UTC; None for all that the project keeps.
    """

    by: str
    since: datetime | None

    def __new__(
        cls, rows: Iterable[CostRow] = (), by: str = "directive", since: datetime | None = None
    ) -> Self:
        """Make the list of these rows."""
        made = super().__new__(cls, tuple(rows))
        made.by, made.since = by, since
        return made

    @property
    def spend_usd(self) -> Decimal:
        """The sum of the money. By `label`, a thread with several labels counts for each."""
        return sum((one.spend_usd for one in self), start=Decimal(0))

    def to_dict(self) -> dict[str, object]:
        """Return the rows as a JSON-ready object."""
        return {
            "by": self.by,
            "since": None if self.since is None else self.since.isoformat(),
            "rows": [one.to_dict() for one in self],
        }

    def render(self) -> StyledText:
        """Render the rows as a table for a terminal or a notebook."""
        text = StyledText()
        if not self:
            text.line("no costs")
            return text
        width = max(len(_name(one)) for one in self)
        for one in self:
            tokens = f"{compact(one.input_tokens)} in, {compact(one.output_tokens)} out"
            remarks = [
                *([f"{compact(one.cached_tokens)} cached"] if one.cached_tokens else []),
                *([f"{counted(one.unpriced, 'request')} unpriced"] if one.unpriced else []),
                *([f"{counted(one.estimated, 'thread')} estimated"] if one.estimated else []),
            ]
            text.line(
                (_name(one).ljust(width), "strong" if one.name is not None else "dim"),
                f"  {dollars(int(one.spend_usd.scaleb(8))):>10}",
                (f"  {counted(one.threads, 'thread'):>12}  {tokens}", "dim"),
                (f"  {', '.join(remarks)}" if remarks else "", "warn"),
            )
        return text


def _name(row: CostRow) -> str:
    return "(none)" if row.name is None else row.name


async def sum_costs(
    open_store: "Callable[[], ThreadStore | None]",
    by: str,
    since: "str | datetime | None",
    labels: Mapping[str, str] | None,
) -> CostRows:
    """Sum the costs of a project's threads; see `Rye.costs`."""
    start = _start(since)
    written = None if start is None else start.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    wanted = check_labels(labels)
    try:
        sum_costs_query(by, written, wanted)
    except ValueError as problem:
        raise InputError(
            f"by: {problem}.", next_step="Name a label such as tenant by label:tenant."
        ) from None
    store = await run_in_thread(open_store)
    found = () if store is None else await store.registry.sum_costs(by, written, wanted)
    return CostRows(map(CostRow.of, found), by, start)


def _start(since: "str | datetime | None") -> datetime | None:
    """Return a time in UTC, which may be an age such as `30d`, or a date; None for none.

    A time without a zone is in UTC, too, as the days are by which costs are summed.
    """
    if since is None:
        return None
    if isinstance(since, datetime):
        return _in_utc(since)
    try:
        return datetime.now(UTC) - timedelta(seconds=parse_age(since))
    except (ConfigError, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(since)
    except (TypeError, ValueError):
        raise InputError(
            f"since: {since!r} is neither an age nor a date.",
            next_step=f"Pass such as 30d ({AGE_UNITS}), or 2026-11-01.",
        ) from None
    return _in_utc(found)


def _in_utc(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
