"""The documents of the built-in bundle, and its tools' metadata, parsed when it was sealed.

To parse YAML, TOML and Python takes a tenth of what a short command takes, and most projects run on
the bundle's runtimes. A document is found by the SHA-256 of its bytes, so that no other content is
ever read as it; the table is trusted as the code beside it is.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, cast

from ryecore.lillux.digests import sha256_hex

__all__ = ["DOCUMENTS_PATH", "find_document", "render_documents"]

DOCUMENTS_PATH: Final = Path(__file__).parents[1] / "system" / "documents.json"


def find_document(content: bytes, extension: str) -> dict[str, object] | None:
    """Return what a document of the bundle holds; None for one that isn't of the bundle."""
    text = _documents().get(_name(content, extension))
    return None if text is None else cast("dict[str, object]", json.loads(text))


@cache
def _documents() -> Mapping[str, str]:
    try:
        return cast("Mapping[str, str]", json.loads(DOCUMENTS_PATH.read_bytes()))
    except FileNotFoundError:  # the bundle was never sealed
        return {}


def _name(content: bytes, extension: str) -> str:
    return sha256_hex(content) + extension


def render_documents(parsed: Mapping[tuple[bytes, str], Mapping[str, object]]) -> bytes:
    """Return the table of documents, each given by its bytes and its extension.

    A document that JSON can't hold as it is, such as one with a date, is left out.
    """
    texts: dict[str, str] = {}
    for (content, extension), document in parsed.items():
        try:
            text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            continue
        if json.loads(text) == document:
            texts[_name(content, extension)] = text
    table = json.dumps(texts, ensure_ascii=False, indent=0, sort_keys=True)
    return f"{table}\n".encode()
