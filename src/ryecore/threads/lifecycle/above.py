"""What bounds a thread from above: the thread that starts it.

Source: seed 003, "Step 1: Resolve parent context"; decision 41.
"""

from collections.abc import Iterable

from attrs import frozen

from ryecore.errors import StateError
from ryecore.lillux.keys import PublicKey
from ryecore.policy.capabilities import attenuate
from ryecore.policy.limits import Limits, read_limits
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import THREAD_FILE, read_thread_file

__all__ = ["Above", "held_within", "read_above"]


@frozen
class Above:
    """A parent, as its signed file tells of it.

    Attributes:
        thread_id: The parent.
        limits: What it may use.
        capabilities: What it may do.
    """

    thread_id: str
    limits: Limits
    capabilities: frozenset[str]


def read_above(store: ThreadStore, key: PublicKey, thread_id: str) -> Above:
    """Read a parent's file.

    Raises:
        StateError: It isn't there, was altered, or can't be read.
    """
    said = read_thread_file(store.folder_of(thread_id) / THREAD_FILE, key, thread_id)
    try:
        return Above(thread_id, read_limits(said["limits"]), frozenset(said["capabilities"]))
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise StateError(
            f"The file of the thread {thread_id} was written by another version: {problem}.",
            next_step="Start the thread anew with this version.",
        ) from None


def held_within(
    held: frozenset[str] | None, bounds: Iterable[frozenset[str]]
) -> frozenset[str] | None:
    """What may be done within several bounds at once; None where there is no bound at all."""
    for bound in bounds:
        held = bound if held is None else frozenset(attenuate(bound, held))
    return held
