"""The values that an expression knows, and whether what it makes fits a JSON Schema. Pure."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from ryecore.convert.lines import Place
from ryecore.frozen import frozen
from ryecore.graph.model import NODE_KINDS
from ryecore.graph.validation.value_types import (
    ANY,
    Kind,
    NoSuchPart,
    kind_of_schema,
    kind_of_value,
    union,
)
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy.expressions import Expression, Template
from ryecore.policy.paths import ValuePath, parse_path

__all__ = ["BUILT_IN", "Known", "Misfit", "Scope", "Writer", "filtered", "kind_of_text", "misfits"]

BUILT_IN: Final = ("_now", "_timestamp", "_last_error")
_TEXT: Final = Kind(frozenset({"string"}))
_WHOLE: Final = Kind(frozenset({"integer"}))
_LIST: Final = Kind(frozenset({"array"}))
_OBJECT: Final = frozenset({"object"})
_ERROR: Final[Mapping[str, Kind]] = {"node": _TEXT, "error": _TEXT, "code": _TEXT}
_BUILT_IN_KINDS: Final[Mapping[str, Kind]] = {
    "_now": _TEXT,
    "_timestamp": _WHOLE,
    "_last_error": Kind(_OBJECT | {"null"}, keys=_ERROR),
}
_OF_FOREACH: Final = Kind(
    _OBJECT,
    keys={
        "items": _LIST,
        "count": _WHOLE,
        "failed": _WHOLE,
        "errors": Kind(
            frozenset({"array"}),
            schema={
                "items": {
                    "type": "object",
                    "properties": {
                        "index": {"type": "integer"},
                        "error": {"type": "string"},
                        "code": {"type": "string"},
                    },
                    "additionalProperties": False,
                }
            },
        ),
    },
)
_FILTERED: Final[Mapping[str, Kind]] = {
    "json": _TEXT,
    "length": _WHOLE,
    "keys": Kind(frozenset({"array"}), schema={"items": {"type": "string"}}),
    "upper": _TEXT,
    "lower": _TEXT,
}
_TAKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "length": ("string", "array", "object"),
    "keys": ("object",),
    "upper": ("string",),
    "lower": ("string",),
}


@frozen
class Writer:
    """What a node writes into the state: the keys that it assigns, and its collected results."""

    type: str
    assign: Mapping[str, Template]
    collect: str | None


@frozen
class Scope:
    """The names that an expression may begin with, with their kinds.

    `absent` says why a name that is known elsewhere isn't known here.
    """

    roots: Mapping[str, Kind]
    absent: Mapping[str, str]

    def kind(self, path: tuple[str | int, ...]) -> Kind:
        """Return the kind of what stands at a path; NoSuchPart says why there can't be any."""
        root = str(path[0])
        kind = self.roots[root]
        for at, part in enumerate(path[1:], start=1):
            try:
                kind = kind.part(part)
            except NoSuchPart as problem:
                raise NoSuchPart(f"{ValuePath(path[:at])} {problem}") from None
        return kind

    def kind_of(self, expression: Expression) -> Kind:
        """Return the kind of an expression's value; anything where it can't have one."""
        kinds = []
        for choice in expression.choices:
            if not isinstance(choice, ValuePath):
                kinds.append(kind_of_value(choice))
                continue
            try:
                kinds.append(self.kind(choice.parts))
            except (KeyError, NoSuchPart):
                kinds.append(ANY)
        kind = union(kinds)
        for name in expression.filters:
            kind = filtered(name)
        return kind


def filtered(name: str) -> Kind:
    """Return the kind of a filter's output."""
    return _FILTERED[name]


def takes(name: str, kind: Kind) -> bool:
    """Return whether a filter takes a kind of value."""
    return name not in _TAKEN or kind.may_be(*_TAKEN[name])


def kind_of_text(text: str, expressions: Iterable[Expression], scope: Scope) -> Kind:
    """Return the kind of a text's value: its expression's, where it has nothing else."""
    for expression in expressions:
        return scope.kind_of(expression) if text == str(expression) else _TEXT
    return _TEXT


@frozen
class Known:
    """What is known of a graph's inputs and of its state, with every key that is ever in it."""

    inputs: Kind
    state: Kind
    state_schema: Mapping[str, object] | None = None

    @classmethod
    def of(
        cls,
        input_schema: Mapping[str, object] | None,
        state: Mapping[str, object],
        state_schema: Mapping[str, object] | None,
        writers: Iterable[Writer],
    ) -> "Known":
        """Return what is known of a graph: by its schemas, else by its initial state.

        An initial null says nothing about a type. The values that nodes set count too, where their
        types are known.
        """
        inputs = ANY
        if input_schema is not None:
            declared = kind_of_schema(input_schema, input_schema)
            inputs = Kind(_OBJECT, declared.schema, declared.root, is_closed=True)
        properties = (state_schema or {}).get("properties")
        by_schema = {
            name: kind_of_schema(one, state_schema)
            for name, one in (properties if isinstance(properties, Mapping) else {}).items()
        }
        by_key: dict[str, list[Writer]] = {}
        for one in writers:
            for name in (*one.assign, one.collect):
                if name is not None:
                    by_key.setdefault(name, []).append(one)
        first = dict.fromkeys(by_key, ANY) | {
            name: ANY if value is None else _loose(kind_of_value(value))
            for name, value in state.items()
        }
        before = cls(inputs, Kind(_OBJECT, keys={**first, **by_schema, **_BUILT_IN_KINDS}))
        widened = {
            name: _widened(name, state.get(name), by_key.get(name, ()), before)
            for name in first
            if name not in by_schema
        }
        keys = {**widened, **by_schema, **_BUILT_IN_KINDS}
        return cls(inputs, Kind(_OBJECT, keys=keys), state_schema)

    def before(self, *, as_: str | None = None) -> Scope:
        """Return what is known before a node has run, where `as_` names a foreach's member."""
        roots = {"inputs": self.inputs, "state": self.state}
        if as_ is not None:
            roots[as_] = ANY
        return Scope(roots, {"result": "there is no result before the node has run"})

    def after(self, type_: str, as_: str | None = None) -> Scope:
        """Return what is known once a node has run."""
        roots = {"inputs": self.inputs, "state": self.state}
        absent = {}
        kind = NODE_KINDS[type_]
        if kind.has_result:
            roots["result"] = _OF_FOREACH if kind.has_members else ANY
        else:
            absent["result"] = f"a {type_} has no result"
        if as_ is not None:
            absent[as_] = "it is known only in the foreach's action"
        return Scope(roots, absent)


def _loose(kind: Kind) -> Kind:
    """Return the kinds that may replace a value without a schema: a 0 may become a 0.5."""
    return Kind(kind.names | {"fraction"}) if "integer" in kind.names else kind


def _widened(name: str, value: object, writers: Iterable[Writer], known: Known) -> Kind:
    """Return the kind of a key of the state: its initial one, and those that nodes set."""
    kinds = [] if value is None else [_loose(kind_of_value(value))]
    for writer in writers:
        if writer.collect == name:
            kinds.append(_LIST)
        template = writer.assign.get(name)
        if template is None:
            continue
        if isinstance(template.source, str):
            kind = kind_of_text(template.source, template.expressions, known.after(writer.type))
        else:
            kind = kind_of_value(template.source)
        if kind.names == ANY.names:
            if value is None:
                return ANY
            continue
        kinds.append(_loose(Kind(kind.names)))
    return union(kinds) if kinds else ANY


Misfit: TypeAlias = tuple[Place, str]
_Expressions: TypeAlias = Mapping[Place, list[Expression]]


def misfits(
    template: Template,
    schema: object,
    root: Mapping[str, object] | None,
    scope: Scope,
    *,
    coerces: bool = False,
) -> list[Misfit]:
    """Find the parts of a value that can't fit a schema: where they are, and what is wrong.

    A literal is checked in full; an expression by its type, where that is known. References in the
    schema lead into `root`. With `coerces` text is converted to the wanted type.
    """
    expressions: dict[Place, list[Expression]] = {}
    for one in template.expressions:
        expressions.setdefault(one.place, []).append(one)

    def fits(kind: Kind, wanted: Kind) -> bool:
        scalar = coerces and (kind.may_be("string") or wanted.may_be("string"))
        return kind.meets(wanted) or scalar

    return _misfits(template.source, (), schema, root, scope, expressions, fits)


def _misfits(
    value: object,
    place: Place,
    schema: object,
    root: Mapping[str, object] | None,
    scope: Scope,
    expressions: _Expressions,
    fits: Callable[[Kind, Kind], bool],
) -> list[Misfit]:
    wanted = kind_of_schema(schema, root)
    if isinstance(value, str) and place in expressions:
        kind = kind_of_text(value, expressions[place], scope)
        return [] if fits(kind, wanted) else [(place, f"{value} is {kind}, and not {wanted}")]
    if not _holds_expressions(place, expressions):
        if isinstance(value, str) and "$${" in value:
            return []
        return _literal(value, place, wanted.schema, root, fits)
    if isinstance(value, Mapping):
        if not wanted.may_be("object"):
            return [(place, f"it is a mapping, and not {wanted}")]
        return [
            found
            for key, one in value.items()
            for found in _misfits(
                one, (*place, key), _property(wanted, key), root, scope, expressions, fits
            )
        ]
    if isinstance(value, list):
        if not wanted.may_be("array"):
            return [(place, f"it is a list, and not {wanted}")]
        items = (wanted.schema or {}).get("items")
        return [
            found
            for index, one in enumerate(value)
            for found in _misfits(one, (*place, index), items, root, scope, expressions, fits)
        ]
    return []


def _property(kind: Kind, key: str) -> object:
    properties = (kind.schema or {}).get("properties")
    return properties.get(key) if isinstance(properties, Mapping) else None


def _holds_expressions(place: Place, expressions: _Expressions) -> bool:
    return any(one[: len(place)] == place for one in expressions)


def _literal(
    value: object,
    place: Place,
    schema: Mapping[str, object] | None,
    root: Mapping[str, object] | None,
    fits: Callable[[Kind, Kind], bool],
) -> list[Misfit]:
    if schema is None:
        return []
    wanted = kind_of_schema(schema, root)
    kind = kind_of_schema({"const": value})
    if kind.names == {"null"}:
        return []  # a parameter that is null is left out; a null in the state is checked elsewhere
    if not kind.meets(wanted) and fits(kind, wanted):
        return []  # it is coerced
    beside = {
        name: root[name] for name in ("$schema", "$defs", "definitions") if root and name in root
    }
    try:
        failures = SchemaValidator(json.dumps({**beside, **schema})).failures(json.dumps(value))
    except (ValueError, TypeError):
        return []  # a broken schema is reported elsewhere
    return [
        ((*place, *parse_path(failure.path).parts), failure.message.rstrip("."))
        for failure in failures
    ]
