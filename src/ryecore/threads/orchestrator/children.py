"""The threads that a thread reaches, their states and outcomes.

A thread reaches its own subtree, and that of the threads it continues. A fork of a thread doesn't
continue it, so it begins without children. Any other thread is reported as missing.

Source: decisions 41 and 47.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ryecore.convert.money import write_usd
from ryecore.errors import InputError, ThreadNotFound
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore

__all__ = [
    "Document",
    "below",
    "bounded",
    "chain_of",
    "find",
    "find_all",
    "outcome",
    "refuse_itself",
    "standing",
]


async def _tops(store: ThreadStore, caller: str) -> tuple[str, ...]:
    """Return the caller and the threads that it continues, whose children it manages."""
    tops = [caller]
    while True:
        row = await store.registry.get_thread(tops[-1])
        before = row.continuation_of
        if before is None or before in tops or row.chain_root_id is None:
            return tuple(tops)
        tops.append(before)


async def _reaches(store: ThreadStore, caller: str, thread_id: str) -> bool:
    for top in await _tops(store, caller):
        if await store.registry.is_below(thread_id, top):
            return True
    return False


async def below(store: ThreadStore, caller: str) -> frozenset[str]:
    """Return the ids of all threads that a caller reaches, its own included."""
    trees = [await store.registry.list_tree(top) for top in await _tops(store, caller)]
    return frozenset(one.thread_id for tree in trees for one in tree)


async def find(store: ThreadStore, thread_id: str, caller: str | None) -> ThreadRecord:
    """Return the row of a thread that the caller reaches."""
    if caller is not None and not await _reaches(store, caller, thread_id):
        raise _not_below(thread_id)
    try:
        return await store.look(thread_id)
    except ThreadNotFound:
        if caller is None:
            raise
        raise _not_below(thread_id) from None


def _not_below(thread_id: str) -> ThreadNotFound:
    """Make the error for a missing and for an unreachable thread, which it doesn't distinguish."""
    return ThreadNotFound(
        f"There is no thread {_quoted(thread_id)} below this one.",
        next_step="The operation list_active lists those that run.",
        thread_id=thread_id,
    )


async def find_all(
    store: ThreadStore, thread_ids: Sequence[str], caller: str | None
) -> list[ThreadRecord]:
    """Return the rows of all, or raise an error for the first that is missing."""
    return [await find(store, one, caller) for one in thread_ids]


def refuse_itself(thread_ids: Collection[str], caller: str | None, verb: str) -> None:
    """Refuse an operation of a thread on itself."""
    if caller is not None and caller in thread_ids:
        raise InputError(
            f"A thread can't {verb} itself.",
            next_step="Name threads that it has started; to end, return.",
        )


async def chain_of(store: ThreadStore, thread_id: str, caller: str | None) -> list[ThreadRecord]:
    """Return the chain of continuations of a thread, as far as the caller reaches it."""
    await find(store, thread_id, caller)
    chain = await store.registry.get_chain(thread_id)
    if caller is None:
        return list(chain)
    return [one for one in chain if await _reaches(store, caller, one.thread_id)]


def _quoted(thread_id: str) -> str:
    return ascii(thread_id if len(thread_id) <= 80 else f"{thread_id[:80]}…")


Document: TypeAlias = dict[str, object]
"""A JSON-ready object."""

_RESULT_CHARS: Final = 4000
_LEAST_CHARS: Final = 80
"""The room below which the JSON of a value is cut as text."""


async def outcome(store: ThreadStore, record: ThreadRecord) -> Document:
    """Return the state and the shortened result of a thread."""
    document = standing(record)
    if record.ended:
        body = await store.registry.get_result(record.thread_id)
        said = body if isinstance(body, Mapping) else {"result": body}
        for name in ("outputs", "result", "data", "error", "error_code"):
            if said.get(name) is not None:
                document[name] = bounded(said[name], _RESULT_CHARS)
    return document


def standing(record: ThreadRecord) -> Document:
    """Return the state and the own cost of a thread."""
    document: Document = {
        "thread_id": record.thread_id,
        "item_id": record.item_id,
        "status": record.status,
        "ended": record.ended,
        "turns": record.cost.turns,
        "input_tokens": record.cost.input_tokens,
        "output_tokens": record.cost.output_tokens,
        "spend": write_usd(record.cost.spend_microcents),
    }
    if not record.ended and (record.cancel_requested or record.kill_requested):
        document["cancel_requested"] = True
    if record.continuation_thread_id is not None:
        document["continuation_thread_id"] = record.continuation_thread_id
    return document


def bounded(value: object, max_chars: int) -> object:
    """Shorten a JSON value, roughly. A mapping keeps its keys, a list its order."""
    if isinstance(value, str):
        return value if len(value) <= max_chars else _cut(value, max_chars)
    text = _json(value)
    if len(text) <= max_chars:
        return value
    if max_chars >= _LEAST_CHARS:
        if isinstance(value, Mapping):
            return _bounded_mapping(value, max_chars)
        if isinstance(value, list | tuple):
            return _bounded_list(value, max_chars)
    return _cut(text, max_chars)


def _bounded_mapping(value: Mapping[Any, Any], max_chars: int) -> dict[str, object]:
    """Keep short values whole, and share the remaining room among long ones."""
    names = list(value)[: max_chars // 20]
    sizes = {name: len(_json(value[name])) for name in names}
    shares: dict[Any, int] = {}
    room, left = max_chars, len(names)
    for name in sorted(names, key=sizes.__getitem__):
        shares[name] = share = max(room // left, 20)
        room, left = max(room - min(sizes[name], share), 0), left - 1
    kept: dict[str, object] = {str(name): bounded(value[name], shares[name]) for name in names}
    if len(names) < len(value):
        kept["…"] = f"{len(value) - len(names)} more"
    return kept


def _bounded_list(value: Sequence[object], max_chars: int) -> list[object]:
    kept: list[object] = []
    room = max_chars
    for one in value:
        item = bounded(one, max_chars // 3)
        room -= len(_json(item)) + 2
        if room < 0:
            break
        kept.append(item)
    if len(kept) < len(value):
        kept.append(f"… {len(value) - len(kept)} more")
    return kept


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "…" * 10_000  # nested too deeply to be of use


def _cut(text: str, max_chars: int) -> str:
    return f"{text[:max_chars]}… ({len(text) - max_chars} more characters)"
