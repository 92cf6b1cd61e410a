"""The inputs and outputs of a directive: declared, defaulted, coerced and checked. Pure.

Source: docs/design/execute.md#inputs; decision 34.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

from attrs import field

from ryecore.convert.lines import bounded
from ryecore.directives.markup import Element
from ryecore.errors import InvalidInputs
from ryecore.frozen import frozen
from ryecore.lillux.schema import SchemaValidator
from ryecore.policy.paths import fill_placeholders
from ryecore.strict_json import read_json

__all__ = [
    "PLACEHOLDER",
    "Declared",
    "fill",
    "fill_tree",
    "input_schema",
    "read_declared",
    "render_returns",
    "resolve_inputs",
]

_TYPES: Final[Mapping[str, str]] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "float": "number",
    "boolean": "boolean",
    "array": "array",
    "list": "array",
    "object": "object",
    "any": "any",
}
_FORMATS: Final = ("date", "date-time", "time", "duration", "uuid", "email", "uri")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_DIGITS: Final = 1000
_MAX_NAME_CHARS: Final = 300


@frozen
class Declared:
    """An input or an output that a directive declares; its default, of its type, may be null.

    A text may have a format of JSON Schema; empty for none. An input may list its values; without
    them it takes any.
    """

    name: str
    type: str = "string"
    required: bool = False
    description: str = ""
    has_default: bool = False
    default: object = field(default=None)
    format: str = ""
    enum: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """The format, else the type, by which people and models know it."""
        return self.format or self.type

    def to_dict(self) -> dict[str, object]:
        """Return the declaration as errors and dry runs show it."""
        shown: dict[str, object] = {
            "name": self.name,
            "type": self.type,
            "required": self.required,
        }
        if self.format:
            shown["format"] = self.format
        if self.enum:
            shown["enum"] = list(self.enum)
        if self.description:
            shown["description"] = self.description
        return shown | {"default": self.default} if self.has_default else shown


def read_declared(element: Element | None, tag: str) -> tuple[Declared, ...]:
    """Read `<inputs>` or `<outputs>`, whose elements are called `tag`.

    Names are unique and of the right form, types are known, and defaults fit them; else
    DirectiveProblem is raised.
    """
    if element is None:
        return ()
    element.check(children=(tag,))
    found: dict[str, Declared] = {}
    for child in element.children:
        attributes = ("name", "type", "format", "required")
        more = ("default", "enum") if tag == "input" else ()
        child.check(attributes=(*attributes, *more))
        one = _read_one(child)
        if one.name in found:
            raise child.problem(f"declares {one.name!r} once more")
        found[one.name] = one
    return tuple(found.values())


def _read_one(element: Element) -> Declared:
    name = element.required("name")
    if _NAME.fullmatch(name) is None:
        raise element.problem(
            f"has the name {name[:40]!r}; a name holds letters, digits, _ and -, and begins with "
            "a letter or _"
        )
    declared = element.attributes.get("type", "string").strip()
    kind = _TYPES.get(declared)
    if kind is None:
        raise element.problem(f"has the unknown type {declared[:40]!r}", tuple(_TYPES))
    wanted = element.attributes.get("format", "").strip()
    if wanted and wanted not in _FORMATS:
        raise element.problem(f"has the unknown format {wanted[:40]!r}", _FORMATS)
    if wanted and kind != "string":
        raise element.problem(f"has the type {kind!r}, and only text has a format")
    values = _read_values(element, kind)
    default: object = element.attributes.get("default")
    has_default = default is not None
    if has_default:
        try:
            default = _coerce(kind, default, wanted, values)
        except ValueError as problem:
            raise element.problem(f"has a default that does not fit: {problem}") from None
    return Declared(
        name=name,
        type=kind,
        required=element.flag("required", default=False),
        description=" ".join(element.text.split()),
        has_default=has_default,
        default=default,
        format=wanted,
        enum=values,
    )


def _read_values(element: Element, kind: str) -> tuple[str, ...]:
    """Return the values that an input lists, as in `enum="warm|formal"`."""
    listed = element.attributes.get("enum")
    if listed is None:
        return ()
    if kind != "string":
        raise element.problem(f"has the type {kind!r}, and only text lists its values")
    values = tuple(one.strip() for one in listed.split("|"))
    if not all(values) or len(set(values)) < len(values):
        raise element.problem('must list different values, as in enum="warm|formal"')
    return values


def resolve_inputs(declared: Iterable[Declared], given: Mapping[str, object]) -> dict[str, object]:
    """Apply defaults, coerce and check inputs; return those with a value, in the declared order.

    Null counts as not given, except where the type is `any`. InvalidInputs lists every failure: a
    required one is missing, one is unknown, or one doesn't fit its type.
    """
    specs = {one.name: one for one in declared}
    resolved: dict[str, object] = {}
    missing: list[str] = []
    failures: list[str] = []
    for spec in specs.values():
        value = given.get(spec.name)
        if spec.name not in given or (value is None and spec.type != "any"):
            if spec.has_default:
                resolved[spec.name] = spec.default
            elif spec.required:
                missing.append(spec.name)
            continue
        try:
            resolved[spec.name] = _coerce(spec.type, value, spec.format, spec.enum)
        except ValueError as problem:
            failures.append(f"{spec.name}: {problem}")
    unknown = [bounded(str(name), _MAX_NAME_CHARS) for name in given if name not in specs]
    problems = []
    if missing:
        problems.append(f"Missing required inputs: {', '.join(missing)}")
    if unknown:
        problems.append(f"Unknown inputs: {', '.join(unknown)}")
    if failures:
        problems.append(f"Inputs that don't fit: {'; '.join(failures)}")
    if problems:
        raise InvalidInputs(
            f"{'. '.join(problems)}.",
            next_step=f"Valid inputs: {_listed(specs.values())}.",
            failures=(
                *(f"{name}: required, and missing" for name in missing),
                *(f"{name}: unknown" for name in unknown),
                *failures,
            ),
            declared_inputs=tuple(spec.to_dict() for spec in specs.values()),
        )
    return resolved


def input_schema(declared: Iterable[Declared]) -> dict[str, object]:
    """Return the inputs as a JSON Schema."""
    specs = tuple(declared)
    return {
        "type": "object",
        "properties": {
            one.name: {
                **({} if one.type == "any" else {"type": one.type}),
                **({"format": one.format} if one.format else {}),
                **({"enum": list(one.enum)} if one.enum else {}),
                **({"description": one.description} if one.description else {}),
                **({"default": one.default} if one.has_default else {}),
            }
            for one in specs
        },
        "required": [one.name for one in specs if one.required and not one.has_default],
        "additionalProperties": False,
    }


def _listed(specs: Iterable[Declared]) -> str:
    shown = (f"{one.name} ({one.form}{', required' if one.required else ''})" for one in specs)
    return ", ".join(shown) or "none"


def _coerce(kind: str, value: object, wanted: str = "", values: tuple[str, ...] = ()) -> object:
    """Convert a value to its declared type, without loss; a ValueError says why it can't be."""
    coerced = _COERCIONS[kind](value)
    if wanted:
        for failure in _format(wanted).failures(_json(coerced)):
            raise ValueError(failure.message)
    if values and coerced not in values:
        raise _unfit(value, f"one of {', '.join(values)}")
    return coerced


@cache
def _format(name: str) -> SchemaValidator:
    return SchemaValidator(json.dumps({"format": name}))


def _to_string(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):  # a boolean is an int
        return _json(value)
    raise _unfit(value, "text")


def _to_integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        _json(value)
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2**53:
        return int(value)
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and _INTEGER.fullmatch(value):
        return int(value)
    raise _unfit(value, "an integer")


def _to_number(value: object) -> int | float:
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and _NUMBER.fullmatch(value):
        value = int(value) if _INTEGER.fullmatch(value) else float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        _json(value)
        return value
    raise _unfit(value, "a finite number")


def _to_boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    raise _unfit(value, "true or false")


def _to_array(value: object) -> list[object]:
    found = _from_json(value)
    if isinstance(found, list | tuple):
        _json(found)
        return list(found)
    raise _unfit(value, "a list, or the JSON text of one")


def _to_object(value: object) -> dict[str, object]:
    found = _from_json(value)
    if isinstance(found, Mapping) and all(isinstance(key, str) for key in found):
        _json(found)
        return dict(found)
    raise _unfit(value, "an object, or the JSON text of one")


def _to_any(value: object) -> object:
    _json(value)
    return value


_COERCIONS: Final[Mapping[str, Callable[[object], object]]] = {
    "string": _to_string,
    "integer": _to_integer,
    "number": _to_number,
    "boolean": _to_boolean,
    "array": _to_array,
    "object": _to_object,
    "any": _to_any,
}


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        found = read_json(value)
    except ValueError:
        return None
    return found


def _json(value: object) -> str:
    """Return its JSON text; raise ValueError where it has none, as for NaN."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise _unfit(value, "what JSON can hold") from None


def _unfit(value: object, wanted: str) -> ValueError:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # more digits than Python writes, or deeper than it goes
        shown = f"a {type(value).__name__}"
    return ValueError(f"{shown if len(shown) <= 60 else shown[:57] + '...'} is not {wanted}")


_INSTRUCTION: Final = "When you are done, call rye_directive_return with these outputs."
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def render_returns(outputs: Iterable[Declared]) -> str:
    """Render declared outputs as a section with a line of instruction; empty without outputs.

    The same outputs always give the same text.
    """
    lines = [
        f'<output name="{one.name.translate(_ESCAPES)}" type="{one.type}"'
        + (f' format="{one.format}"' if one.format else "")
        + (' required="true">' if one.required else ">")
        + f"{one.description.translate(_ESCAPES)}</output>"
        for one in outputs
    ]
    return "\n".join(["<returns>", *lines, "</returns>", _INSTRUCTION]) if lines else ""


# Placeholders


PLACEHOLDER: Final = re.compile(
    r"\{input:(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?:(?P<optional>\?)|[:|](?P<default>[^{}]*))?\}"
    r"|\$\{inputs\.(?P<dotted>[A-Za-z_][A-Za-z0-9_-]*)\}"
)
"""A placeholder for an input; a value that is put in is never expanded again.

    {input:key}            kept as it is where the input has no value
    {input:key?}           nothing
    {input:key:default}    the default; also {input:key|default}
    ${inputs.key}          kept as it is

Source: docs/design/execute.md#placeholders; decision 34.
"""


def fill(text: str, inputs: Mapping[str, object]) -> str:
    """Put inputs into a text; one that is not text is written as JSON.

    A placeholder in a value stays as it is.
    """
    return PLACEHOLDER.sub(lambda found: _as_text(_value(found, inputs)), text)


def fill_tree(tree: object, inputs: Mapping[str, object]) -> object:
    """Put inputs into every text of a tree; one that is a single placeholder keeps its type."""
    return fill_placeholders(tree, PLACEHOLDER, lambda found: _value(found, inputs))


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _value(found: re.Match[str], inputs: Mapping[str, object]) -> object:
    name = found["name"] or found["dotted"]
    if name in inputs:
        return inputs[name]
    if found["optional"]:
        return ""
    return found[0] if found["default"] is None else found["default"]
