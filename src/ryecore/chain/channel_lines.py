"""The lines of a call's channel: JSON objects that a tool writes and reads. Pure.

Source: docs/reference/call-channel.md.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ryecore.convert.json_text import make_encoder
from ryecore.frozen import frozen
from ryecore.policy.permissions import ASK_KINDS, AskKind
from ryecore.policy.reports import LOG_LEVELS, LogLevel
from ryecore.strict_json import read_json, replace_surrogates

__all__ = [
    "MAX_LINE_BYTES",
    "AskLine",
    "ChannelLine",
    "Lines",
    "LogLine",
    "ProgressLine",
    "read_channel_line",
    "write_answer",
]

MAX_LINE_BYTES: Final = 64 * 1024
"""The bytes of the longest line that a tool may write."""

_MAX_ID_CHARS: Final = 100
_MAX_TEXT_CHARS: Final = 1000
_MAX_NUMBER: Final = 2**53

_encode: Final = make_encoder()


@frozen
class ProgressLine:
    """How far the call is."""

    progress: float
    total: float | None
    message: str


@frozen
class LogLine:
    """A log message."""

    data: object
    level: LogLevel
    logger: str


@frozen
class AskLine:
    """A question, which is answered by the id that it names."""

    id: str | int
    kind: AskKind
    params: Mapping[str, object]


ChannelLine: TypeAlias = ProgressLine | LogLine | AskLine

_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "progress": frozenset({"progress", "total", "message"}),
    "log": frozenset({"log", "level", "logger"}),
    "ask": frozenset({"ask", "id", "params"}),
}
"""The keys of a line, by the key that says what it is."""


class Lines:
    """Splits what is read into lines, of a bounded length."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_too_long = False

    def add(self, chunk: bytes) -> None:
        """Add bytes that were read."""
        self._rest += chunk

    def take(self, count: int) -> list[bytes | None]:
        """Take lines that are complete, `count` at most; None for one that is too long."""
        *found, rest = self._rest.split(b"\n", count)
        lines: list[bytes | None] = []
        for line in found:
            is_too_long = self._is_too_long or len(line) > MAX_LINE_BYTES
            self._is_too_long = False
            if is_too_long or line.strip():
                lines.append(None if is_too_long else line)
        if len(found) < count and len(rest) > MAX_LINE_BYTES:
            rest, self._is_too_long = b"", True
        self._rest = rest
        return lines

    @property
    def has_line(self) -> bool:
        """Return whether a complete line waits to be taken."""
        return b"\n" in self._rest


def read_channel_line(line: bytes) -> ChannelLine:
    """Read one line of a tool.

    Raises:
        ValueError: It isn't one; the text says why.
    """
    document: Any = read_json(line.decode())
    if b"\\u" in line:  # so alone is half a surrogate pair written, which no client's UTF-8 holds
        document = replace_surrogates(document)
    if not isinstance(document, dict):
        raise ValueError("it isn't a JSON object")
    kind = next((key for key in _KEYS if key in document), None)
    if kind is None:
        raise ValueError(f"it has none of the keys {', '.join(_KEYS)}")
    if unknown := sorted(document.keys() - _KEYS[kind]):
        raise ValueError(f"{unknown[0][:40]!r} is not a key of a line with {kind!r}")
    if kind == "progress":
        total = document.get("total")
        return ProgressLine(
            _number(document, "progress"),
            None if total is None else _number(document, "total"),
            _text(document, "message"),
        )
    if kind == "log":
        level = document.get("level", "info")
        if level not in LOG_LEVELS:
            raise ValueError(f"level must be one of {', '.join(LOG_LEVELS)}")
        return LogLine(document["log"], level, _text(document, "logger"))
    return _ask_line(document)


def _ask_line(document: Mapping[str, Any]) -> AskLine:
    kind, name, params = document["ask"], document.get("id", ""), document.get("params", {})
    if kind not in ASK_KINDS:
        raise ValueError(f"ask must be one of {', '.join(ASK_KINDS)}")
    if type(name) is int and abs(name) <= _MAX_NUMBER:
        return AskLine(name, kind, _params(params))
    if not isinstance(name, str) or len(name) > _MAX_ID_CHARS:
        raise ValueError(f"id must be a number, or a text of at most {_MAX_ID_CHARS} characters")
    return AskLine(name, kind, _params(params))


def _params(params: object) -> Mapping[str, object]:
    if not isinstance(params, dict):
        raise ValueError("params must be a JSON object")
    return params


def _number(document: Mapping[str, Any], key: str) -> float:
    value = document[key]
    if type(value) not in (int, float) or not abs(value) <= _MAX_NUMBER:
        raise ValueError(f"{key} must be a number of at most 2^53")
    number: float = value
    return number


def _text(document: Mapping[str, Any], key: str) -> str:
    text = document.get(key, "")
    if not isinstance(text, str):
        raise ValueError(f"{key} must be text")
    return text[:_MAX_TEXT_CHARS]


def write_answer(
    name: str | int, *, result: Mapping[str, object] | None = None, error: str = ""
) -> bytes:
    """Return the line of an answer: its result, else its error.

    Raises:
        TypeError: The result holds what JSON hasn't.
        ValueError: The result holds a number that JSON hasn't.
    """
    rest: dict[str, object] = {"error": error} if result is None else {"result": dict(result)}
    return _encode({"id": name, **rest}).encode() + b"\n"
