"""How a directive that can't be read is refused: with the line, and what to do."""

from pathlib import Path

from ryecore.errors import MetadataError

__all__ = ["DirectiveProblem"]


class DirectiveProblem(ValueError):
    """What is wrong, and the line of the file; the parser makes a `MetadataError` of it."""

    def __init__(self, problem: str, line: int | None, next_step: str = "") -> None:
        super().__init__(problem)
        self.line = line
        self.next_step = next_step

    def error(self, path: Path) -> MetadataError:
        """The error that leaves the room."""
        place = f"{path}, line {self.line}" if self.line else str(path)
        return MetadataError(
            f"{place}: {self}.",
            next_step=self.next_step or "Mend the file and sign it again.",
            path=path,
            line=self.line,
        )
