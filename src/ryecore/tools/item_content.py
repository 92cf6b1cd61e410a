"""The content blocks of an item's result, as a model gets them: media as media, nothing twice.

An item that returns more than text and data returns an object with a list at `content`, as MCP
writes it; tools of MCP servers do.

Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from ryecore.errors import StoreError
from ryecore.lillux.event_loop import run_in_thread
from ryecore.llm.media import UNKNOWN, MediaStore, media_type_of

__all__ = ["as_model_gets", "for_model", "has_blocks"]

_SHOWN: Final = re.compile(r"(image|audio)/[a-z0-9.+-]{1,80}|application/pdf")
"""The types of media that models take."""


def has_blocks(data: object) -> bool:
    """Return whether an item's result has content blocks."""
    return (
        isinstance(data, Mapping)
        and isinstance(listed := data.get("content"), list)
        and all(isinstance(one, Mapping) and isinstance(one.get("type"), str) for one in listed)
    )


async def as_model_gets(data: object, store: MediaStore | None) -> object:
    """Return an item's result as a model gets it: one with content blocks by `for_model`."""
    if not has_blocks(data):
        return data
    return await run_in_thread(for_model, cast("Mapping[str, Any]", data), store)


def for_model(data: Mapping[str, Any], store: MediaStore | None) -> dict[str, Any]:
    """Return a result with content blocks as a model gets it. It may store media, which blocks.

    Images, audio and PDF become media; what can't be stored is said by type and size. Text that
    says the same as the structured result is left out.
    """
    blocks = [_block(one, store) for one in data["content"]]
    structured = data.get("structured_content")
    if structured is not None and all(_repeats(one, structured) for one in blocks):
        blocks = []
    rest = {key: value for key, value in data.items() if key != "content"}
    return {**rest, "content": blocks} if blocks else rest


def _block(block: Mapping[str, Any], store: MediaStore | None) -> dict[str, Any]:
    kind = block["type"]
    if kind in ("image", "audio") and isinstance(block.get("data"), str):
        return {**block, "data": _medium(block["data"], block.get("mimeType"), store)}
    resource = block.get("resource")
    if (
        kind == "resource"
        and isinstance(resource, Mapping)
        and isinstance(resource.get("blob"), str)
    ):
        blob = _medium(resource["blob"], resource.get("mimeType"), store)
        return {**block, "resource": {**resource, "blob": blob}}
    return dict(block)


def _medium(text: str, declared: object, store: MediaStore | None) -> object:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return "[data that isn't base64]"
    kind = media_type_of(content)
    if kind == UNKNOWN and isinstance(declared, str):
        kind = declared.lower().partition(";")[0].strip()
    if store is not None and _SHOWN.fullmatch(kind):
        try:
            return store.put(content, kind)
        except StoreError:
            pass
    shown = kind if _SHOWN.fullmatch(kind) else UNKNOWN
    return f"[{shown}, {len(content):,} bytes]"


def _repeats(block: Mapping[str, Any], structured: object) -> bool:
    """Return whether a block says no more than the structured result."""
    text = block.get("text")
    if block["type"] != "text" or not isinstance(text, str):
        return False
    alone = structured
    if isinstance(structured, Mapping) and structured.keys() == {"result"}:
        alone = structured["result"]
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = text
    parts = alone if isinstance(alone, list) else [alone]
    return said in (structured, alone) or text in parts or said in parts
