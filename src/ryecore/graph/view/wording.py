"""Conditions in few words, for people."""

import json
from collections.abc import Mapping
from typing import Final

from ryecore.policy.conditions import AllOf, AnyOf, Comparison, Condition, Negation

__all__ = ["condition_text", "edge_text"]

_SIGNS: Final[Mapping[str, str]] = {
    "eq": "=", "ne": "≠", "gt": ">", "gte": "≥", "lt": "<", "lte": "≤", "in": "in",
    "contains": "contains", "regex": "matches",
}  # fmt: skip


def edge_text(when: Condition | None, *, is_last_of_several: bool) -> str:
    """What stands on an edge: its condition, or that it is for all other cases.

    Args:
        when: Its condition, if it has one.
        is_last_of_several: Whether other edges of its node are looked at before it.
    """
    if when is None:
        return "else" if is_last_of_several else ""
    return condition_text(when)


def condition_text(condition: Condition) -> str:
    """A condition as somebody would say it, such as `state.score ≥ 0.8`."""
    match condition:
        case Comparison(path=path, op="exists", value=value):
            return f"{path} is absent" if value is False else f"{path} is there"
        case Comparison(path=path, op=op, value=value):
            said = json.dumps(value, ensure_ascii=False, default=str)
            return f"{path} {_SIGNS.get(op, op)} {said}"
        case AllOf(parts=parts):
            return " and ".join(map(_part, parts)) or "always"
        case AnyOf(parts=parts):
            return " or ".join(map(_part, parts)) or "never"
        case Negation(part=part):
            return f"not {_part(part)}"


def _part(condition: Condition) -> str:
    text = condition_text(condition)
    return f"({text})" if isinstance(condition, AllOf | AnyOf) else text
