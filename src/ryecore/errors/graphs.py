"""Errors of state graphs."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from attrs import frozen

from ryecore.errors.items import ItemError

__all__ = ["GraphInvalid", "GraphProblem"]

_MAX_SHOWN = 50


@frozen
class GraphProblem:
    """A problem of a graph.

    Attributes:
        line: The line, counted from 1; None where unknown.
        key: The path of the key, such as `config.nodes.load.next[0].to`.
    """

    message: str
    path: Path
    line: int | None = None
    node: str | None = None
    key: str = ""

    def __str__(self) -> str:
        place = f"{self.path}, line {self.line}" if self.line else str(self.path)
        named = f"{place}, {self.key}" if self.key else place
        return f"{named}: {self.message}"

    def to_dict(self) -> dict[str, object]:
        """Return the problem in its JSON form."""
        return {
            "message": self.message,
            "path": str(self.path),
            "line": self.line,
            "node": self.node,
            "key": self.key,
        }


class GraphInvalid(ItemError):
    """A state graph has problems that keep it from running; each is listed.

    Attributes:
        problems: What keeps the graph from running, in the order of the file.
        warnings: What looks wrong, but does not keep the graph from running.
    """

    error_type: ClassVar[str] = "graph_invalid"
    problems: tuple[GraphProblem, ...] = ()
    warnings: tuple[GraphProblem, ...] = ()

    @classmethod
    def of(
        cls,
        ref: object,
        problems: Sequence[GraphProblem],
        warnings: Sequence[GraphProblem] = (),
    ) -> "GraphInvalid":
        """Make the error of a graph with these problems."""
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        shown = [f"\n  {problem}" for problem in problems[:_MAX_SHOWN]]
        if len(problems) > _MAX_SHOWN:
            shown.append(f"\n  … and {len(problems) - _MAX_SHOWN} more.")
        return cls(
            f"{ref} has {count}:{''.join(shown)}",
            next_step="Mend the file and sign it again.",
            problems=tuple(problems),
            warnings=tuple(warnings),
        )

    def __str__(self) -> str:
        gap = "\n" if "\n" in self.message else " "
        return f"{self.message}{gap}{self.next_step}".rstrip()

    def to_dict(self) -> dict[str, object]:
        """Return the error object, with its problems."""
        return super().to_dict() | {"problems": [one.to_dict() for one in self.problems]}
