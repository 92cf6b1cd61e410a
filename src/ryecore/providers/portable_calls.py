"""Calls of a conversation in a form that every vendor takes, whichever model wrote them.

A conversation may continue with another vendor's model, and models invent tools. A vendor that
refuses an id, a name or arguments would refuse each later request of the conversation as well.
"""

import hashlib
import json
import re
from collections.abc import Container
from typing import Any, Final

from ryecore.strict_json import FINITE_DECODER

__all__ = ["arguments_of", "portable_id", "portable_name"]

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_DEPTH: Final = 100
"""At a greater depth an SDK may overflow its stack, as Google's does."""


def portable_id(call_id: str, max_chars: int = 64) -> str:
    """Return a call's id: unchanged if it fits, else a stable replacement.

    `max_chars` is at least 29.
    """
    if len(call_id) <= max_chars and _ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"call_{digest[:24]}"


def portable_name(name: str, known: Container[str]) -> str:
    """Return the name of a called tool: unchanged if it fits, or if a known tool has it."""
    if name in known or _NAME.fullmatch(name):
        return name
    return f"_{_NOT_IN_NAMES.sub('_', name)}"[:64]


def arguments_of(text: str) -> dict[str, Any] | None:
    """Return a call's arguments; an empty text has none.

    None stands for a text that isn't a JSON object, or one that can't be written again: with
    numbers that JSON lacks, lone surrogates, or too much depth.
    """
    try:
        arguments = FINITE_DECODER.decode(text or "{}")
        if "\\u" in text:
            json.dumps(arguments, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    is_long = text.count("{") + text.count("[") > _MAX_DEPTH
    return None if is_long and _depth(arguments) > _MAX_DEPTH else arguments


def _depth(value: object) -> int:
    """Return the depth of nesting, without recursion, since it may be great."""
    depth, level = 0, [value]
    while level := [
        inner
        for one in level
        if isinstance(one, dict | list)
        for inner in (one.values() if isinstance(one, dict) else one)
    ]:
        depth += 1
    return depth
