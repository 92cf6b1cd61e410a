"""The JSON form of pydantic's models, by their own schema and validation.

pydantic is never imported here: whoever passes a model has done so.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["is_pydantic_model", "pydantic_schema", "pydantic_validation"]

_REF: Final = "#/$defs/"
_SCHEMAS: Final = ("items", "additionalProperties", "contains", "not", "if", "then", "else")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS: Final = ("properties", "patternProperties", "dependentSchemas")


def is_pydantic_model(kind: type) -> bool:
    """Return whether a class is a model of pydantic's."""
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def pydantic_schema(model: Any, where: str) -> Mapping[str, Any]:
    """Return a model's schema, without references, so that it can stand within another one.

    Objects are closed unless the model keeps what it doesn't know. The TypeError of a model that
    has no such schema names `where`.
    """
    try:
        schema: Mapping[str, Any] = model.model_json_schema()
    except Exception as error:  # pydantic's own, for a field of a type without a schema
        problem = str(error).partition("\n")[0]
        raise TypeError(f"{where}: {model.__qualname__} has no JSON Schema: {problem}.") from None
    definitions = schema.get("$defs", {})
    own = {key: value for key, value in schema.items() if key != "$defs"}
    inlined: dict[str, Any] = _inlined(own, definitions, where, ())
    return inlined


def _inlined(
    schema: Any, definitions: Mapping[str, Any], where: str, inside: tuple[str, ...]
) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    found = dict(schema)
    ref = found.pop("$ref", None)
    if isinstance(ref, str):
        name = ref.removeprefix(_REF)
        if name in inside:
            raise TypeError(f"{where}: {name} holds itself.")
        target = _inlined(definitions[name], definitions, where, (*inside, name))
        return {**target, **found}
    if found.pop("discriminator", None) is not None and "oneOf" in found:
        found["anyOf"] = found.pop("oneOf")  # its members exclude each other
    for key in _SCHEMAS:
        if key in found:
            found[key] = _inlined(found[key], definitions, where, inside)
    for key in _LISTS:
        if key in found:
            found[key] = [_inlined(one, definitions, where, inside) for one in found[key]]
    for key in _MAPS:
        if key in found:
            found[key] = {
                name: _inlined(one, definitions, where, inside) for name, one in found[key].items()
            }
    if "properties" in found:
        found.setdefault("additionalProperties", False)
    return found


def pydantic_validation(model: Any) -> Callable[[Any], Any]:
    """Return the function that makes a model of JSON; its ValueError lists what doesn't fit."""

    def validate(found: Any) -> Any:
        text = json.dumps(found)  # by JSON's rules, a strict model takes an ISO date too
        try:
            return model.model_validate_json(text)
        except ValueError as error:
            raise ValueError(_failures(error)) from None

    return validate


def _failures(error: Any) -> str:
    if not hasattr(error, "errors"):
        return str(error)
    listed = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else str(one["msg"])
        for one in listed
    )
