"""Prompt templates: `{{ path | filter }}`, put in once; what is put in is never read again.

Source: docs/design/agent-node.md#messages; decision 60.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Self, TypeAlias

from attrs import field, frozen

from ryecore.errors import ConfigError

__all__ = ["PromptTemplate", "ReadFile", "ReadFileMissing", "TemplateMiss", "mentions_secrets"]

ReadFile: TypeAlias = Callable[[str], Awaitable[str]]

ROOTS: Final = ("inputs", "ctx", "run")
_OPEN, _CLOSE = "{{", "}}"
_PATH: Final = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d+\])*")
_STEP: Final = re.compile(r"[\w-]+")
_FILTER: Final = re.compile(r"([a-z_]+)\s*(?:\((.*)\))?", re.DOTALL)
# A quoted text may hold braces and bars. A quote that nothing closes ends the match, so that each
# character is looked at once.
_INSIDE: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|(?!\}\})[^"])*', re.DOTALL)
_PIECE: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^|"])+', re.DOTALL)
_SECRETS: Final = re.compile(r"\bsecrets\b")
_MAX_STEP_CHARS: Final = 9
_SHOWN_CHARS: Final = 80

_ABSENT: Final = object()


class TemplateMiss(Exception):
    """A template can't be filled in: a path leads nowhere, or a value doesn't fit its filter."""


class ReadFileMissing(Exception):
    """A template reads a file, and the host doesn't allow it."""


def mentions_secrets(text: str) -> bool:
    """Whether a text holds a `{{ … secrets … }}`."""
    return any(
        _SECRETS.search(piece, begin) is not None
        for piece in text.split("}")
        if (begin := piece.find(_OPEN)) >= 0
    )


@frozen
class _Slot:
    """One `{{ … }}`: where its value comes from, and what is done with it."""

    path: str
    literal: object = field(default=_ABSENT, repr=False)
    filters: tuple[tuple[str, tuple[object, ...]], ...] = ()


@frozen
class PromptTemplate:
    """A text with places for values.

    Attributes:
        source: The text as it was written.
    """

    source: str
    _pieces: tuple[str | _Slot, ...] = field(repr=False, eq=False)

    @classmethod
    def parse(cls, source: str) -> Self:
        """Read a template.

        Args:
            source: Text with `{{ inputs.x }}`, `{{ ctx.x }}`, `{{ run.outputs.node.x }}` and
                filters behind bars: `json`, `trim`, `upper`, `lower`, `length`, `first`, `last`,
                `join(", ")`, `default("…")`, `read_file`. `{{ "{{" }}` stands for two braces.

        Raises:
            ConfigError: It can't be read; the message says where.
        """
        return cls(source, tuple(_parse(source)))

    @property
    def paths(self) -> tuple[tuple[tuple[str, ...], bool], ...]:
        """The paths that it puts in, step by step, and whether each has a default."""
        return tuple(
            (tuple(_STEP.findall(one.path)), any(name == "default" for name, _ in one.filters))
            for one in self._pieces
            if isinstance(one, _Slot) and one.literal is _ABSENT
        )

    async def render(self, scope: Mapping[str, object], read_file: ReadFile | None) -> str:
        """The text with its values.

        Args:
            scope: What paths lead into: `inputs`, `ctx` and `run`.
            read_file: Reads a file for a prompt; None where the host doesn't allow it.

        Raises:
            TemplateMiss: A path leads nowhere, or a value doesn't fit its filter.
            ReadFileMissing: It reads a file, and the host doesn't allow it.
        """
        texts: list[str] = []
        for piece in self._pieces:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                texts.append(_as_text(await _value(piece, scope, read_file)))
        return "".join(texts)


def _parse(source: str) -> list[str | _Slot]:
    pieces: list[str | _Slot] = []
    at = 0
    while True:
        begin = source.find(_OPEN, at)
        if begin < 0:
            pieces.append(source[at:])
            return [piece for piece in pieces if piece != ""]
        pieces.append(source[at:begin])
        inside = _INSIDE.match(source, begin + len(_OPEN))
        end = inside.end() if inside else begin
        if inside is None or not source.startswith(_CLOSE, end):
            raise _broken(source, begin, "is not closed")
        pieces.append(_slot(source, begin, inside[0]))
        at = end + len(_CLOSE)


def _slot(source: str, begin: int, inside: str) -> _Slot:
    head, *rest = [piece.strip() for piece in _PIECE.findall(inside)] or [""]
    filters = tuple(_filter(source, begin, text) for text in rest)
    if head.startswith('"'):
        return _Slot(head, _json(source, begin, head), filters)
    if not _PATH.fullmatch(head):
        raise _broken(source, begin, f"holds no path: {_short(head)}")
    root = _STEP.match(head)
    if root is None or root[0] not in ROOTS:
        raise _broken(source, begin, f"begins with none of {', '.join(ROOTS)}: {_short(head)}")
    return _Slot(head, _ABSENT, filters)


def _filter(source: str, begin: int, text: str) -> tuple[str, tuple[object, ...]]:
    found = _FILTER.fullmatch(text)
    if found is None or (found[1] not in _FILTERS and found[1] != "read_file"):
        known = ", ".join(sorted([*_FILTERS, "read_file"]))
        raise _broken(source, begin, f"has an unknown filter {_short(text)}; there are {known}")
    arguments = _json(source, begin, f"[{found[2]}]") if found[2] else []
    counts = _COUNTS.get(found[1], 0)
    if not isinstance(arguments, list) or len(arguments) != counts:
        raise _broken(source, begin, f"gives {found[1]} not the {counts} arguments that it takes")
    return found[1], tuple(arguments)


def _json(source: str, begin: int, text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        raise _broken(source, begin, f"holds what is no JSON: {_short(text)}") from None
    return value


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")


def _broken(source: str, at: int, why: str) -> ConfigError:
    line = source.count("\n", 0, at) + 1
    column = at - source.rfind("\n", 0, at)
    return ConfigError(
        f"The prompt template is broken: the '{{{{' at line {line}, column {column} {why}.",
        next_step='Correct it; two braces that are meant as text are written {{ "{{" }}.',
        line=line,
        column=column,
    )


async def _value(slot: _Slot, scope: Mapping[str, object], read_file: ReadFile | None) -> object:
    value = slot.literal if slot.literal is not _ABSENT else _lookup(slot.path, scope)
    for name, arguments in slot.filters:
        if name == "default":
            value = arguments[0] if value is _ABSENT or value is None else value
            continue
        if value is _ABSENT:
            break
        if name == "read_file":
            if read_file is None:
                raise ReadFileMissing
            if not isinstance(value, str):
                raise TemplateMiss(f"{slot.path} is no path of a file.")
            value = await read_file(value)
            continue
        try:
            value = _FILTERS[name](value, *arguments)
        except (TypeError, IndexError, ValueError, AttributeError):
            raise TemplateMiss(
                f"{slot.path} is {type(value).__name__}, which {name} can't be used on."
            ) from None
    if value is _ABSENT:
        raise TemplateMiss(f"{slot.path} leads nowhere.{_there_is(slot.path, scope)}")
    return value


def _lookup(path: str, scope: Mapping[str, object]) -> object:
    value: object = scope
    for step in _STEP.findall(path):
        if isinstance(value, Mapping):
            value = value.get(step, _ABSENT)
        elif isinstance(value, Sequence) and not isinstance(value, str) and _is_index(step):
            value = value[int(step)] if int(step) < len(value) else _ABSENT
        else:
            return _ABSENT
        if value is _ABSENT:
            return _ABSENT
    return value


def _is_index(step: str) -> bool:
    return step.isdecimal() and len(step) <= _MAX_STEP_CHARS


def _there_is(path: str, scope: Mapping[str, object]) -> str:
    root = _STEP.findall(path)[0]
    found = scope.get(root)
    names = sorted(str(name)[:_SHOWN_CHARS] for name in found) if isinstance(found, Mapping) else []
    return f" {root} has: {', '.join(names[:20]) or 'nothing'}."


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else _as_json(value)


def _as_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        raise TemplateMiss(f"A value of type {type(value).__name__} can't be written.") from None


def _items(value: object) -> Sequence[object]:
    if not isinstance(value, Sequence):
        raise TypeError
    return value


def _length(value: object) -> int:
    if not isinstance(value, str | Sequence | Mapping):
        raise TypeError
    return len(value)


_FILTERS: Final[dict[str, Callable[..., object]]] = {
    "default": lambda value, _: value,
    "first": lambda value: _items(value)[0],
    "join": lambda value, between: between.join(map(_as_text, _items(value))),
    "json": _as_json,
    "last": lambda value: _items(value)[-1],
    "length": _length,
    "lower": lambda value: _as_text(value).lower(),
    "trim": lambda value: _as_text(value).strip(),
    "upper": lambda value: _as_text(value).upper(),
}
_COUNTS: Final = {"default": 1, "join": 1}
