"""A text that is drawn in place on a terminal, over the one before."""

import os
from contextlib import suppress
from typing import Self, TextIO

from ryecore.display.text import StyledText

__all__ = ["LiveText", "can_redraw", "size_of"]


class LiveText:
    """A text that is drawn over the one before. Leaving it gives the cursor back."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines = 0

    def redraw(self, text: StyledText) -> None:
        """Draw a text, whose lines fit the terminal, over the one before."""
        shown = text.plain() if os.environ.get("NO_COLOR") else text.ansi()
        lines = shown.split("\n")
        back = f"\x1b[{self._lines}F" if self._lines else ""
        # One write, each line cleared behind its text: nothing flickers.
        self._write(back + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._lines = len(lines)

    def release(self) -> None:
        """Leave what is drawn as it is, and give the cursor back; the next drawing begins below."""
        self._lines = 0
        self._write("\x1b[?25h")

    def take(self) -> None:
        """Hide the cursor again, to draw."""
        self._write("\x1b[?25l")

    def _write(self, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        with suppress(OSError):  # a lost terminal doesn't stop the run
            self._out.write(text.encode(encoding, errors="replace").decode(encoding))
            self._out.flush()

    def __enter__(self) -> Self:
        self._write("\x1b[?25l")
        return self

    def __exit__(self, *_: object) -> None:
        self._write("\n\x1b[?25h" if self._lines else "\x1b[?25h")


def can_redraw(out: TextIO | None) -> bool:
    """Return whether a stream is a terminal whose lines can be redrawn."""
    return out is not None and out.isatty() and os.environ.get("TERM") != "dumb"


def size_of(out: TextIO) -> tuple[int, int]:
    """Return the number of columns and rows of a terminal."""
    with suppress(OSError):
        columns, rows = os.get_terminal_size(out.fileno())
        if columns and rows:  # an unknown size is 0
            return columns, rows
    import shutil  # noqa: PLC0415 - which imports much, only for this

    return shutil.get_terminal_size()
