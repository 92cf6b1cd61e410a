"""JSON values of any type, read as the type that is expected."""

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["Json", "listed", "mapped", "number", "text_of"]

Json: TypeAlias = Mapping[str, Any]


def mapped(value: object) -> Json:
    """A JSON object; an empty one in the place of anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """A JSON array; an empty one in the place of anything else."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """A text; an empty one in the place of anything else."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int:
    """A count; 0 in the place of anything else."""
    return value if type(value) is int and value > 0 else 0
