"""The result of a tool as a model sees it: bounded text or JSON, and media.

Source: decision 48.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Set
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, TypeAlias
from uuid import UUID

import attrs

from ryecore.convert.json_text import make_encoder
from ryecore.errors import HostCapabilityMissing, StoreError, ToolExecutionError
from ryecore.frozen import frozen
from ryecore.llm.media import MediaStore, media_type_of
from ryecore.llm.parts import MediaPart, ToolResultPart
from ryecore.tools.context import ToolLimits

__all__ = [
    "OnToolEvent",
    "ToolCalled",
    "ToolOutcome",
    "ToolReturned",
    "as_json",
    "as_text",
    "has_media",
    "preview",
    "with_media",
]


@frozen(slots=False)
class ToolCalled:
    """The event that a tool is about to run, after all checks and approvals.

    Attributes:
        tool_name: The tool.
        tool_input: What the model sent; shortened text where that is long. What the host set itself
            is left out.
    """

    tool_name: str
    tool_input: Mapping[str, Any] | str


@frozen(slots=False)
class ToolReturned:
    """The event that a tool has ended.

    Attributes:
        tool_name: The tool.
        success: Whether it gave a result.
        output_summary: The result, or what went wrong, shortened.
    """

    tool_name: str
    success: bool
    output_summary: str


OnToolEvent: TypeAlias = Callable[[ToolCalled | ToolReturned], None]


@frozen(slots=False)
class ToolOutcome:
    """The outcome of a tool call.

    Attributes:
        part: What the model sees.
        value: What the tool gave, whole.
        handle: Where the whole is kept, if the model sees only some of it and it could be kept.
        duration_ms: How long the tool ran.
    """

    part: ToolResultPart
    value: object
    handle: str | None
    duration_ms: float


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_BINARY: Final = (bytes, bytearray, memoryview)


class _HoldsMedia(Exception):
    """The value holds bytes or media, which JSON can't."""


def _plain(value: object) -> object:
    """Return the JSON-ready form of a value of another type."""
    if isinstance(value, (MediaPart, *_BINARY)):
        raise _HoldsMedia
    if isinstance(value, Enum):
        return value.value
    kind: Any = type(value)
    if attrs.has(kind):
        return {one.name: getattr(value, one.name) for one in attrs.fields(kind)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return sorted(value, key=lambda one: (type(one).__name__, repr(one)))
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID | PurePath | Decimal):
        return str(value)
    dump = getattr(value, "model_dump", None)  # pydantic's, which need not be there
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    raise TypeError(f"a value of type {type(value).__qualname__}")


_encode: Final = make_encoder(ascii_only=False, spaced=True, default=_plain)


def has_media(value: object) -> bool:
    """Return whether a value is a medium itself. One that holds media is noticed by `as_text`."""
    return isinstance(value, (MediaPart, *_BINARY))


def as_json(value: object) -> Any:
    """Return the JSON form of a value, as models see it; a TypeError says what has none."""
    try:
        return json.loads(_encode(value))
    except _HoldsMedia:
        problem = "a value that holds media"
    raise TypeError(problem)


def as_text(tool_name: str, value: object, limits: ToolLimits) -> str | None:
    """Return a value as text: text as it is, all else as JSON; None if it holds media.

    A ToolExecutionError names the type that JSON can't hold, or the bound that is exceeded.
    """
    if type(value) is str:
        text = value
        if len(text) > limits.max_result_bytes:
            raise _too_large(tool_name, limits)
    else:
        if type(value) not in _SCALARS:
            _check_size(tool_name, value, limits)
        try:
            text = _encoded(tool_name, value, _encode)
        except _HoldsMedia:
            return None
    if not text.isascii():
        text = _whole_characters(text)
    return text


def with_media(
    tool_name: str, value: object, store: MediaStore | None, limits: ToolLimits
) -> tuple[str, tuple[MediaPart, ...]]:
    """Return the JSON of a value that holds media, in which their handles stand, and the media.

    The text is empty if the value is nothing but a medium.
    """
    media: list[MediaPart] = []

    def keep(one: object) -> object:
        if isinstance(one, _BINARY):
            one = _kept(tool_name, bytes(one), store, limits)
        if isinstance(one, MediaPart):
            media.append(one)
            return {"media": one.handle, "media_type": one.media_type, "size_bytes": one.size_bytes}
        return _plain(one)

    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=keep)
    text = _encoded(tool_name, value, encoder.encode)
    return ("" if has_media(value) else _whole_characters(text)), tuple(media)


def preview(text: str, size: int, handle: str | None) -> str:
    """Return the head and the tail of a long text, `size` characters, and the whole's handle."""
    head, tail = size - size // 4, size // 4
    left_out = f"{len(text) - head - tail:,} of {len(text):,} characters are left out"
    where = f"the whole is kept as {handle}" if handle else "they were not kept"
    return f"{text[:head]}\n[… {left_out}; {where} …]\n{text[len(text) - tail :]}"


def _encoded(tool_name: str, value: object, encode: Callable[[Any], str]) -> str:
    problem = ""
    try:
        return encode(value)
    except (_HoldsMedia, ToolExecutionError, HostCapabilityMissing):
        raise
    except RecursionError:
        problem = "a value that is nested too deeply"
    except TypeError as error:
        problem = str(error)[:200]
    except ValueError as error:
        problem = f"a value that JSON can't hold ({str(error)[:100]})"
    except Exception as error:  # from a property or a model of the tool's own
        problem = f"a value that can't be read ({type(error).__name__})"
    raise ToolExecutionError(
        f"The tool {tool_name} returned {problem}, which can't be sent to a model.",
        next_step="Return text, numbers, booleans, None, lists and mappings of these, "
        "dataclasses, or bytes.",
        tool_name=tool_name,
    )


def _check_size(tool_name: str, value: object, limits: ToolLimits) -> None:
    """Refuse early what would take long to write, be it one list held a thousand times over."""
    waiting, seen, size = [value], 0, 0
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is str:
            size += len(one)  # type: ignore[arg-type]
        elif kind is dict:
            seen += len(one)  # type: ignore[arg-type]
            waiting.extend(one.values())  # type: ignore[attr-defined]
        elif kind is list or kind is tuple:
            seen += len(one) + 1  # type: ignore[arg-type]
            waiting.extend(one)  # type: ignore[arg-type]
        if seen > limits.max_result_values or size > limits.max_result_bytes:
            raise _too_large(tool_name, limits)


def _too_large(tool_name: str, limits: ToolLimits) -> ToolExecutionError:
    return ToolExecutionError(
        f"The tool {tool_name} returned more than {limits.max_result_bytes:,} bytes or "
        f"{limits.max_result_values:,} values.",
        next_step="Ask it for less at once.",
        tool_name=tool_name,
    )


def _whole_characters(text: str) -> str:
    """Return the text, with a mark in place of each half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
    return text


def _kept(
    tool_name: str, content: bytes, store: MediaStore | None, limits: ToolLimits
) -> MediaPart:
    if store is None:
        raise HostCapabilityMissing(
            f"The tool {tool_name} returned bytes, and the host has no media store.",
            tool_name=tool_name,
            capability="media",
        )
    if len(content) > limits.max_result_bytes:
        raise _too_large(tool_name, limits)
    try:
        return store.put(content, media_type_of(content))
    except StoreError:
        pass
    raise ToolExecutionError(
        f"The bytes that the tool {tool_name} returned could not be stored.", tool_name=tool_name
    )
