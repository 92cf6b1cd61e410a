"""`${...}`: values of a run's state, put into parameters and assignments. Pure.

Source: reference "Templating", 3.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from attrs import field, frozen

__all__ = ["FILTERS", "BrokenExpression", "Expression", "Path", "Template", "read_template"]

Context: TypeAlias = Mapping[str, object]


class BrokenExpression(ValueError):
    """Text between `${` and `}` that is no expression."""


FILTERS: Final[Mapping[str, Callable[[object], object]]] = {
    "json": lambda value: json.dumps(value, ensure_ascii=False, default=str),
    "length": lambda value: len(value) if isinstance(value, str | list | Mapping) else None,
    "keys": lambda value: list(value) if isinstance(value, Mapping) else None,
    "upper": lambda value: value.upper() if isinstance(value, str) else None,
    "lower": lambda value: value.lower() if isinstance(value, str) else None,
}
_EXPRESSION: Final = re.compile(r"\$\{([^{}]*)\}")
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(-?\d+)\]")


@frozen
class Path:
    """Where a value stands.

    Attributes:
        parts: Keys, and indexes of lists; the first is the root, such as `state`.
    """

    parts: tuple[str | int, ...]

    def find(self, context: Context) -> object:
        """The value; None where it leads nowhere."""
        found: object = context
        for part in self.parts:
            if isinstance(found, Mapping):
                found = found.get(part)
            elif isinstance(found, list | tuple):
                try:
                    found = found[int(part)]
                except (ValueError, IndexError):
                    return None
            else:
                return None
        return found


@frozen
class Expression:
    """One expression.

    Attributes:
        choices: Paths, and literals as JSON has them; the first that isn't None counts.
        filters: What it goes through, in order; None goes through none.
        text: As the author wrote it.
    """

    choices: tuple[Path | object, ...]
    filters: tuple[str, ...] = ()
    text: str = ""

    def value(self, context: Context) -> object:
        """What it stands for; None where it leads nowhere."""
        for choice in self.choices:
            found = choice.find(context) if isinstance(choice, Path) else choice
            if found is not None:
                for name in self.filters:
                    found = FILTERS[name](found)
                return found
        return None


@frozen
class Template:
    """A value of a file, with its expressions found.

    Attributes:
        source: The value as the author wrote it.
        expressions: All expressions in it.
    """

    source: object
    expressions: tuple[Expression, ...] = ()
    _fill: Callable[[Context], object] | None = field(default=None, eq=False, repr=False)

    def value(self, context: Context) -> object:
        """What it stands for. A text that is one expression alone keeps the value's type."""
        return self.source if self._fill is None else self._fill(context)


def read_template(source: object) -> Template:
    """Find the expressions of a value of a file.

    Raises:
        BrokenExpression: One can't be read.
    """
    found: list[Expression] = []
    fill = _filler(source, found)
    return Template(source, tuple(found), fill if found else None)


def _filler(source: object, found: list[Expression]) -> Callable[[Context], object]:
    if isinstance(source, str):
        return _text_filler(source, found)
    if isinstance(source, Mapping):
        parts = {key: _filler(value, found) for key, value in source.items()}
        return lambda context: {key: part(context) for key, part in parts.items()}
    if isinstance(source, list):
        members = [_filler(value, found) for value in source]
        return lambda context: [member(context) for member in members]
    return lambda context: source


def _text_filler(source: str, found: list[Expression]) -> Callable[[Context], object]:
    pieces: list[str | Expression] = []
    end = 0
    for match in _EXPRESSION.finditer(source):
        pieces += [source[end : match.start()], _read(match[1])]
        end = match.end()
    pieces.append(source[end:])
    expressions = [piece for piece in pieces if isinstance(piece, Expression)]
    if not expressions:
        return lambda context: source
    found += expressions
    if len(expressions) == 1 and expressions[0].text == source[2:-1] and source.startswith("${"):
        return expressions[0].value
    return lambda context: "".join(
        piece if isinstance(piece, str) else _as_text(piece.value(context)) for piece in pieces
    )


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _read(text: str) -> Expression:
    whole, *filters = re.split(r"(?<!\|)\|(?!\|)", text)
    unknown = [name.strip() for name in filters if name.strip() not in FILTERS]
    if unknown:
        raise BrokenExpression(f"{unknown[0]!r} is no filter; there are {', '.join(FILTERS)}")
    choices = tuple(_choice(part.strip()) for part in whole.split("||"))
    return Expression(choices, tuple(name.strip() for name in filters), text)


def _choice(text: str) -> Path | object:
    try:
        return json.loads(text)
    except ValueError:
        pass
    parts: list[str | int] = []
    end = 0
    for match in _STEP.finditer(text):
        if match.start() != end:
            break
        parts.append(match[1] if match[1] is not None else int(match[2]))
        end = match.end()
    if not parts or end != len(text) or not isinstance(parts[0], str):
        raise BrokenExpression(f"{text!r} is no path")
    return Path(tuple(parts))
