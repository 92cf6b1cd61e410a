"""What bounds a thread or a run from above: the one that starts it.

Source: seed 003, "Step 1: Resolve parent context"; decision 41.
"""

from collections.abc import Iterable

from attrs import frozen

from ryecore.errors import LimitReached, StateError
from ryecore.lillux.keys import PublicKey
from ryecore.policy.capabilities import attenuate
from ryecore.policy.limits import Limits, read_limits
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import THREAD_FILE, read_thread_file

__all__ = ["Above", "depth_used_up", "read_above", "within_bounds"]


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


def within_bounds(
    held: frozenset[str] | None, *bounds: Iterable[str] | None
) -> frozenset[str] | None:
    """What may be done at most: no more than the caller, the parent, and the past might do.

    Args:
        held: What the caller may do; None for the host, which may do everything.
        bounds: What each of the others might do; None for one that bounds nothing.

    Source: decisions 41 and 47.
    """
    for bound in bounds:
        if bound is not None:
            held = frozenset(bound) if held is None else frozenset(attenuate(bound, held))
    return held


def depth_used_up(parent_id: str | None) -> LimitReached:
    """The error where a parent may start no thread at all.

    Source: seed 003, "Step 8: Check depth".
    """
    return LimitReached(
        f"The thread {parent_id} may start no thread: its depth is used up.",
        next_step="Give the directives above it a larger depth, or do the work in place.",
        limit_code="depth_exceeded",
        current_value=0,
        current_max=0,
    )
