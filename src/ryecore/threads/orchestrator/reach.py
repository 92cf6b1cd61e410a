"""Which threads a thread reaches: its own subtree, and that of the threads it continues.

A fork goes on from a thread and doesn't continue it, so it begins without children.

What lies outside of it answers as what doesn't exist does.

Source: decisions 41 and 47.
"""

from collections.abc import Collection, Sequence

from ryecore.errors import InputError, ThreadNotFound
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore

__all__ = ["below", "chain_of", "find", "find_all", "refuse_itself"]


def _tops(store: ThreadStore, caller: str) -> tuple[str, ...]:
    """The caller, and the threads that it continues: what they started is its own to look after."""
    tops = [caller]
    while True:
        row = store.registry.get_thread(tops[-1])
        before = row.continuation_of
        if before is None or before in tops or row.chain_root_id is None:
            return tuple(tops)
        tops.append(before)


def _reaches(store: ThreadStore, caller: str, thread_id: str) -> bool:
    registry = store.registry
    return any(registry.is_below(thread_id, top) for top in _tops(store, caller))


def below(store: ThreadStore, caller: str) -> frozenset[str]:
    """The ids of all that a caller reaches, its own included."""
    registry = store.registry
    return frozenset(
        one.thread_id for top in _tops(store, caller) for one in registry.list_tree(top)
    )


def find(store: ThreadStore, thread_id: str, caller: str | None) -> ThreadRecord:
    """A thread's row, where the caller reaches it."""
    if caller is not None and not _reaches(store, caller, thread_id):
        raise _not_below(thread_id)
    try:
        return store.look(thread_id)
    except ThreadNotFound:
        if caller is None:
            raise
        raise _not_below(thread_id) from None


def _not_below(thread_id: str) -> ThreadNotFound:
    """One answer for what doesn't exist and what isn't the caller's: it tells neither from both."""
    return ThreadNotFound(
        f"There is no thread {_quoted(thread_id)} below this one.",
        next_step="The operation list_active lists those that run.",
        thread_id=thread_id,
    )


def find_all(
    store: ThreadStore, thread_ids: Sequence[str], caller: str | None
) -> list[ThreadRecord]:
    """The rows of all, or an error that names the first that isn't there."""
    return [find(store, one, caller) for one in thread_ids]


def refuse_itself(thread_ids: Collection[str], caller: str | None, verb: str) -> None:
    """Refuse what a thread can't do to itself.

    Raises:
        InputError: The caller is among the threads.
    """
    if caller is not None and caller in thread_ids:
        raise InputError(
            f"A thread can't {verb} itself.",
            next_step="Name threads that it has started; to end, return.",
        )


def chain_of(store: ThreadStore, thread_id: str, caller: str | None) -> list[ThreadRecord]:
    """The chain of continuations that a thread belongs to, as far as the caller reaches it."""
    find(store, thread_id, caller)
    chain = store.registry.get_chain(thread_id)
    if caller is None:
        return list(chain)
    return [one for one in chain if _reaches(store, caller, one.thread_id)]


def _quoted(thread_id: str) -> str:
    return ascii(thread_id if len(thread_id) <= 80 else f"{thread_id[:80]}…")
