"""The results of runs as a node's reports have them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from ryecore.convert.json_text import make_encoder
from ryecore.errors import RyeError
from ryecore.remote.protocol.error_documents import write_error
from ryecore.remote.protocol.models import (
    MAX_PARAMETER_BYTES,
    MAX_RESULT_DEPTH,
    MAX_VALUES,
    has_too_many_values,
    is_nested_too_deeply,
)

__all__ = ["is_brief", "reported"]

_encode: Final = make_encoder()
_BRIEF: Final = 10_000


def is_brief(result: object) -> bool:
    """Return whether a result is signed sooner than a thread is woken for it."""
    waiting, length = [result], 0
    while waiting and length < _BRIEF:
        value = waiting.pop()
        length += 1
        if isinstance(value, str):
            length += len(value)
        elif isinstance(value, list | tuple):
            waiting += value
        elif not isinstance(value, int | float | None) and isinstance(value, Mapping):
            waiting += value.values()
    return length < _BRIEF


def reported(result: Mapping[str, Any], item_id: str) -> Mapping[str, Any]:
    """Return a result as JSON has it; an error in place of one that no report can hold."""
    error: RyeError
    try:
        text = _encode(result)
    except (TypeError, ValueError, RecursionError) as problem:
        error = RyeError(f"The result isn't JSON: {problem}.", next_step="Return JSON's types.")
    else:
        plain: Mapping[str, Any] = json.loads(text)
        if len(text) > MAX_PARAMETER_BYTES:
            size = f"has {len(text):,} bytes, and a node reports {MAX_PARAMETER_BYTES:,}"
        elif has_too_many_values(text.encode()):
            size = f"holds more than the {MAX_VALUES:,} values that a node reports"
        elif is_nested_too_deeply(plain, MAX_RESULT_DEPTH):
            size = f"is nested deeper than the {MAX_RESULT_DEPTH} levels that a node reports"
        else:
            return plain
        error = RyeError(
            f"The result {size}.",
            next_step="Write it to a file, and collect the changed files.",
        )
    return write_error(error.during(item_id))
