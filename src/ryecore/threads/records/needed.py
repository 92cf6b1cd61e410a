"""What a recorded call of a built-in tool needs. Pure."""

import json
from typing import Final

from ryecore.errors import RyeError
from ryecore.items.refs import ItemRef
from ryecore.policy.permissions import Action, allows, capability_of, holds_any

__all__ = ["grants", "needed_for"]

_ANY_FETCH: Final = "rye.fetch.*"


def needed_for(action: Action, arguments_json: str) -> tuple[str, ...] | None:
    """The capabilities of which a call of `rye_execute`, `rye_fetch` or `rye_sign` needs one.

    Args:
        action: What the tool does.
        arguments_json: Its arguments, as the model wrote them.

    Returns:
        One, or for a bare id, which may be a directive or a tool, two; None where what it named
        isn't known from the arguments.
    """
    try:
        given = json.loads(arguments_json or "{}")
    except ValueError:
        return None
    item_id = given.get("item_id") if isinstance(given, dict) else None
    if not isinstance(item_id, str):
        return (_ANY_FETCH,) if action == "fetch" else None
    if action == "sign" and "*" in item_id:
        return None  # what it matched then is not known
    needed: list[str] = []
    for kind in ("directive", "tool"):  # a bare id is one or the other
        try:
            ref = ItemRef.parse(item_id, kind)
        except RyeError:
            return None
        needed.append(capability_of(action, ref.kind, ref.id))
    return tuple(dict.fromkeys(needed))


def grants(capabilities: frozenset[str], needed: str) -> bool:
    """Whether capabilities grant what `needed_for` gave."""
    if needed == _ANY_FETCH:
        return holds_any(capabilities, "fetch")
    return allows(capabilities, needed)
