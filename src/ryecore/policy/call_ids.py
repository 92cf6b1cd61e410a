"""Ids of calls, and the variables in which a tool gets them. Pure.

A call id identifies one call of one item with one set of parameters at one place of a run. A call
that is repeated after the death of the host has the same id, so that a tool can recognise it.

Source: docs/concepts/recovery.md#once-and-no-more-than-once.
"""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

__all__ = [
    "CALL_ID",
    "THREAD_ID",
    "THREAD_MARK",
    "call_id_of",
    "place_id",
    "thread_mark",
    "thread_variables",
]

_ENCODER: Final = json.JSONEncoder(sort_keys=True, default=repr)
CALL_ID: Final = "RYE_CALL_ID"
"""The variable that holds a tool's call id."""

THREAD_ID: Final = "RYE_THREAD_ID"
"""The variable that holds the id of the thread or run on whose behalf a tool runs."""

THREAD_MARK: Final = "RYE_THREAD_MARK"
"""The variable by which a kill finds what a thread has started: see `thread_mark`."""


def place_id(*parts: object) -> str:
    """Return the id of a place in a run, such as the visit of a node: 32 hexadecimal digits.

    Args:
        parts: The path to the place, from the run down to the call: texts and numbers.
    """
    return _digest(parts)


def call_id_of(place: str, item_id: str, parameters: Mapping[str, object]) -> str:
    """Return the id of a call: the same for the same item and parameters at the same place.

    Args:
        place: Its place in the run: the `call_id` of its context.
        item_id: The item, as a canonical ref.
        parameters: The parameters of the item.
    """
    return _digest([place, item_id, parameters])


def thread_mark(project: str, thread_id: str) -> str:
    """Return the mark of a thread's processes: two projects may have threads of one id.

    Args:
        project: The project's folder, with links resolved.
        thread_id: The thread.
    """
    return _digest([project, thread_id])


def thread_variables(project: str, thread_id: str) -> dict[str, str]:
    """Return the variables of a process that runs on behalf of a thread.

    Args:
        project: The project's folder, with links resolved.
        thread_id: The thread.
    """
    return {THREAD_ID: thread_id, THREAD_MARK: thread_mark(project, thread_id)}


def _digest(parts: Sequence[object]) -> str:
    return sha256(_ENCODER.encode(parts).encode()).hexdigest()[:32]
