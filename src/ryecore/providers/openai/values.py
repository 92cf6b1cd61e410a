"""JSON values of any type, read as the expected type."""

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["Json", "listed", "mapped", "number", "text_of"]

Json: TypeAlias = Mapping[str, Any]


def mapped(value: object) -> Json:
    """Return a JSON object, or an empty one for a value of another type."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """Return a JSON array, or an empty one for a value of another type."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return a text, or an empty one for a value of another type."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """Return a count, or 0 for another value."""
    return value if type(value) is int and value > 0 else 0
