"""What is told of a thread, and not too much of it. Pure but for the look at a result."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from ryecore.convert.money import write_usd
from ryecore.state.model import ThreadRecord
from ryecore.state.store import ThreadStore

__all__ = ["Document", "bounded", "outcome", "standing"]

Document: TypeAlias = dict[str, object]
"""A JSON-ready object."""

_RESULT_CHARS: Final = 4000
_LEAST_CHARS: Final = 80
"""With less room than this, the JSON of a value is cut as text."""


def outcome(store: ThreadStore, record: ThreadRecord) -> Document:
    """How a thread stands, and what came of it, not too much of it."""
    document = standing(record)
    if record.ended:
        body = store.registry.get_result(record.thread_id)
        said = body if isinstance(body, Mapping) else {"result": body}
        for name in ("outputs", "result", "data", "error", "error_code"):
            if said.get(name) is not None:
                document[name] = bounded(said[name], _RESULT_CHARS)
    return document


def standing(record: ThreadRecord) -> Document:
    """How a thread stands, and what it has used itself."""
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
    """A JSON value, cut to about so many characters. A mapping keeps its keys, a list its order.

    Args:
        value: The value.
        max_chars: How many characters its JSON may have.
    """
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
    """What is short stays whole, and what is long shares the room that is left."""
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
        return "…" * 10_000  # nobody reads what is nested so deeply


def _cut(text: str, max_chars: int) -> str:
    return f"{text[:max_chars]}… ({len(text) - max_chars} more characters)"
