"""Python types and docstrings as JSON Schema, and JSON values as the declared types."""

import dataclasses
import json
import re
import types
from collections import abc
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import attrs
from attrs import field

from ryecore.frozen import frozen
from ryecore.lillux.schema import SchemaValidator
from ryecore.tools.pydantic_models import (
    is_pydantic_model,
    pydantic_schema,
    pydantic_validation,
)

__all__ = ["Convert", "DocString", "Form", "form_of", "json_default", "read_docstring", "value_as"]

_SECTION: Final = re.compile(
    r"(?:Args|Arguments|Attributes|Examples?|Keyword Args|Keyword Arguments|Notes?|Parameters"
    r"|Raises|References|Returns?|See Also|Source|Todo|Warnings?|Warns|Yields?):[ \t]*\S*.*"
)
_ARGUMENTS: Final = ("Args:", "Arguments:", "Attributes:", "Parameters:", "Keyword Args:")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^:]*\))?:\s*(.*)")


@frozen
class DocString:
    """The parsed contents of a docstring: the text before its sections, and its arguments."""

    description: str = ""
    arguments: dict[str, str] = field(factory=dict)


def read_docstring(text: str | None) -> DocString:
    """Parse a docstring. Text that isn't in Google's style belongs to the description."""
    if not text:
        return DocString()
    lines = cleandoc(text).splitlines()
    starts = [at for at, line in enumerate(lines) if _SECTION.fullmatch(line)]
    description = lines[: starts[0]] if starts else lines
    arguments: dict[str, str] = {}
    for start, end in pairwise([*starts, len(lines)]):
        if lines[start].strip() in _ARGUMENTS:
            arguments |= _entries(lines[start + 1 : end])
    return DocString("\n".join(description).strip(), arguments)


def _entries(lines: list[str]) -> dict[str, str]:
    entries: dict[str, str] = {}
    name, indent = "", 0
    for line in lines:
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if not text:
            continue
        if depth == 0:
            break  # the section has ended, and prose follows
        found = _ENTRY.fullmatch(text)
        if found is not None and (not name or depth <= indent):
            name, indent = found[1], depth
            entries[name] = found[2]
        elif name:
            entries[name] = f"{entries[name]} {text}".strip()
    return entries


Convert = Callable[[Any], Any]


@frozen
class Form:
    """The JSON form of a type: its schema, and the conversion of a fitting value, if needed."""

    schema: Mapping[str, Any]
    convert: Convert | None = None


def _integer(value: Any) -> int:
    return int(value) if type(value) is float else value  # JSON's 1.0 is an integer


_SIMPLE: Final[Mapping[Any, Form]] = {
    Any: Form({}),
    object: Form({}),
    str: Form({"type": "string"}),
    int: Form({"type": "integer"}, _integer),
    float: Form({"type": "number"}, float),
    bool: Form({"type": "boolean"}),
    None: Form({"type": "null"}),
    type(None): Form({"type": "null"}),
    list: Form({"type": "array"}),
    dict: Form({"type": "object"}),
    tuple: Form({"type": "array"}, tuple),
    set: Form({"type": "array", "uniqueItems": True}, set),
    frozenset: Form({"type": "array", "uniqueItems": True}, frozenset),
    Path: Form({"type": "string"}, Path),
    date: Form({"type": "string", "format": "date"}, date.fromisoformat),
    datetime: Form({"type": "string", "format": "date-time"}, datetime.fromisoformat),
    UUID: Form({"type": "string", "format": "uuid"}, UUID),
    Decimal: Form({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$"}, Decimal),
}
_LISTS: Final = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_SETS: Final = (set, abc.Set, abc.MutableSet)
_MAPPINGS: Final = (dict, abc.Mapping, abc.MutableMapping)


def form_of(annotation: Any, where: str, inside: tuple[type, ...] = ()) -> Form:
    """Return the form of a resolved annotation; the TypeError of an unsupported one names `where`.

    `inside` are the classes around it, to detect cycles.
    """
    try:
        simple = _SIMPLE.get(annotation)
    except TypeError:  # it can't be hashed, such as Literal[[]]
        simple = None
    if simple is not None:
        return simple
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _annotated(annotation, where, inside)
    if origin in (Required, NotRequired) or _is_read_only(origin):
        return form_of(arguments[0], where, inside)
    if origin is Literal:
        return _choice(arguments, None, where)
    if origin in (Union, types.UnionType):
        return _union([form_of(one, where, inside) for one in arguments])
    if origin is tuple:
        return _tuple(arguments, where, inside)
    if origin in _LISTS and len(arguments) == 1:
        return _array(form_of(arguments[0], where, inside), list, {})
    if origin in (*_SETS, frozenset) and len(arguments) == 1:
        _check_hashable(arguments[0], where)
        kind = frozenset if origin is frozenset else set
        return _array(form_of(arguments[0], where, inside), kind, {"uniqueItems": True})
    if origin in _MAPPINGS and len(arguments) == 2 and arguments[0] in (str, Any):
        return _mapping(form_of(arguments[1], where, inside))
    if isinstance(annotation, type):
        if annotation in inside:
            raise TypeError(f"{where}: {annotation.__qualname__} holds itself.")
        if issubclass(annotation, Enum):
            return _choice([one.value for one in annotation], annotation, where)
        if issubclass(annotation, dict) and hasattr(annotation, "__required_keys__"):
            return _typed_dict(annotation, where, (*inside, annotation))
        if is_pydantic_model(annotation):
            return Form(pydantic_schema(annotation, where), pydantic_validation(annotation))
        if attrs.has(annotation) or dataclasses.is_dataclass(annotation):
            return _record(annotation, where, (*inside, annotation))
    alias: Any = annotation
    if type(alias).__name__ == "TypeAliasType":
        return form_of(alias.__value__, where, inside)
    if isinstance(annotation, NewType):
        return form_of(annotation.__supertype__, where, inside)
    if isinstance(annotation, TypeVar) and annotation.__bound__ is not None:
        return form_of(annotation.__bound__, where, inside)
    raise TypeError(f"{where}: a model can't be shown the type {_named(annotation)}.")


def _check_hashable(member: Any, where: str) -> None:
    """Refuse the type of a set's members whose values no set can hold."""
    kind = get_origin(member) or member
    if isinstance(kind, type) and kind.__hash__ is None:
        raise TypeError(
            f"{where}: a set can't hold {_named(member)}, which has no hash: freeze its class, or "
            "declare a list."
        )


def value_as(kind: Any, value: Any, where: str) -> Any:
    """Return a JSON value as a value of a type; the ValueError lists all that doesn't fit.

    Properties that the type doesn't name are left out. The TypeError of an unsupported type names
    `where`.
    """
    form = form_of(kind, where)
    named = form.schema.get("properties")
    if form.schema.get("additionalProperties") is False and isinstance(value, Mapping):
        value = {name: one for name, one in value.items() if name in (named or {})}
    failures = SchemaValidator(json.dumps(form.schema)).failures(json.dumps(value))
    if failures:
        raise ValueError("; ".join(map(str, failures)))
    return value if form.convert is None else form.convert(value)


def json_default(value: object) -> Mapping[str, Any]:
    """Return the `default` of a schema; an empty mapping if the value isn't JSON."""
    if isinstance(value, Enum):
        value = value.value
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return {}
    return {"default": list(value) if isinstance(value, tuple) else value}


def _named(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _annotated(annotation: Any, where: str, inside: tuple[type, ...]) -> Form:
    inner, *notes = get_args(annotation)
    form = form_of(inner, where, inside)
    text = next((note for note in notes if isinstance(note, str)), None)
    return form if text is None else Form({**form.schema, "description": text}, form.convert)


def _choice(values: Iterable[Any], kind: type[Enum] | None, where: str) -> Form:
    listed = [one.value if isinstance(one, Enum) else one for one in values]
    if not listed or not all(type(one) in (str, int, float, bool, type(None)) for one in listed):
        raise TypeError(f"{where}: a choice must be between text, numbers, booleans and None.")
    schema: dict[str, Any] = {"enum": listed}
    for python, name in ((str, "string"), (int, "integer")):
        if all(type(one) is python for one in listed):
            schema = {"type": name, "enum": listed}
    if kind is not None:
        return Form(schema, kind)
    enums = {one.value: one for one in values if isinstance(one, Enum)}
    return Form(schema, (lambda value: enums.get(value, value)) if enums else None)


def _union(members: list[Form]) -> Form:
    plain = [one.schema for one in members]
    if all(set(one) == {"type"} and isinstance(one["type"], str) for one in plain):
        schema: Mapping[str, Any] = {"type": list(dict.fromkeys(one["type"] for one in plain))}
    else:
        schema = {"anyOf": plain}
    converted = [one for one in members if one.convert is not None]
    if not converted:
        return Form(schema)
    checked = [(SchemaValidator(json.dumps(one.schema)), one.convert) for one in members]

    def convert(value: Any) -> Any:
        text = json.dumps(value)
        problem: Exception | None = None
        for validator, make in checked:
            if not validator.failures(text):
                if make is None:
                    return value
                try:
                    return make(value)
                except (TypeError, ValueError) as error:
                    problem = problem or error
        raise problem or ValueError("it fits none of the types")

    return Form(schema, convert)


def _array(item: Form, kind: Callable[[Iterable[Any]], Any], more: Mapping[str, Any]) -> Form:
    schema = {"type": "array", "items": item.schema, **more}
    make = item.convert
    if make is None:
        return Form(schema, None if kind is list else kind)
    return Form(schema, lambda values: kind(map(make, values)))


def _tuple(arguments: tuple[Any, ...], where: str, inside: tuple[type, ...]) -> Form:
    if len(arguments) == 2 and arguments[1] is ...:
        return _array(form_of(arguments[0], where, inside), tuple, {})
    forms = [form_of(one, where, inside) for one in arguments]
    schema = {
        "type": "array",
        "prefixItems": [one.schema for one in forms],
        "minItems": len(forms),
        "maxItems": len(forms),
    }
    makers = [one.convert or _same for one in forms]
    return Form(
        schema, lambda values: tuple(make(v) for make, v in zip(makers, values, strict=True))
    )


def _same(value: Any) -> Any:
    return value


def _mapping(value: Form) -> Form:
    schema = {"type": "object", "additionalProperties": value.schema}
    make = value.convert
    if make is None:
        return Form(schema)
    return Form(schema, lambda found: {key: make(one) for key, one in found.items()})


def _hints(kind: type, where: str) -> Mapping[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except Exception as error:  # whatever an annotation's text evaluates to
        raise TypeError(
            f"{where}: the types of {kind.__qualname__} are unknown: {error}."
        ) from None


def _object(
    fields: Mapping[str, Form], required: Iterable[str], said: Mapping[str, str]
) -> dict[str, Any]:
    properties = {
        name: {**form.schema, "description": said[name]}
        if said.get(name) and "description" not in form.schema
        else form.schema
        for name, form in fields.items()
    }
    listed = [name for name in fields if name in set(required)]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if listed:
        schema["required"] = listed
    return {**schema, "additionalProperties": False}


def _typed_dict(kind: Any, where: str, inside: tuple[type, ...]) -> Form:
    hints = _hints(kind, where)
    fields = {name: form_of(hints[name], f"{where}.{name}", inside) for name in hints}
    said = read_docstring(kind.__doc__).arguments
    makers = {name: form.convert for name, form in fields.items() if form.convert is not None}
    required = [name for name in hints if _is_required(hints[name], name in kind.__required_keys__)]
    schema = _object(fields, required, said)
    if not makers:
        return Form(schema)
    return Form(
        schema,
        lambda found: {
            name: makers[name](value) if name in makers else value for name, value in found.items()
        },
    )


def _is_required(annotation: Any, default: bool) -> bool:
    """Return whether a key of a TypedDict is required, also one whose annotation was a text.

    Of those, `__required_keys__` knows nothing.
    """
    origin = get_origin(annotation)
    if origin in (Required, NotRequired):
        return origin is Required
    if origin is Annotated or _is_read_only(origin):
        return _is_required(get_args(annotation)[0], default)
    return default


def _is_read_only(origin: Any) -> bool:
    return getattr(origin, "_name", None) == "ReadOnly"  # of typing, or of typing_extensions


def _record(kind: Any, where: str, inside: tuple[type, ...]) -> Form:
    """Return the form of a dataclass or an attrs class."""
    hints = _hints(kind, where)
    fields: dict[str, Form] = {}
    required: list[str] = []
    said = dict(read_docstring(kind.__doc__).arguments)
    for name, attribute, default in _init_fields(kind):
        form = form_of(hints.get(attribute, Any), f"{where}.{name}", inside)
        if attribute in said:
            said[name] = said[attribute]
        if default is _NOTHING:
            required.append(name)
            fields[name] = form
        else:
            fields[name] = Form({**form.schema, **json_default(default)}, form.convert)
    makers = {name: form.convert for name, form in fields.items() if form.convert is not None}

    def convert(found: Mapping[str, Any]) -> Any:
        return kind(**{name: makers[name](v) if name in makers else v for name, v in found.items()})

    return Form(_object(fields, required, said), convert)


_NOTHING: Final = object()
_FACTORY: Final = (
    object()
)  # a default that a factory makes each time, so that a schema can't show it


def _init_fields(kind: Any) -> Iterable[tuple[str, str, object]]:
    """Return the name in `__init__`, the attribute and the default of each field."""
    if attrs.has(kind):
        for one in attrs.fields(kind):
            if one.init:
                made = isinstance(one.default, attrs.Factory)  # type: ignore[arg-type]
                default = _NOTHING if one.default is attrs.NOTHING else one.default
                yield one.alias or one.name, one.name, _FACTORY if made else default
        return
    for one in dataclasses.fields(kind):
        if one.init:
            default = one.default
            if default is dataclasses.MISSING:
                made = one.default_factory is not dataclasses.MISSING
                yield one.name, one.name, _FACTORY if made else _NOTHING
            else:
                yield one.name, one.name, default
