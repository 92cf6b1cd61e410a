"""Capabilities: `rye.<execute|fetch|sign>.<kind>.<dotted id>`, with `*` as the wildcard."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

__all__ = ["Action", "allows", "capability_of"]

Action = Literal["execute", "fetch", "sign"]


def capability_of(action: Action, kind: str, item_id: str) -> str:
    """The capability that an action on an item needs.

    Ids hold no dots, so the translation of slashes is one to one.
    """
    return f"rye.{action}.{kind}.{item_id.replace('/', '.')}"


def allows(granted: Iterable[str], needed: str) -> bool:
    """Whether a capability is granted, by name or by wildcard.

    Signing is matched by name alone: no wildcard grants it.

    Source: decision 13.
    """
    if needed.startswith("rye.sign."):
        return needed in set(granted)
    return any(fnmatchcase(needed, pattern) for pattern in granted)
