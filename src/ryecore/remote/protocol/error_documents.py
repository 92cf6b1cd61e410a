"""Errors as documents, from which the other end makes errors of the same classes.

Source: docs/design/remote.md#models.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, get_origin

import ryecore.errors
from ryecore.convert.strict import RECORDS, ConversionError
from ryecore.display.sanitize import shorten
from ryecore.errors import RyeError
from ryecore.frozen import frozen

__all__ = ["map_errors", "read_error", "write_error"]

_OF_ERRORS: Final = frozenset({"error", "errors", "message", "next_step", "facts"})
_MAX_FACTS: Final = 32
_MAX_FACT_CHARS: Final = 2000
_HINTS: Final = (str, int, float, bool, int | None, float | None, tuple[str, ...], Path)
_PLAIN: Final = (str, int, float, bool, type(None))


@frozen
class _Document:
    error: str
    error_type: str = "error"
    error_class: str = ""
    message: str = ""
    next_step: str = ""
    facts: Mapping[str, object] = {}
    chain: tuple[str, ...] = ()


def write_error(error: RyeError) -> dict[str, object]:
    """Return the error object that models and MCP clients see, with what `read_error` needs."""
    facts = {name: _plain(value) for name, value in error.facts.items()}
    return error.to_dict() | {
        "error_class": type(error).__name__,
        "message": error.message,
        "next_step": error.next_step,
        "facts": {name: value for name, value in facts.items() if value is not None},
    }


def read_error(document: Mapping[str, object]) -> RyeError:
    """Return the error of a document, of the class that it has here, else a RyeError.

    Its facts are those of the other end, where they are text, numbers or lists of text.

    Raises:
        ConversionError: It isn't an error's document.
    """
    found = RECORDS.read(document, _Document)
    kind = _kinds().get(found.error_class) or _kinds_by_type().get(found.error_type) or RyeError
    message = shorten(found.message or found.error)
    error = kind(message, next_step=shorten(found.next_step) if found.message else "")
    for name, hint in _facts_of(kind).items():
        value = _read_fact(_plain(found.facts.get(name)), hint)
        if value is not None or not hasattr(error, name):
            setattr(error, name, value)
    error.chain = tuple(shorten(one, 200) for one in found.chain[:_MAX_FACTS])
    return error


def map_errors(document: Mapping[str, Any], change: Callable[[str], str]) -> Mapping[str, Any]:
    """Return a result, or an error's document, with each text in it about an error changed.

    What a tool returned stays as it is, but not what a graph's run says of its errors.
    """

    def changed(value: object) -> object:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, Mapping):
            return {name: changed(one) for name, one in value.items()}
        return [changed(one) for one in value] if isinstance(value, list | tuple) else value

    data = document.get("data")
    is_of_graph = isinstance(data, Mapping) and isinstance(data.get("graph_run_id"), str)
    if not is_of_graph and _OF_ERRORS.isdisjoint(document):
        return document
    found = {name: changed(one) if name in _OF_ERRORS else one for name, one in document.items()}
    if is_of_graph and isinstance(data, Mapping):
        found["data"] = {
            name: changed(one) if name in _OF_ERRORS else one for name, one in data.items()
        }
    return found


def _facts_of(kind: type[RyeError]) -> Mapping[str, Any]:
    """Return the types of the facts that a class of errors has, beyond those of each error."""
    hints: dict[str, Any] = {}
    for one in reversed(kind.__mro__):
        hints |= vars(one).get("__annotations__", {})
    return {name: hint for name, hint in hints.items() if name not in RyeError.__annotations__}


def _read_fact(value: object, hint: Any) -> object:
    """Return a fact as the type that its class has; None where it is of another one."""
    if hint not in _HINTS and get_origin(hint) is not Literal:
        return None
    try:
        return RECORDS.read(list(value) if isinstance(value, tuple) else value, hint)
    except ConversionError:
        return None


def _plain(value: object) -> object:
    """Return a fact as JSON has it, and bounded; None for another one."""
    if isinstance(value, Path):
        value = str(value)
    if isinstance(value, str):
        return shorten(value, _MAX_FACT_CHARS)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return tuple(shorten(str(one), _MAX_FACT_CHARS) for one in value[:_MAX_FACTS])
    return None


@cache
def _kinds() -> Mapping[str, type[RyeError]]:
    """Return the classes of errors by name."""
    named = ((name, getattr(ryecore.errors, name)) for name in dir(ryecore.errors))
    return {
        name: kind for name, kind in named if isinstance(kind, type) and issubclass(kind, RyeError)
    }


@cache
def _kinds_by_type() -> Mapping[str, type[RyeError]]:
    """Return the classes of errors by what their documents call them."""
    return {kind.error_type: kind for kind in _kinds().values() if "error_type" in vars(kind)}
