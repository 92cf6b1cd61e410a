"""`${...}`: values of a run, put into parameters and assignments. Pure, read once, linear in time.

Source: docs/reference/graph-format.md#expressions.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NoReturn, TypeAlias, cast

from attrs import field

from ryecore.convert.lines import quoted
from ryecore.frozen import frozen
from ryecore.policy.paths import ABSENT, Place, ValuePath, step
from ryecore.strict_json import FINITE_DECODER

__all__ = [
    "FILTERS",
    "BrokenExpression",
    "Expression",
    "Template",
    "read_template",
]

Context: TypeAlias = Mapping[str, object]
_Find: TypeAlias = Callable[[Context], object]


class BrokenExpression(ValueError):
    """Text that is not an expression, at a place in the value: keys, and indexes of lists.

    The message names it and says what is wrong; `why` says only what is wrong.
    """

    def __init__(self, message: str, place: Place = (), why: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.why = why


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=str)


def _as_json(value: object) -> str | None:
    """Return a value as JSON; None for what JSON can't say."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return None


FILTERS: Final[Mapping[str, Callable[[object], object]]] = {
    "json": _as_json,
    "length": lambda value: len(value) if isinstance(value, str | list | tuple | Mapping) else None,
    "keys": lambda value: list(value) if isinstance(value, Mapping) else None,
    "upper": lambda value: value.upper() if isinstance(value, str) else None,
    "lower": lambda value: value.lower() if isinstance(value, str) else None,
}
"""What a value can go through. Where a filter doesn't take its type, None comes out."""

_MAX_DEPTH: Final = 200
_MAX_BRACKETS: Final = 64
_MAX_SHOWN: Final = 60
_OPEN: Final = "${"
_OPENING: Final = re.compile(r"\$\$?\{")
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_NAME: Final = re.compile(r"[^\W\d][\w-]*")
_SEGMENT: Final = re.compile(r"[\w-]+")
_INDEX: Final = re.compile(r"-?[0-9]{1,9}(?![0-9.])")
_FILTER: Final = re.compile(r"[\w-]*")
_CONSTANTS: Final[Mapping[str, object]] = {"true": True, "false": False, "null": None}


@frozen
class Expression:
    """One expression, as the author wrote it without `${` and `}`, and its place in the template.

    `choices` are paths, and literals as JSON has them; the first that isn't None counts, and passes
    the filters in order; None passes none.
    """

    choices: tuple[ValuePath | object, ...]
    filters: tuple[str, ...] = ()
    text: str = ""
    place: Place = field(default=(), eq=False)

    @property
    def paths(self) -> tuple[ValuePath, ...]:
        """The paths that it may take its value from."""
        return tuple(choice for choice in self.choices if isinstance(choice, ValuePath))

    def value(self, context: Context) -> object:
        """Return what it stands for; None where it leads nowhere."""
        return _compiled(self)(context)

    def __str__(self) -> str:
        return f"${{{self.text}}}"


@frozen
class Template:
    """A value of a file as the author wrote it, and all expressions in it."""

    source: object
    expressions: tuple[Expression, ...] = ()
    _fill: _Find | None = field(default=None, eq=False, repr=False)

    @property
    def whole(self) -> Expression | None:
        """Its expression, where it is that alone and so keeps the value's type."""
        if len(self.expressions) == 1 and self.source == str(self.expressions[0]):
            return self.expressions[0]
        return None

    def value(self, context: Context) -> object:
        """Return what it stands for. A text that is just one expression keeps the value's type.

        Values are put in as they are: neither copied, nor looked through for expressions.
        """
        return self.source if self._fill is None else self._fill(context)


def read_template(source: object) -> Template:
    """Find the expressions of a value of a file: text, a list, a mapping, or a scalar.

    `$${` in a text stands for `${`. Raises BrokenExpression.
    """
    found: list[Expression] = []
    fill = _filler(source, (), found)
    return Template(source, tuple(found), fill)


def _filler(source: object, place: Place, found: list[Expression]) -> _Find | None:
    """Return what makes the value; None where it is the source itself."""
    if isinstance(source, str):
        return _text_filler(source, place, found) if _OPEN in source else None
    if len(place) > _MAX_DEPTH:
        raise BrokenExpression("it is nested too deeply", place)
    if isinstance(source, Mapping):
        fillers = {key: _filler(value, (*place, key), found) for key, value in source.items()}
        if not any(fillers.values()):
            return None
        keyed = [(key, fill or _constant(source[key])) for key, fill in fillers.items()]
        return lambda context: {key: fill(context) for key, fill in keyed}
    if isinstance(source, list):
        members = [_filler(value, (*place, index), found) for index, value in enumerate(source)]
        if not any(members):
            return None
        filled = [fill or _constant(value) for fill, value in zip(members, source, strict=True)]
        return lambda context: [fill(context) for fill in filled]
    return None


def _constant(value: object) -> _Find:
    return lambda context: value


def _text_filler(source: str, place: Place, found: list[Expression]) -> _Find:
    pieces: list[str | Expression] = []
    end = 0
    while opening := _OPENING.search(source, end):
        pieces.append(source[end : opening.start()])
        if opening[0] != _OPEN:
            pieces.append(_OPEN)
            end = opening.end()
            continue
        parsed = parse_expression(source, opening.end(), _SYNTAX, place)
        end = parsed.end
        text = source[opening.end() : end - len(_SYNTAX.close)]
        filters = tuple(name for name, _ in parsed.filters)
        expression = Expression(parsed.choices, filters, text, place)
        pieces.append(expression)
        found.append(expression)
    pieces.append(source[end:])
    parts = [piece for piece in pieces if piece != ""]
    if len(parts) == 1 and isinstance(parts[0], Expression):
        return _compiled(parts[0])
    if all(isinstance(part, str) for part in parts):
        return _constant("".join(cast("list[str]", parts)))
    texts = [_constant(part) if isinstance(part, str) else _as_text(part) for part in parts]
    return lambda context: "".join([cast("str", text(context)) for text in texts])


def _as_text(expression: Expression) -> _Find:
    """Write a value within a text: None as nothing, text as it is, the rest as JSON."""
    find = _compiled(expression)

    def text(context: Context) -> str:
        value = find(context)
        if value is None:
            return ""
        return value if isinstance(value, str) else _as_json(value) or ""

    return text


def _compiled(expression: Expression) -> _Find:
    """Return what finds the value of an expression."""
    finds = [
        _path_finder(choice) if isinstance(choice, ValuePath) else _constant(choice)
        for choice in expression.choices
    ]
    find = finds[0] if len(finds) == 1 else _first_of(finds)
    for name in expression.filters:
        find = _filtered(find, FILTERS[name])
    return find


def _path_finder(path: ValuePath) -> _Find:
    if len(path.parts) != 2 or isinstance(path.parts[1], int):
        return path.find
    root, key = path.parts  # as most paths are: `state.x`

    def find(context: Context) -> object:
        found = context.get(cast("str", root))
        if type(found) is dict:
            return found.get(key)
        value = step(found, key)
        return None if value is ABSENT else value

    return find


def _first_of(finds: Iterable[_Find]) -> _Find:
    finds = tuple(finds)

    def find(context: Context) -> object:
        for one in finds:
            value = one(context)
            if value is not None:
                return value
        return None

    return find


def _filtered(find: _Find, through: Callable[[object], object]) -> _Find:
    def filtered(context: Context) -> object:
        value = find(context)
        return None if value is None else through(value)

    return filtered


@frozen
class Syntax:
    """The syntax of expressions in one kind of file, with the number of arguments of each filter.

    `escape` is how the opening is written as text.
    """

    open: str
    close: str
    filters: Mapping[str, int]
    escape: str


@frozen
class ParsedExpression:
    """An expression as it was read: its choices, its filters with arguments, and where it ends."""

    choices: tuple[ValuePath | object, ...]
    filters: tuple[tuple[str, tuple[object, ...]], ...]
    end: int


def parse_expression(
    source: str, begin: int, syntax: Syntax, place: Place = ()
) -> ParsedExpression:
    """Read `choice || choice | filter(argument)` up to its closing text.

    It begins at `begin`, behind its opening. `place` says where the text stands, for a
    BrokenExpression.
    """
    return _Reader(source, begin, syntax, place).expression()


_SYNTAX: Final = Syntax(_OPEN, "}", dict.fromkeys(FILTERS, 0), "$${")


class _Reader:
    """Reads one expression, from behind what opens it; each character once."""

    def __init__(self, source: str, begin: int, syntax: Syntax, place: Place) -> None:
        self._source, self._begin, self._at, self._place = source, begin, begin, place
        self._syntax = syntax

    def expression(self) -> ParsedExpression:
        """Read the expression."""
        choices, filters = [self._choice()], []
        while self._took("||"):
            choices.append(self._choice())
        while not self._source.startswith("||", self._at) and self._took("|"):
            filters.append(self._filter())
        if not self._took(self._syntax.close):
            self._end_is_wrong(bool(filters))
        return ParsedExpression(tuple(choices), tuple(filters), self._at)

    def _choice(self) -> ValuePath | object:
        self._match(_BLANK)
        first = self._source[self._at : self._at + 1]
        if first and first in '"[{-0123456789':
            literal = self._literal()
            self._match(_BLANK)
            return literal
        name = self._match(_NAME)
        if not name:
            if not first:
                self._end_is_wrong(False)
            self._broken(
                "a path or a literal is missing"
                if first in "|}"
                else f"{first!r} begins neither a path nor a literal"
            )
        parts = self._steps(name)
        self._match(_BLANK)
        if name in _CONSTANTS:
            if len(parts) > 1:
                self._broken(f"{name} is a literal, and holds nothing")
            return _CONSTANTS[name]
        return ValuePath(tuple(parts))

    def _steps(self, root: str) -> list[str | int]:
        parts: list[str | int] = [root]
        while True:
            if self._source.startswith(".", self._at):
                self._at += 1
                parts.append(self._match(_SEGMENT) or self._broken("a key is missing behind '.'"))
            elif self._source.startswith("[", self._at):
                self._at += 1
                self._match(_BLANK)
                parts.append(self._bracketed())
                self._match(_BLANK)
                if not self._took("]"):
                    self._broken("a '[' is not closed")
            else:
                return parts

    def _bracketed(self) -> str | int:
        if self._source.startswith('"', self._at):
            return cast("str", self._literal())
        index = self._match(_INDEX)
        if not index:
            self._broken("between '[' and ']' stands a whole number, or a key in double quotes")
        return int(index)

    def _literal(self) -> object:
        begin = self._at
        try:
            literal, self._at = FINITE_DECODER.raw_decode(self._source, begin)
        except (ValueError, RecursionError):
            self._broken(f"what begins with {self._source[begin : begin + 1]!r} is not JSON")
        if sum(map(self._source[begin : self._at].count, "[{")) > _MAX_BRACKETS:
            self._broken("its literal holds too many brackets")
        return cast("object", literal)

    def _filter(self) -> tuple[str, tuple[object, ...]]:
        self._match(_BLANK)
        name, known = self._match(_FILTER), self._syntax.filters
        self._match(_BLANK)
        if name not in known:
            near = get_close_matches(name, known, n=1)
            guess = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            self._broken(
                f"{quoted(name)} is not a filter; {guess}" if name else "a filter is missing"
            )
        arguments = self._arguments() if self._took("(") else ()
        if len(arguments) != known[name]:
            self._broken(f"{name} takes {known[name]} arguments, not {len(arguments)}")
        return name, arguments

    def _arguments(self) -> tuple[object, ...]:
        arguments: list[object] = []
        while True:
            self._match(_BLANK)
            arguments.append(self._literal())
            self._match(_BLANK)
            if not self._took(","):
                break
        if not self._took(")"):
            self._broken("a '(' is not closed")
        self._match(_BLANK)
        return tuple(arguments)

    def _end_is_wrong(self, has_filters: bool) -> NoReturn:
        rest = self._source[self._at : self._at + 1]
        if not rest:
            open_, escape = self._syntax.open, self._syntax.escape
            self._broken(f"it is not closed; write {escape} where {open_} is meant as text")
        if has_filters and rest == "|":
            self._broken("choices stand before filters")
        self._broken(f'{rest!r} is not expected; a key of other characters is written as ["…"]')

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._source, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _took(self, mark: str) -> bool:
        """Return whether a mark stands here; it is passed then."""
        if not self._source.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _broken(self, why: str) -> NoReturn:
        close = self._syntax.close
        furthest = self._begin + _MAX_SHOWN
        found = self._source.find(close, self._at, furthest)
        end = furthest if found < 0 else found + len(close)
        shown = self._source[self._begin - len(self._syntax.open) : end]
        raise BrokenExpression(f"{shown!r} is not an expression: {why}", self._place, why)
