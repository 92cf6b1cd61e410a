"""Descriptions of items for people who look for them, and the readable text of knowledge.

Nothing here decides anything: a broken item is described only by its name.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ryecore.errors import MetadataError
from ryecore.frozen import frozen
from ryecore.items.documents import DOCUMENT_EXTENSIONS, parse_document
from ryecore.items.metadata import parse_metadata

__all__ = ["ItemDescription", "describe", "knowledge_metadata", "knowledge_text"]

_MAX_HEADER: Final = 64 * 1024
# No pattern here looks ahead over more than its own line or tag: files of others are read too.
_HEADING: Final = re.compile(r"^#[ \t]+(\S[^\n]*)", re.MULTILINE)
_SIGNATURE: Final = re.compile(r"\A<!-- rye:signed:[^\n]*\n")
_YAML_FENCE: Final = re.compile(r"^```ya?ml[^\n]*\n", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"<directive\b[^<>]*>")
_VERSION: Final = re.compile(r"""\bversion\s*=\s*["']([^"'<>]*)["']""")
_ENTITIES: Final = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}


@frozen
class ItemDescription:
    """The description of an item. Its category is the folders of its id, as `acme/csv`."""

    name: str
    title: str
    description: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    version: str | None = None


def describe(kind: str, relative: str, content: bytes) -> ItemDescription:
    """Describe an item from its source; by its name where that can't be read. It never fails."""
    path = Path(relative)
    try:
        declared = _READERS[kind](content, path)
    except MetadataError:
        declared = {}
    title = _text(declared.get("title"))
    tags = declared.get("tags")
    return ItemDescription(
        name=path.stem,
        title=title or _text(declared.get("name")) or path.stem,
        description=_text(declared.get("description")),
        category=relative.rpartition("/")[0],
        tags=tuple(map(_text, tags)) if isinstance(tags, list | tuple) else (),
        version=_text(declared.get("version")) or None,
    )


def _text(value: object) -> str:
    """Return a scalar on one line; empty for any other value."""
    if not isinstance(value, str | int | float):
        return ""
    try:
        return " ".join(str(value).split())
    except ValueError:  # a number of more digits than Python writes
        return ""


def _read_directive(content: bytes, _path: Path) -> Mapping[str, object]:
    text = _header(content)
    opened = _DIRECTIVE.search(text)
    if opened is None:
        return {"title": _heading(text)}
    version = _VERSION.search(opened[0])
    _, _, behind = text[opened.end() :].partition("<description>")
    said, closed, _ = behind.partition("</description>")
    return {
        "title": _heading(text[: opened.start()]),
        "version": version[1] if version else "",
        "description": _unescape(said) if closed else "",
    }


def _read_knowledge(content: bytes, path: Path) -> Mapping[str, object]:
    if path.suffix in DOCUMENT_EXTENSIONS:
        return parse_document(content, path)
    text = _header(content)
    if text.startswith("---\n"):
        block, closed, rest = text[4:].partition("\n---")
        heading = _heading(rest)
    else:
        fence = _YAML_FENCE.search(text)
        block, closed, _ = text[fence.end() :].partition("\n```") if fence else ("", "", "")
        heading = _heading(text)
    if not closed:
        return {"title": _heading(text)}
    return {"title": heading, **parse_document(block.encode(), path.with_suffix(".yaml"))}


def _header(content: bytes) -> str:
    """Return the text that a description can stand in, without its signature line."""
    text = content[:_MAX_HEADER].decode("utf-8", errors="replace").replace("\r\n", "\n")
    return _SIGNATURE.sub("", text).lstrip()


def _heading(text: str) -> str:
    found = _HEADING.search(text)
    return found[1].rstrip(" \t#") if found else ""


def _unescape(text: str) -> str:
    return re.sub(r"&\w{2,4};", lambda found: _ENTITIES.get(found[0], found[0]), text)


def _read_config(_content: bytes, _path: Path) -> Mapping[str, object]:
    # The values of a configuration file don't describe it.
    return {}


_READERS: Final = {
    "tool": parse_metadata,
    "directive": _read_directive,
    "knowledge": _read_knowledge,
    "config": _read_config,
}


_SIGNATURE_LINE: Final = re.compile(r"^(?:<!--|#|//|--|;)[ \t]*rye:signed:[^\n]*(?:\n|\Z)")
_FRONT_MATTER: Final = re.compile(r"\A---\n(.*?\n)?---[ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE: Final = re.compile(r"^```ya?ml[^\n]*\n(.*?)^```[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_DECLARES: Final = re.compile(r"^(?:name|id|title|version|category|entry_type|tags):", re.MULTILINE)
_MAX_METADATA: Final = 64 * 1024


def knowledge_metadata(content: bytes, relative: str) -> Mapping[str, object]:
    """Return what a knowledge item declares of itself; empty where that can't be read."""
    try:
        return _read_knowledge(content, Path(relative))
    except MetadataError:
        return {}


def knowledge_text(content: str) -> str:
    """Return an item's text without its signature line and its metadata.

    Metadata is front matter, or a YAML fence that stands before all text but headings and declares
    a name, title or the like; every other fence is content.
    """
    text = _SIGNATURE_LINE.sub("", content.removeprefix("\ufeff").replace("\r\n", "\n"), count=1)
    front = _FRONT_MATTER.match(text, 0, _MAX_METADATA)
    if front is not None:
        return text[front.end() :].strip()
    fence = _FENCE.search(text, 0, _MAX_METADATA)
    if fence is not None and _DECLARES.search(fence[1]) and _is_headings(text[: fence.start()]):
        return f"{text[: fence.start()].rstrip()}\n\n{text[fence.end() :].lstrip()}".strip()
    return text.strip()


def _is_headings(text: str) -> bool:
    return all(line.startswith("#") or not line.strip() for line in text.splitlines())
