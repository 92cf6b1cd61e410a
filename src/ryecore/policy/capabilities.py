"""Capabilities: `rye.<execute|fetch|sign>.<kind>.<dotted id>`, with `*` as the wildcard."""

from collections.abc import Iterable
from typing import Literal

__all__ = ["Action", "allows", "attenuate", "capability_of", "holds_any"]

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


def holds_any(granted: Iterable[str], action: Action) -> bool:
    """Whether any item at all may be executed, fetched or signed."""
    prefix = f"rye.{action}."
    for pattern in granted:
        literal, star, _ = pattern.partition("*")
        if action == "sign":  # which no wildcard grants
            if not star and pattern.startswith(prefix):
                return True
        elif pattern.startswith(prefix) or (star and prefix.startswith(literal)):
            return True
    return False


def attenuate(wanted: Iterable[str], parent: Iterable[str] | None) -> tuple[str, ...]:
    """What a child may do of what it wants: never more than its parent.

    Args:
        wanted: The child's capabilities.
        parent: The parent's; None for the host itself, which may do everything.

    Returns:
        Each wanted one that the parent covers, and of a broader one what the parent has of it.

    Source: decision 41.
    """
    if parent is None:
        return tuple(dict.fromkeys(wanted))
    held = tuple(parent)
    kept: dict[str, None] = {}
    for one in wanted:
        if allows(held, one):
            kept[one] = None
        else:
            kept.update((narrower, None) for narrower in held if allows((one,), narrower))
    return tuple(kept)


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
