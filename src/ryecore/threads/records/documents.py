"""Markdown that a thread leaves behind, signed as a record: never as an item.

The first line is a comment with the run key's signature over the thread and the rest of the file.
It doesn't stand where, nor look like what, an item's signature does: to search and fetch the file
is unsigned text.

Source: decisions 5 and 36.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Final

from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.state.records import holds, sign_record

__all__ = ["document_holds", "fenced", "frontmatter", "sign_document", "visible"]

_LINE: Final = re.compile(r"<!-- rye-record:(?P<kind>[a-z_]+) (?P<payload>[!-~]+) -->")
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff0-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
_number: Final = json.JSONEncoder(allow_nan=False).encode
_FENCE: Final = re.compile(r"`{3,}")


def sign_document(kind: str, thread_id: str, body: str, key: SigningKey) -> bytes:
    """A document with its signature in front.

    Args:
        kind: What it is, such as `capabilities`; it is signed too.
        thread_id: The thread that it is of; signed too.
        body: The text.
        key: The run key.
    """
    encoded = body.encode()
    signature = sign_record(kind, _record(thread_id, encoded), key)["_signature"]
    return f"<!-- rye-record:{kind} {signature} -->\n".encode() + encoded


def document_holds(kind: str, thread_id: str, content: bytes, key: PublicKey) -> bool:
    """Whether a key has signed exactly this document, of this kind and this thread."""
    line, newline, body = content.partition(b"\n")
    found = _LINE.fullmatch(line.decode("ascii", errors="replace"))
    if found is None or not newline or found["kind"] != kind:
        return False
    return holds(kind, {**_record(thread_id, body), "_signature": found["payload"]}, key)


def _record(thread_id: str, body: bytes) -> dict[str, object]:
    return {"thread_id": thread_id, "content_hash": hashlib.sha256(body).hexdigest()}


def visible(text: str) -> str:
    r"""Text as it may be shown: what can't be seen, such as an escape, stands as `\x1b`."""
    plain = text.replace("\r\n", "\n")
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), plain)


def fenced(text: str, language: str = "text") -> str:
    """Text in a fence that nothing in it can close.

    Args:
        text: Anybody's.
        language: What the fence says that it holds; our own word.
    """
    shown = visible(text)
    longest = max(map(len, _FENCE.findall(shown)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{shown}{'' if shown.endswith(chr(10)) else chr(10)}{fence}\n"


def frontmatter(fields: Mapping[str, object]) -> str:
    """Fields as a YAML fence, each on a line of its own that no value can leave.

    Args:
        fields: Names, which are ours, and JSON-ready values, which may be anybody's.
    """
    lines = (f"{name}: {_scalar(value)}\n" for name, value in fields.items())
    return f"```yaml\n{''.join(lines)}```\n"


def _scalar(value: object) -> str:
    """JSON is YAML, but for halves of characters, and what YAML doesn't print."""
    if isinstance(value, str):
        return _quoted(visible(value))
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{_scalar(str(name))}: {_scalar(one)}" for name, one in value.items())
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_scalar, value)) + "]"
    return _number(value)
