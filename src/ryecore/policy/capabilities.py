"""Capabilities: `rye.<execute|fetch|sign>.<kind>.<dotted id>`, with `*` as the wildcard."""

from collections.abc import Iterable
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
    return any(_matches(pattern, needed) for pattern in granted)


def _matches(pattern: str, needed: str) -> bool:
    """`*` stands for any text, dots included; every other character for itself."""
    first, *others = pattern.split("*")
    if not others:
        return pattern == needed
    *middle, last = others
    if not needed.startswith(first) or not needed[len(first) :].endswith(last):
        return False
    rest = needed[len(first) : len(needed) - len(last)]
    for part in filter(None, middle):
        _, found, rest = rest.partition(part)
        if not found:
            return False
    return True
