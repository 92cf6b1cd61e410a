"""Conditions: a small language that is evaluated without I/O.

Source: docs/design/threads.md#conditions.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field

from ryecore.convert.lines import bounded, quoted
from ryecore.frozen import frozen
from ryecore.lillux.patterns import TextPattern, compile_pattern
from ryecore.policy.paths import ABSENT, parse_path

__all__ = [
    "OPERATORS",
    "AllOf",
    "AnyOf",
    "Comparison",
    "Condition",
    "Negation",
    "describe_condition",
    "read_condition",
]

OPERATORS: Final = (
    "eq", "ne", "gt", "gte", "lt", "lte", "in", "contains", "regex", "exists",
)  # fmt: skip
_OPERATOR_WORDS: Final[Mapping[str, str]] = {
    "eq": "=", "ne": "≠", "gt": ">", "gte": "≥", "lt": "<", "lte": "≤", "in": "in",
    "contains": "contains", "regex": "matches",
}  # fmt: skip
_MAX_DEPTH: Final = 32

Context = Mapping[str, object]


@frozen
class Comparison:
    """A comparison of the value at a dotted path, where `.0` and `[0]` stand for an item of a list.

    Of `exists`, the value false asks for absence. The pattern is the compiled value of `regex`.
    """

    path: str
    op: str
    value: object = None
    pattern: TextPattern | None = field(default=None, eq=False, repr=False)

    @classmethod
    def of(cls, path: str, op: str, value: object = None) -> "Comparison":
        """Make a comparison; ValueError where its operator or regular expression can't be used."""
        if not path:
            raise ValueError("a condition has no path")
        if op not in OPERATORS:
            raise ValueError(
                f"{quoted(op)} is not an operator; the operators are {', '.join(OPERATORS)}"
            )
        return cls(path, op, value, _compiled(value) if op == "regex" else None)

    def holds(self, context: Context) -> bool:
        """Return whether it holds. Unlike types have no order, and an unknown path is absent.

        A text that is too long to be searched for its regular expression raises TextTooLong.
        """
        found = parse_path(self.path).find(context, ABSENT)
        match self.op:
            case "exists":
                is_there = found is not ABSENT and found is not None
                return is_there is not (self.value is False)
            case "eq":
                return _equal(found, self.value)
            case "ne":
                return not _equal(found, self.value)
            case "in":
                return _contains(self.value, found)
            case "contains":
                return _contains(found, self.value)
            case "regex":
                return (
                    self.pattern is not None
                    and isinstance(found, str)
                    and self.pattern.is_match(found)
                )
            case _:
                return _ordered(self.op, found, self.value)

    def to_dict(self) -> dict[str, object]:
        """Return the comparison as its JSON-ready form."""
        return {"path": self.path, "op": self.op, "value": self.value}


@frozen
class AllOf:
    """A condition that holds where every part does, or there is no part."""

    parts: tuple["Condition", ...]

    def holds(self, context: Context) -> bool:
        """Return whether it holds."""
        return all(part.holds(context) for part in self.parts)

    def to_dict(self) -> dict[str, object]:
        """Return the condition as its JSON-ready form."""
        return {"all": [part.to_dict() for part in self.parts]}


@frozen
class AnyOf:
    """A condition that holds where one part does."""

    parts: tuple["Condition", ...]

    def holds(self, context: Context) -> bool:
        """Return whether it holds."""
        return any(part.holds(context) for part in self.parts)

    def to_dict(self) -> dict[str, object]:
        """Return the condition as its JSON-ready form."""
        return {"any": [part.to_dict() for part in self.parts]}


@frozen
class Negation:
    """A condition that holds where its part does not."""

    part: "Condition"

    def holds(self, context: Context) -> bool:
        """Return whether it holds."""
        return not self.part.holds(context)

    def to_dict(self) -> dict[str, object]:
        """Return the condition as its JSON-ready form."""
        return {"not": self.part.to_dict()}


Condition = Comparison | AllOf | AnyOf | Negation


def read_condition(declared: object) -> Condition:
    """Read a condition as YAML and JSON write it, or raise ValueError.

    It is `{path, op, value}`, `{all: [...]}`, `{any: [...]}` or `{not: {...}}`.
    """
    return _read(declared, 0)


def _read(declared: object, depth: int) -> Condition:
    if depth > _MAX_DEPTH:
        raise ValueError("the condition is nested too deeply")
    if not isinstance(declared, Mapping):
        raise ValueError(f"a condition is a mapping, not {type(declared).__name__}")
    keys = set(declared)
    if keys in ({"all"}, {"any"}):
        (name,) = keys
        parts = declared[name]
        if not isinstance(parts, Sequence) or isinstance(parts, str):
            raise ValueError(f"'{name}' is a list of conditions")
        read = tuple(_read(part, depth + 1) for part in parts)
        return AllOf(read) if name == "all" else AnyOf(read)
    if keys == {"not"}:
        return Negation(_read(declared["not"], depth + 1))
    unknown = sorted(map(str, keys - {"path", "op", "value"}))
    if unknown:
        raise ValueError(
            f"a condition has {bounded(', '.join(unknown))}; it is path, op and value, or one of "
            "all, any and not"
        )
    path, op = declared.get("path"), declared.get("op", "eq")
    if not isinstance(path, str) or not isinstance(op, str):
        raise ValueError("path and op of a condition are text")
    return Comparison.of(path, op, declared.get("value"))


def _compiled(pattern: object) -> TextPattern:
    if not isinstance(pattern, str):
        raise ValueError(f"a regular expression is text, not {type(pattern).__name__}")
    return compile_pattern(pattern)


def _equal(one: object, other: object) -> bool:
    """Compare by the equality of JSON: true is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return one == other


def _contains(container: object, item: object) -> bool:
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    if isinstance(container, list | tuple):
        return any(_equal(one, item) for one in container)
    return isinstance(container, Mapping) and isinstance(item, str) and item in container


def _ordered(op: str, one: object, other: object) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return _compare(op, one < other, one > other, one == other)
    if _is_number(one) and _is_number(other):
        return _compare(op, one < other, one > other, one == other)  # type: ignore[operator]
    return False


def _compare(op: str, is_less: bool, is_more: bool, is_same: bool) -> bool:
    return {
        "lt": is_less, "lte": is_less or is_same, "gt": is_more, "gte": is_more or is_same,
    }.get(op, False)  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def describe_condition(condition: Condition) -> str:
    """Return a condition in words, such as `state.score ≥ 0.8`."""
    match condition:
        case Comparison(path=path, op="exists", value=value):
            return f"{path} is absent" if value is False else f"{path} is there"
        case Comparison(path=path, op=op, value=value):
            said = json.dumps(value, ensure_ascii=False, default=str)
            return f"{path} {_OPERATOR_WORDS.get(op, op)} {said}"
        case AllOf(parts=parts):
            return " and ".join(map(_describe_part, parts)) or "always"
        case AnyOf(parts=parts):
            return " or ".join(map(_describe_part, parts)) or "never"
        case Negation(part=part):
            return f"not {_describe_part(part)}"


def _describe_part(condition: Condition) -> str:
    text = describe_condition(condition)
    return f"({text})" if isinstance(condition, AllOf | AnyOf) else text
