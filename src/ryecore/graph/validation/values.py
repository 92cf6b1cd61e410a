"""Whether values that are written down, expressions and all, fit a JSON Schema."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ryecore.graph.validation.kinds import Kind, kind_of_schema
from ryecore.graph.validation.problems import Place
from ryecore.graph.validation.scopes import Scope, kind_of_text
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy.expressions import Expression, Template

__all__ = ["Misfit", "misfits"]

_PART: Final = re.compile(r"[^.\[\]]+|\[([0-9]+)\]")

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
    """What of a value can't fit a schema.

    A literal is checked in full; an expression by its type, where that is known.

    Args:
        template: The value.
        schema: Its schema.
        root: The schema that references lead into.
        scope: What expressions know.
        coerces: Whether text and what it stands for count as one type, as inputs of directives do.

    Returns:
        Where in the value, and what is wrong.
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


def _parts(path: str) -> Place:
    """The place that a failure names, as in `items[2].name`."""
    return tuple(int(found[1]) if found[1] else found[0] for found in _PART.finditer(path))


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
        return []  # it is left out, or the schema's own matter
    if not kind.meets(wanted) and fits(kind, wanted):
        return []  # it is coerced
    beside = {
        name: root[name] for name in ("$schema", "$defs", "definitions") if root and name in root
    }
    try:
        failures = SchemaValidator(json.dumps({**beside, **schema})).failures(json.dumps(value))
    except (ValueError, TypeError):
        return []  # a schema that is broken by itself is said elsewhere
    return [((*place, *_parts(failure.path)), failure.message.rstrip(".")) for failure in failures]
