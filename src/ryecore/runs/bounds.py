"""The bounds that a run inherits: from its parent, and from the run that it continues.

Source: docs/design/threads.md#parent; decisions 41 and 80.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ryecore.errors import LimitReached, StateError
from ryecore.frozen import frozen
from ryecore.policy import CallContext
from ryecore.policy.limits import Limits, read_limits
from ryecore.policy.permissions import attenuate
from ryecore.state.model import ContinuationLimits, SpawnLimit, ThreadRecord
from ryecore.state.store import ThreadStore

__all__ = [
    "PARENT_ID", "RunBounds", "bounds_of", "carried_limits", "check_depth",
    "count_child", "find_parent", "is_host", "read_asked", "refuse_unproved_parent", "spawn_limit",
    "within_bounds",
]  # fmt: skip


PARENT_ID: Final = "RYE_PARENT_THREAD_ID"
"""The environment variable that names the parent to a child's process. It proves nothing."""


@frozen
class RunBounds:
    """The bounds of a run, read from its signed file."""

    run_id: str
    limits: Limits
    capabilities: frozenset[str]


async def _read_bounds(store: ThreadStore, thread_id: str) -> RunBounds:
    """Read the bounds of a run from its file."""
    return bounds_of(thread_id, await store.read_file(thread_id))


def bounds_of(thread_id: str, document: Mapping[str, Any]) -> RunBounds:
    """Return the limits and capabilities of a thread, from its proved file."""
    try:
        return RunBounds(
            thread_id, read_limits(document["limits"]), frozenset(document["capabilities"])
        )
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise _another_version(thread_id, problem) from None


def read_asked(run_id: str, document: Mapping[str, Any]) -> Limits:
    """Return the limits of the caller of a run, from its proved journal."""
    try:
        return read_limits(document.get("asked", {}))
    except (AttributeError, TypeError, ValueError) as problem:
        raise _another_version(run_id, problem) from None


def _another_version(thread_id: str, problem: Exception) -> StateError:
    return StateError(
        f"The file of the thread {thread_id} was written by another version: {problem}.",
        next_step="Start the thread anew with this version.",
    )


async def find_parent(
    store: ThreadStore,
    parent_id: str | None,
    registered: ThreadRecord | None,
    environ: Mapping[str, str],
) -> RunBounds | None:
    """Find the parent of a run that is about to begin, and prove it. A root has none.

    The caller's own thread is the parent. A parent that only the environment names needs a row in
    the registry. A run that another process has registered must have the same one.

    Source: decision 41.
    """
    if registered is not None and registered.parent_id != parent_id:
        raise StateError(
            f"The thread {registered.thread_id} was not registered as a child of {parent_id}.",
            next_step="Start a thread of your own.",
        )
    if parent_id is not None:
        return await _read_bounds(store, parent_id)
    if registered is None:
        refuse_unproved_parent(environ, None)
    return None


def refuse_unproved_parent(environ: Mapping[str, str], parent_id: str | None) -> None:
    """Refuse to register a run whose parent only the environment names, and no caller proves.

    Source: decision 41.
    """
    if parent_id is None and PARENT_ID in environ:
        raise StateError(
            f"{PARENT_ID} names a parent, and only a process that this parent has started for one "
            "of its threads may do so.",
            next_step=f"Unset {PARENT_ID}, or let the parent start the thread.",
        )


async def count_child(store: ThreadStore, parent: RunBounds) -> None:
    """Count one more child of a parent, before it is started, unless that would pass its limit.

    Source: docs/design/threads.md#spawns; decisions 40 and 80.
    """
    await store.registry.count_spawn(parent.run_id, parent.limits.spawns)


async def spawn_limit(store: ThreadStore, parent_id: str | None) -> SpawnLimit | None:
    """Return the parent's limit on children, for a child in a process of its own.

    The host's starts aren't counted.
    """
    if parent_id is None:
        return None
    return SpawnLimit((await _read_bounds(store, parent_id)).limits.spawns)


def is_host(ctx: CallContext) -> bool:
    """Return whether a call comes from a person or the host, not from a thread, run or model."""
    return ctx.budget_account is None and ctx.capabilities is None


async def carried_limits(
    store: ThreadStore, thread_id: str, carried: ContinuationLimits, *, needs_turns: bool
) -> Limits:
    """Return the limits that remain for a run that continues another one, and has a row.

    A LimitReached is raised where no time is left, or a turn is needed and none is left.

    Source: decision 80.
    """
    limits = await store.registry.limit_continuation(thread_id, carried)
    wanted = carried.wanted
    if needs_turns and limits.turns == 0 != wanted.turns:
        raise _used_up(carried.previous_id, "turns", "turns=8", carried.limits.turns or 0)
    if limits.duration_s == 0 != wanted.duration_s:
        most_s = float(carried.limits.duration_s or 0)
        raise _used_up(carried.previous_id, "duration", "duration_seconds=600", most_s)
    return limits


def _used_up(previous_id: str, what: str, example: str, most: float) -> LimitReached:
    left = "no time" if what == "duration" else f"no {what}"
    return LimitReached(
        f"{previous_id} has {left} left for a thread that continues it: {what} counts along the "
        "chain.",
        next_step=f"Resume it with a new limit, as a person or the host: --limit {example}",
        thread_id=previous_id,
        limit_code=f"{what}_exceeded",
        current_value=most,
        current_max=most,
        code=f"{what}_exceeded",
    )


def within_bounds(
    held: frozenset[str] | None, *bounds: Iterable[str] | None
) -> frozenset[str] | None:
    """Return the capabilities that the caller and all other bounds have in common.

    None is no bound: the host may do everything.

    Source: decisions 41 and 47.
    """
    for bound in bounds:
        if bound is not None:
            held = frozenset(bound) if held is None else frozenset(attenuate(bound, held))
    return held


def check_depth(parent: RunBounds | None) -> None:
    """Check that the depth of a parent lets it start a child.

    Source: docs/design/threads.md#depth.
    """
    if parent is None or parent.limits.depth is None or parent.limits.depth > 0:
        return
    raise LimitReached(
        f"The thread {parent.run_id} may start no thread: its depth is used up.",
        next_step="Give the directives above it a larger depth, or do the work in place.",
        limit_code="depth_exceeded",
        current_value=0,
        current_max=0,
    )
