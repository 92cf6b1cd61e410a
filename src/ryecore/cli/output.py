"""The output of the `rye` command, and its exit codes.

0: it ran well. 1: a tool ran and failed. 2: refused, nothing ran.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TextIO

from ryecore.chain.rendering import render_error
from ryecore.display.sanitize import RyeWarning, escape_json, replace_controls
from ryecore.display.text import StyledText, status_mark
from ryecore.errors import RyeError
from ryecore.lillux.os_errors import exhaustion_of

__all__ = [
    "EXIT_FAILED",
    "EXIT_REFUSED",
    "errors_shown",
    "is_output_lost",
    "show",
    "show_done",
    "show_json",
    "show_piece",
    "show_result",
    "show_text",
    "show_warning",
    "tell",
]

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2

_OPTIONS: Final = {"limits": "--limit", "timeout_s": "--timeout", "deps_factory": "--deps"}
_API_NAME: Final = r"^limits(?=:| is )|(?<!\.)\b(?:timeout_s|deps_factory)\b"


class Displayable(Protocol):
    """A result that can be shown both ways."""

    def to_dict(self) -> Mapping[str, object]:
        """Return it as a JSON-ready object."""
        ...

    def render(self) -> StyledText:
        """Render it for a terminal."""
        ...


class _OutputLostError(Exception):
    """The output could not be written; the cause says why."""


def show(text: StyledText, *, to_stderr: bool = False) -> None:
    """Print styled text: with colours on a terminal that has them, unless NO_COLOR is set."""
    out = _stream("stderr" if to_stderr else "stdout")
    if out is None:
        return
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    coloured = out.isatty() and not is_plain
    _write(out, _encodable(out, text.ansi() if coloured else text.plain()))


def tell(text: StyledText) -> None:
    """Print on the standard error, without failing where nobody reads it."""
    try:
        show(text, to_stderr=True)
    except _OutputLostError:
        _discard(sys.stderr)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show any Python warning, in the form of `warnings.showwarning`: nothing of it steers."""
    del file, line
    text = StyledText()
    place = (
        "" if issubclass(category, RyeWarning) else f"{filename}:{lineno}: {category.__name__}: "
    )
    text.line(status_mark("warning"), (place, "dim"), str(message))
    tell(text)


def show_text(text: str, rendered: StyledText) -> None:
    """Print a text: alone and as it is where a program reads it, rendered on a terminal."""
    out = _stream("stdout")
    if out is None or out.isatty():
        show(rendered)
        return
    _write(out, _encodable(out, text))


def show_piece(text: str) -> None:
    """Print a piece of a longer text as it is; on a terminal, without what could steer it."""
    out = _stream("stdout")
    if out is None:
        return
    if out.isatty():
        text = replace_controls(text, keep="\n\t")
    _write(out, _encodable(out, text), end="")


def show_json(document: Mapping[str, object]) -> None:
    """Print one JSON document; in ASCII where the output can't hold it otherwise.

    What steers a terminal, or is half a character, is escaped: to JSON that is the same.
    """
    out = _stream("stdout")
    if out is None:
        return
    for ensure_ascii in (False, True):
        text = json.dumps(document, ensure_ascii=ensure_ascii, indent=2, default=str)
        with suppress(UnicodeEncodeError):
            _write(out, escape_json(text))
            break


def show_result(result: Displayable, *, as_json: bool) -> None:
    """Print a result: as text, or as its JSON object."""
    if as_json:
        show_json(result.to_dict())
    else:
        show(result.render())


def show_done(
    sentence: str, document: Mapping[str, object], *, steps: Sequence[str] = (), as_json: bool
) -> None:
    """Print that a command has done its work, with the next steps; or its JSON document."""
    if as_json:
        show_json({"status": "success", **document})
        return
    text = StyledText()
    text.line(status_mark("ok"), sentence)
    for at, step in enumerate(steps):
        text.line(("        " if at else "  next: ", "dim"), step)
    show(text)


def _stream(name: str) -> TextIO | None:
    """Return one of Python's streams; None where it was closed before Python began."""
    stream: TextIO | None = getattr(sys, name)
    return stream


def _encodable(out: TextIO, text: str) -> str:
    encoding = out.encoding or "utf-8"
    return text.encode(encoding, errors="backslashreplace").decode(encoding)


def _write(out: TextIO, text: str, end: str = "\n") -> None:
    try:
        out.write(text + end)
        out.flush()
    except OSError as problem:
        raise _OutputLostError from problem


@contextmanager
def errors_shown(*, as_json: bool) -> Iterator[None]:
    """Show an error as text with its next step, or as its JSON object, and exit with 2."""
    try:
        try:
            with _exhaustion_named():
                yield
        except RyeError as error:
            if as_json:
                show_json(error.to_dict())
            else:
                texts = map(_with_options, (error.message, error.next_step))
                message = render_error(error.to_dict(), *texts)
                show(message, to_stderr=True)
            sys.exit(EXIT_REFUSED)
    except _OutputLostError as lost:
        _give_up_output(lost.__cause__)
        sys.exit(EXIT_FAILED)


def _with_options(text: str) -> str:
    """Return an error's text with the command line's options in place of the API's names."""
    return re.sub(_API_NAME, lambda found: _OPTIONS[found[0]], text)


@contextmanager
def _exhaustion_named() -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ExceptionGroup) as problem:
        used_up = exhaustion_of(problem)
        if used_up is None:
            raise
        raise used_up from problem


def is_output_lost(why: OSError) -> bool:
    """Return whether an error means that the output can't be written, and report it then."""
    out = _stream("stdout")
    try:
        if out is not None:
            out.flush()  # what could not be written is still pending
    except OSError:
        _give_up_output(why)
        return True
    return False


def _give_up_output(why: BaseException | None) -> None:
    _discard(sys.stdout)
    # Without a reader of the output, nobody would see an error.
    if isinstance(why, OSError) and not isinstance(why, BrokenPipeError):
        with suppress(OSError):
            sys.stderr.write(f"rye: the output can't be written: {why.strerror}\n")


def _discard(out: TextIO) -> None:
    """Discard pending output, which Python would otherwise try to write again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out.fileno())
    os.close(nowhere)
