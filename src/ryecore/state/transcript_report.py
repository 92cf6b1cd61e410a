"""The report of a check of a transcript, turn by turn."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, TypeAlias

from attrs import field

from ryecore.convert.strict import WIRE
from ryecore.display.text import STATUS_ICONS, Rendered, StyledText, status_mark
from ryecore.frozen import frozen
from ryecore.state.model import RemotePlace

__all__ = ["TranscriptReport", "TurnReport", "TurnState", "Unit"]

TurnState: TypeAlias = Literal["attested", "altered", "cut", "unattested"]
"""The state of a turn: its digest is signed; it isn't as it was signed; a part is missing; or no
checkpoint covers it."""

Unit: TypeAlias = Literal["turn", "step"]
"""The unit between two checkpoints: a turn of a thread, or a step of a graph's run."""


@frozen
class TurnReport:
    """The state of one turn of a transcript.

    Attributes:
        turn: The turn; 0 for the part before the first.
        state: Its state.
        first_line: Its first line, from 1.
        last_line: Its last.
        reason: The reason, a sentence; empty if it is attested.
    """

    turn: int
    state: TurnState
    first_line: int
    last_line: int
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        report: dict[str, object] = WIRE.write(self)
        return report


@frozen
class TranscriptReport(Rendered):
    """The report on a transcript.

    Attributes:
        ok: Whether nothing is altered, cut, or missing. Records that a crash left without a
            checkpoint are allowed while the thread may continue; they are marked `unattested`.
        turns: Each turn, in order.
        problems: The problems, a sentence each.
        unattested_records: The number of records that no digest covers.
        size_bytes: The size of the file.
        unit: The word for a turn, such as a step of a graph's run.
        node: The node whose records these are, and which signed them; None for this user's own.
        earlier: The reports on the threads of its chain there that this one continues, by their
            ids on the node, the first one first.
    """

    ok: bool
    turns: tuple[TurnReport, ...]
    problems: tuple[str, ...]
    unattested_records: int
    size_bytes: int
    unit: Unit = "turn"
    node: RemotePlace | None = None
    earlier: "Mapping[str, TranscriptReport]" = field(factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON-ready object."""
        return {
            "ok": self.ok,
            "turns": [turn.to_dict() for turn in self.turns],
            "problems": list(self.problems),
            "unattested_records": self.unattested_records,
            "size_bytes": self.size_bytes,
            **({} if self.node is None else {"remote": self.node.remote, "node": self.node.node}),
            **(
                {"earlier": {one: report.to_dict() for one, report in self.earlier.items()}}
                if self.earlier
                else {}
            ),
        }

    def render(self, thread_id: str = "transcript") -> StyledText:
        """Render the report for a terminal or a notebook, under the thread's id."""
        text = StyledText()
        verdict = "nothing altered or cut" if self.ok else "not what was signed"
        style = "good" if self.ok else "bad"
        text.line(
            status_mark("ok" if self.ok else "problem"),
            (thread_id, "id"),
            (f"  {verdict}", style),
            (f"  {self.size_bytes:,} bytes", "dim"),
        )
        if self.node is not None and self.ok:
            text.line(
                ("  signed by the node ", "dim"),
                (self.node.node, "id"),
                (f" of the remote {self.node.remote}", "dim"),
            )
        for one in _joined(self.turns):
            mark, style = STATUS_ICONS[one.state]
            text.line(
                (f"  {mark} ", style),
                f"{self.unit} {one.turn:<4}",
                (f" {one.state:<10}", style),
                (f"  lines {one.first_line} to {one.last_line}", "dim"),
                (f"  {one.reason}" if one.reason else "", style),
            )
        if self.unattested_records:
            count = f"{self.unattested_records} records that no checkpoint covers"
            text.line(("  ! ", "warn"), count)
        of_turns = tuple(f"{self.unit.title()} {one.turn} (lines" for one in self.turns)
        for problem in self.problems:
            if not problem.startswith(of_turns):  # problems of turns are listed with the turns
                text.line("  ", (problem, "bad"))
        for earlier_id, earlier in self.earlier.items():
            text.line(
                status_mark("ok" if earlier.ok else "problem"),
                (earlier_id, "id"),
                (f"  continued on the node  {len(earlier.turns)} {self.unit}s", "dim"),
            )
        return text


def _joined(turns: Sequence[TurnReport]) -> Iterator[TurnReport]:
    """Yield the turns, with consecutive checkpoints of one turn joined."""
    for (turn, state, reason), group in groupby(turns, lambda t: (t.turn, t.state, t.reason)):
        parts = list(group)
        yield TurnReport(turn, state, parts[0].first_line, parts[-1].last_line, reason)
