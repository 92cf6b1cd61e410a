"""The kinds of values: what is known of a value's type before a run. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import evolve

from ryecore.convert.config import did_you_mean, known_names
from ryecore.convert.lines import quoted
from ryecore.frozen import frozen

__all__ = ["ANY", "Kind", "NoSuchPart", "kind_of_schema", "kind_of_value", "union"]

_NAMES: Final = ("null", "boolean", "integer", "fraction", "string", "array", "object")
_OF_TYPE: Final[Mapping[str, frozenset[str]]] = {
    **{name: frozenset({name}) for name in _NAMES if name != "fraction"},
    "number": frozenset({"integer", "fraction"}),
}
_SAID: Final[Mapping[str, str]] = {
    "null": "null",
    "boolean": "a boolean",
    "integer": "a whole number",
    "fraction": "a number",
    "string": "text",
    "array": "a list",
    "object": "a mapping",
}
_COMBINED: Final = ("$ref", "allOf", "anyOf", "oneOf", "if", "$dynamicRef")
_MAX_REFS: Final = 20


class NoSuchPart(ValueError):
    """A path leads to a part that the value can't have."""


@frozen
class Kind:
    """The possible types of a value; `fraction` is a number that isn't whole.

    `schema` is its JSON Schema, where it has one, and `root` what references in that lead into;
    `keys` are all the keys of a mapping, where they are known. A mapping that `is_closed` has no
    keys but the properties of its schema.
    """

    names: frozenset[str] = frozenset(_NAMES)
    schema: Mapping[str, object] | None = None
    root: Mapping[str, object] | None = None
    keys: Mapping[str, "Kind"] | None = None
    is_closed: bool = False

    def __str__(self) -> str:
        names = set(self.names)
        if "fraction" in names:
            names.discard("integer")
        if len(names) >= len(_NAMES) - 1:
            return "anything"
        return " or ".join(_SAID[name] for name in _NAMES if name in names)

    def may_be(self, *types: str) -> bool:
        """Return whether it may have one of some JSON Schema types; null alone doesn't count."""
        known = self.names - {"null"}
        return not known or any(known & _OF_TYPE[name] for name in types)

    def meets(self, other: "Kind") -> bool:
        """Return whether a value of this kind may be one of another."""
        known = self.names - {"null"}
        return not known or bool(known & other.names)

    def part(self, part: str | int) -> "Kind":
        """Return the kind of the part at a key or an index; NoSuchPart says why there is none."""
        is_index = isinstance(part, int) or (part.isascii() and part.isdigit())
        if not self.may_be("array", "object"):
            raise NoSuchPart(f"is {self}, which has no parts")
        if isinstance(part, int) and not self.may_be("array"):
            raise NoSuchPart("is a mapping, which has keys and no indexes")
        if not is_index and not self.may_be("object"):
            raise NoSuchPart("is a list, which has indexes and no keys")
        if not self.may_be("object"):
            return self._item(int(part))
        if isinstance(part, int) or self.may_be("array"):
            return ANY if self.may_be("object") and self.may_be("array") else self._item(int(part))
        return self._value(part)

    def _item(self, index: int) -> "Kind":
        schema = self.schema or {}
        before = schema.get("prefixItems")
        if isinstance(before, list):
            return kind_of_schema(before[index], self.root) if 0 <= index < len(before) else ANY
        return kind_of_schema(schema.get("items"), self.root)

    def _value(self, key: str) -> "Kind":
        if self.keys is not None:
            if key not in self.keys:
                raise NoSuchPart(_no_key(key, self.keys))
            return self.keys[key]
        schema = self.schema or {}
        properties = schema.get("properties")
        declared = properties if isinstance(properties, Mapping) else {}
        if key in declared:
            return kind_of_schema(declared[key], self.root)
        others = schema.get("additionalProperties")
        is_open = any(name in schema for name in (*_COMBINED, "patternProperties"))
        if is_open or isinstance(others, Mapping):
            return ANY if is_open else kind_of_schema(others, self.root)
        if others is False or (self.is_closed and others is None and declared):
            raise NoSuchPart(_no_key(key, declared))
        return ANY


ANY: Final = Kind()


def _no_key(key: str, known: Iterable[str]) -> str:
    names = [name for name in known if not name.startswith("_")]
    return f"has no {quoted(key)}.{did_you_mean(key, names) or known_names(names)}"


def union(kinds: Iterable[Kind]) -> Kind:
    """Return the union of several kinds."""
    several = list(kinds)
    if len(several) == 1:
        return several[0]
    return Kind(frozenset[str]().union(*(kind.names for kind in several)))


def kind_of_value(value: object) -> Kind:
    """Return the kind of a value, without those of its parts."""
    match value:
        case None:
            return Kind(frozenset({"null"}))
        case bool():
            return Kind(frozenset({"boolean"}))
        case int():
            return Kind(frozenset({"integer"}))
        case float():
            return Kind(frozenset({"integer", "fraction"} if value.is_integer() else {"fraction"}))
        case str():
            return Kind(frozenset({"string"}))
        case Mapping():
            return Kind(frozenset({"object"}))
        case list() | tuple():
            return Kind(frozenset({"array"}))
    return ANY


def kind_of_schema(schema: object, root: Mapping[str, object] | None = None) -> Kind:
    """Return the kind that a JSON Schema allows; anything, where that is not plain to see."""
    for _ in range(_MAX_REFS):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            break
        schema = _referred(schema["$ref"], root)
    if not isinstance(schema, Mapping) or "$ref" in schema:
        return ANY
    kind = Kind(schema=schema, root=root)
    if "const" in schema:
        return evolve(kind, names=kind_of_value(schema["const"]).names)
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return evolve(kind, names=union(map(kind_of_value, values)).names)
    declared = schema.get("type")
    types = [declared] if isinstance(declared, str) else declared
    if isinstance(types, list) and types and all(name in _OF_TYPE for name in types):
        return evolve(kind, names=frozenset[str]().union(*(_OF_TYPE[name] for name in types)))
    return kind


def _referred(ref: str, root: Mapping[str, object] | None) -> object:
    if not ref.startswith("#/"):
        return None
    found: object = root
    for part in ref[2:].split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part.replace("~1", "/").replace("~0", "~"))
    return found
