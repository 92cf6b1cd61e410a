"""The text of a knowledge item, for somebody who is to read it: no signature, no metadata. Pure."""

import re
from typing import Final

__all__ = ["knowledge_text"]

_SIGNATURE: Final = re.compile(r"^(?:<!--|#|//|--|;)[ \t]*rye:signed:[^\n]*(?:\n|\Z)")
_FRONT_MATTER: Final = re.compile(r"\A---\n(.*?\n)?---[ \t]*(?:\n|\Z)", re.DOTALL)
_FENCE: Final = re.compile(r"^```ya?ml[^\n]*\n(.*?)^```[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_DECLARES: Final = re.compile(r"^(?:name|id|title|version|category|entry_type|tags):", re.MULTILINE)
_MAX_METADATA: Final = 64 * 1024


def knowledge_text(content: str) -> str:
    """An item's text without its signature line and its metadata.

    Args:
        content: The file's text. Metadata is front matter, or a YAML fence that stands before all
            text but headings and declares a name, title or the like; every other fence is content.
    """
    text = _SIGNATURE.sub("", content.removeprefix("\ufeff").replace("\r\n", "\n"), count=1)
    front = _FRONT_MATTER.match(text, 0, _MAX_METADATA)
    if front is not None:
        return text[front.end() :].strip()
    fence = _FENCE.search(text, 0, _MAX_METADATA)
    if fence is not None and _DECLARES.search(fence[1]) and _is_headings(text[: fence.start()]):
        return f"{text[: fence.start()].rstrip()}\n\n{text[fence.end() :].lstrip()}".strip()
    return text.strip()


def _is_headings(text: str) -> bool:
    return all(line.startswith("#") or not line.strip() for line in text.splitlines())
