"""The report of a replay."""

from typing import Literal, TypeAlias

from ryecore.convert.strict import WIRE
from ryecore.display.text import Rendered, StyledText, counted, status_mark
from ryecore.frozen import frozen

__all__ = ["About", "Difference", "ReplayReport"]

About: TypeAlias = Literal["limits", "holds", "cost", "permissions", "hooks", "outputs"]
"""The subject of a decision."""


@frozen
class Difference:
    """A decision that differs when recomputed.

    Attributes:
        turn: The turn; 0 for decisions before the first.
        about: The subject of the decision.
        recorded: The decision in the transcript.
        recomputed: The recomputed decision.
    """

    turn: int
    about: About
    recorded: str
    recomputed: str

    def to_dict(self) -> dict[str, object]:
        """Return the difference as JSON types."""
        difference: dict[str, object] = WIRE.write(self)
        return difference


@frozen(repr=False)
class ReplayReport(Rendered):
    """The report of a replay: the recomputed decisions of a thread.

    Attributes:
        thread_id: The thread.
        turns: The number of judged turns.
        decisions: The number of recomputed decisions.
        differences: The decisions that differ under the thread's own limits and permissions.
        today: What the thread was allowed, but would not be today.
        unchecked: The decisions that can't be recomputed, with reasons.
    """

    thread_id: str
    turns: int
    decisions: int
    differences: tuple[Difference, ...] = ()
    today: tuple[Difference, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every recomputed decision agrees with the record."""
        return not self.differences

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON types."""
        return {"ok": self.ok, **WIRE.write(self)}

    def render(self) -> StyledText:
        """Render the report for a terminal or a notebook."""
        text = StyledText()
        said = (
            ("  as recorded", "good") if self.ok else (f"  {len(self.differences)} differ", "bad")
        )
        text.line(
            status_mark("ok" if self.ok else "problem"),
            (self.thread_id, "id"),
            said,
            (f"  {counted(self.turns, 'turn')}, {counted(self.decisions, 'decision')}", "dim"),
        )
        for one in self.differences:
            _add(text, one, "bad", "now      ")
        if self.today:
            text.line(("  allowed then, and not today", "warn"))
        for one in self.today:
            _add(text, one, "warn", "today    ")
        for said_of in self.unchecked:
            text.line(("  not judged: ", "dim"), said_of)
        return text

    def __repr__(self) -> str:
        return f"ReplayReport({self.thread_id!r}, {len(self.differences)} differences)"


def _add(text: StyledText, one: Difference, style: str, now: str) -> None:
    text.line(("  turn ", "dim"), str(one.turn), (f"  {one.about}", style))
    text.line(("    recorded ", "dim"), one.recorded)
    text.line((f"    {now}", "dim"), one.recomputed)
