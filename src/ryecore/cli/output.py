"""What the `rye` command prints, and the code that it exits with.

0: it ran well. 1: a tool ran and failed. 2: refused, nothing ran.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from ryecore.chain.render import StyledText, render_error
from ryecore.errors import RyeError

__all__ = ["EXIT_FAILED", "EXIT_REFUSED", "errors_shown", "show", "show_json"]

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2


def show(text: StyledText, stream: TextIO | None = None) -> None:
    """Print styled text: with colours on a terminal, plain elsewhere and where NO_COLOR is set."""
    out: TextIO = stream or sys.stdout
    coloured = out.isatty() and not os.environ.get("NO_COLOR")
    shown = text.ansi() if coloured else text.plain()
    encoding = out.encoding or "utf-8"
    out.write(shown.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")
    out.flush()


def show_json(document: Mapping[str, object]) -> None:
    """Print one JSON document; in ASCII where the output can't hold it otherwise.

    What steers a terminal, or is half a character, is escaped: to JSON that is the same.
    """
    for ensure_ascii in (False, True):
        text = json.dumps(document, ensure_ascii=ensure_ascii, indent=2, default=str)
        if not text.replace("\n", "").isprintable():
            text = "".join(
                char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1]
                for char in text
            )
        with suppress(UnicodeEncodeError):
            sys.stdout.write(text + "\n")
            break
    sys.stdout.flush()


@contextmanager
def errors_shown(*, as_json: bool) -> Iterator[None]:
    """Show an error as text with its next step, or as its JSON object, and exit with 2."""
    try:
        yield
    except RyeError as error:
        if as_json:
            show_json(error.to_dict())
        else:
            show(render_error(error.to_dict(), error.message, error.next_step), sys.stderr)
        sys.exit(EXIT_REFUSED)
    except BrokenPipeError:
        # Whoever read the output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
