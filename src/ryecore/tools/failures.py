"""Texts of failures for models: without keys and paths of the host, and bounded."""

import re
from typing import Final

from ryecore.errors import ToolArgsInvalidError, ToolCallError, ToolExecutionError
from ryecore.llm.redaction import redact

__all__ = ["as_tool_error", "invalid_arguments", "quoted", "shown"]

_MAX_CHARS: Final = 1000
_MAX_LISTED: Final = 20
# A path that begins with `/`, but not the one in a URL: of it, the last part is shown.
_PATH: Final = re.compile(
    r"(?<![\w.:/~-])~?(?:/[^/\s'\"`:;,<>|()\[\]{}]+)+/([^/\s'\"`:;,<>|()\[\]{}]+)"
)

# What a traceback says of each place; what was raised stays.
_TRACEBACK: Final = re.compile(
    r"Traceback \(most recent call last\):\n?|^[ \t]+File \"[^\n]*(?:\n {4,}[^\n]*)*\n?",
    re.MULTILINE,
)


def shown(text: str, *secrets: str) -> str:
    """Return a foreign text in a form that a model may read, without the secrets."""
    # What is cut off first is far more than any key is long, so that none is cut in two.
    text = redact(text[: 16 * _MAX_CHARS], *secrets, max_chars=16 * _MAX_CHARS)
    text = _PATH.sub(r"…/\1", _TRACEBACK.sub("", text))
    text = text.encode("utf-8", errors="replace").decode()
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def quoted(text: str) -> str:
    """Return a name that a model wrote, made safe for a message."""
    return ascii(text if len(text) <= 80 else f"{text[:80]}…")


def invalid_arguments(tool_name: str, *failures: str) -> ToolArgsInvalidError:
    """Return the error that lists all problems of a call's arguments."""
    listed = [one if len(one) <= 300 else f"{one[:300]}…" for one in failures[:_MAX_LISTED]]
    if len(failures) > _MAX_LISTED:
        listed.append(f"and {len(failures) - _MAX_LISTED} more")
    return ToolArgsInvalidError(
        f"The arguments don't fit the tool {tool_name}: {'; '.join(listed)}.",
        next_step="Call it again with arguments that fit its schema.",
        tool_name=tool_name,
        failures=failures,
    )


def as_tool_error(error: BaseException, tool_name: str, secrets: tuple[str, ...]) -> ToolCallError:
    """Return a tool's exception as an error without secrets.

    The error refers to nothing of what was raised: neither its text nor what it was raised from
    is known to be free of keys. Its kind and place are kept as facts, for the tool's author.
    """
    if isinstance(error, ToolCallError):
        error.tool_name = tool_name
        error.message = shown(error.message, *secrets)
        error.next_step = shown(error.next_step, *secrets)
        error.args = (error.message,)
        if isinstance(error, ToolArgsInvalidError):
            error.failures = tuple(shown(one, *secrets) for one in error.failures)
            error.facts = {**error.facts, "failures": error.failures}
        error.__cause__ = error.__context__ = None
        return error
    kind = type(error).__name__
    said = shown(_said(error), *secrets)
    return ToolExecutionError(
        f"The tool {tool_name} failed: {f'{kind}: {said}' if said else kind}",
        tool_name=tool_name,
        exception_type=kind,
        raised_at=_raised_at(error),
    )


def _said(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(f"{type(one).__name__}: {_said(one)}" for one in error.exceptions[:5])
    try:
        return str(error)
    except Exception:  # it can't even say what is wrong
        return ""


def _raised_at(error: BaseException) -> str:
    """Return the innermost place of an error, such as `shop.py:12 in price`."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} in {code.co_name}"
