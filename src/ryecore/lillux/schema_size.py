"""How much a JSON Schema comes to once its references are followed. Pure.

A schema of a few hundred bytes whose parts refer to each other several times, level by level, takes
billions of steps for the smallest instance, and a validation can't be interrupted.

Source: decision 82.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

__all__ = ["MAX_SUBSCHEMAS", "check_schema_size"]

MAX_SUBSCHEMAS: Final = 1_000_000
"""How many subschemas a schema may come to, each counted wherever it is referred to."""

MAX_SUBSCHEMAS_A_VALUE: Final = 20_000
"""How many of them may be applied to one value."""

_ONE: Final = ("not", "if", "then", "else")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_MAPS: Final = ("dependentSchemas", "dependencies")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_INNER_ONE: Final = (
    "items", "additionalItems", "contains", "additionalProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_INNER_LISTS: Final = ("prefixItems", "items")
_INNER_MAPS: Final = ("properties", "patternProperties")


def check_schema_size(schema: object) -> None:
    """Refuse a schema that comes to too much.

    Args:
        schema: The schema, as parsed JSON.

    Raises:
        ValueError: It comes to more than `MAX_SUBSCHEMAS`, or is nested too deeply.
    """
    try:
        here, all_in_all = _Sizes(schema).of(schema)
    except RecursionError:
        raise ValueError("The schema is nested too deeply.") from None
    if all_in_all > MAX_SUBSCHEMAS or here > MAX_SUBSCHEMAS_A_VALUE:
        raise ValueError(
            "The schema refers to its own parts so often that it comes to more than "
            f"{MAX_SUBSCHEMAS} subschemas, or {MAX_SUBSCHEMAS_A_VALUE} of one value."
        )


class _Sizes:
    """The sizes of one document's subschemas, each counted once."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._known: dict[int, tuple[int, int]] = {}
        self._open: set[int] = set()
        self._anchors: dict[str, object] = {}
        self._find_anchors(root)

    def of(self, schema: object) -> tuple[int, int]:
        """How many subschemas are applied to one value at most, and in all."""
        if not isinstance(schema, Mapping):
            return (1, 1)
        key = id(schema)
        if key in self._known:
            return self._known[key]
        if key in self._open:  # a recursive schema: the instance bounds it
            return (1, 1)
        self._open.add(key)
        here, all_in_all = 1, 1
        widest = 0
        for one in self._beside(schema):
            its_own, with_inner = self.of(one)
            here += its_own
            all_in_all += with_inner
        for one in _inner(schema):
            its_own, with_inner = self.of(one)
            widest = max(widest, its_own)
            all_in_all += with_inner
        self._open.discard(key)
        # No more than what is refused: the numbers of a bomb have many digits.
        size = (
            min(max(here, widest), MAX_SUBSCHEMAS_A_VALUE + 1),
            min(all_in_all, MAX_SUBSCHEMAS + 1),
        )
        self._known[key] = size
        return size

    def _beside(self, schema: Mapping[str, Any]) -> Iterator[object]:
        """What is applied to the same value."""
        yield from (schema[name] for name in _ONE if name in schema)
        for name in _LISTS:
            found = schema.get(name)
            if isinstance(found, list):
                yield from found
        for name in _MAPS:
            found = schema.get(name)
            if isinstance(found, Mapping):
                yield from found.values()
        for name in _REFERENCES:
            target = schema.get(name)
            if isinstance(target, str):
                yield self._resolved(target)

    def _resolved(self, reference: str) -> object:
        """What a reference within the document leads to; None where it leads elsewhere."""
        _, _, fragment = reference.partition("#")
        if not fragment:
            return self._root
        if not fragment.startswith("/"):
            return self._anchors.get(fragment)
        found: Any = self._root
        for step in unquote(fragment).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping):
                found = found.get(name)
            elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
                found = found[int(name)]
            else:
                return None
        return found

    def _find_anchors(self, root: object) -> None:
        left = [root]
        while left:
            one = left.pop()
            if isinstance(one, Mapping):
                for name in ("$anchor", "$dynamicAnchor"):
                    anchor = one.get(name)
                    if isinstance(anchor, str):
                        self._anchors[anchor] = one
                left += one.values()
            elif isinstance(one, list):
                left += one


def _inner(schema: Mapping[str, Any]) -> Iterator[object]:
    """What is applied to values within the value."""
    yield from (schema[name] for name in _INNER_ONE if isinstance(schema.get(name), Mapping))
    for name in _INNER_LISTS:
        found = schema.get(name)
        if isinstance(found, list):
            yield from found
    for name in _INNER_MAPS:
        found = schema.get(name)
        if isinstance(found, Mapping):
            yield from found.values()
