"""The variables by which a tool's process knows its call and its run, and what names a call.

A call id names one call of one item with one set of parameters at one place of a run. Where the
call is made once more, after a death of the host, it has the same one: a tool can recognise by it
what it has done already. Pure.

Source: docs/concepts/recovery.md, "Once, and no more than once".
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

__all__ = ["CALL_ID", "THREAD_ID", "call_id_of", "place_id"]

_ENCODER: Final = json.JSONEncoder(sort_keys=True, default=repr)
CALL_ID: Final = "RYE_CALL_ID"
"""The variable that holds a tool's call id."""

THREAD_ID: Final = "RYE_THREAD_ID"
"""The variable that holds the id of the thread or run on whose behalf a tool runs."""


def place_id(*parts: object) -> str:
    """The name of a place in a run, such as the visit of a node: 32 hexadecimal digits.

    Args:
        parts: What makes the place, from the run down to the call: texts and numbers.
    """
    return _digest(parts)


def call_id_of(place: str, item_id: str, parameters: Mapping[str, object]) -> str:
    """The id of a call: the same for the same item and parameters at the same place.

    Args:
        place: Where it is made: the `call_id` of its context.
        item_id: The item, as a canonical ref.
        parameters: What the item is given.
    """
    return _digest([place, item_id, parameters])


def _digest(parts: Sequence[object]) -> str:
    return sha256(_ENCODER.encode(parts).encode()).hexdigest()[:32]
