"""The report of a replay."""

from typing import Literal, TypeAlias

from attrs import frozen

from ryecore.convert.wire import WIRE
from ryecore.display.status import status_mark
from ryecore.display.text import StyledText

__all__ = ["About", "Difference", "ReplayReport"]

About: TypeAlias = Literal["limits", "holds", "cost", "permissions", "hooks", "outputs"]
"""What was decided."""


@frozen
class Difference:
    """A decision that comes out differently.

    Attributes:
        turn: The turn; 0 for what comes before the first.
        about: What was decided.
        recorded: What the transcript says.
        recomputed: What comes out now.
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
class ReplayReport:
    """The report of a replay: the decisions of a thread, made again.

    Attributes:
        thread_id: The thread.
        turns: How many turns were judged.
        decisions: How many decisions were made again.
        differences: Those that come out otherwise by what the thread had.
        today: What it was allowed then, and would not be today.
        unchecked: What could not be decided again, and why.
    """

    thread_id: str
    turns: int
    decisions: int
    differences: tuple[Difference, ...] = ()
    today: tuple[Difference, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every decision comes out as it was recorded."""
        return not self.differences

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON types."""
        return {"ok": self.ok, **WIRE.write(self)}

    def render(self) -> StyledText:
        """Return the report for a terminal or a notebook."""
        text = StyledText()
        said = (
            ("  as recorded", "good")
            if self.ok
            else (f"  {len(self.differences)} come out otherwise", "bad")
        )
        text.line(
            status_mark("ok" if self.ok else "problem"),
            (self.thread_id, "id"),
            said,
            (f"  {self.turns} turn{'s' if self.turns != 1 else ''}, ", "dim"),
            (f"{self.decisions} decision{'s' if self.decisions != 1 else ''}", "dim"),
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

    def __str__(self) -> str:
        return self.render().plain()

    def _repr_html_(self) -> str:
        return self.render().html()


def _add(text: StyledText, one: Difference, style: str, now: str) -> None:
    text.line(("  turn ", "dim"), str(one.turn), (f"  {one.about}", style))
    text.line(("    recorded ", "dim"), one.recorded)
    text.line((f"    {now}", "dim"), one.recomputed)
