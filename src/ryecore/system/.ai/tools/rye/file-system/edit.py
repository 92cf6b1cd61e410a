# rye:signed:2026-11-28T17:20:55Z:bfbc10be2bf2ac32b35add78ff243bffe9a0ade7cc70cd2a60d49ea8abc4dd9b:KSItszQLbWxqWyTncS0XZFULEVnN5skrosfYHooCeuWQowDr9k0AYz8KVepqBMjcozD9CbGWkIqOb0llxFFqAw:a50d0ff255b90b74
"""Replace a piece of a text file."""

from __future__ import annotations

import os
from bisect import bisect_left

from answers import Refused, encoded, flag, reported, text
from atomic import existing, lock, replace
from confined import locate, open_regular

__version__ = "1.0.0"
__tool_type__ = "python"
__executor_id__ = "rye/core/runtimes/python/function"
__category__ = "rye/file-system"
__tool_description__ = (
    "Replace a piece of a text file in the project; the old text must occur exactly once, "
    "unless all its occurrences are to be replaced."
)

CONFIG_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "path": {
            "type": "string",
            "minLength": 1,
            "maxLength": 4096,
            "description": "The file, relative to the project or absolute inside it.",
        },
        "old_text": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1048576,
            "description": "The exact text to replace, with its indentation.",
        },
        "new_text": {
            "type": "string",
            "maxLength": 1048576,
            "description": "The new text.",
        },
        "replace_all": {
            "type": "boolean",
            "default": False,
            "description": "Whether to replace every occurrence.",
        },
    },
    "required": ["path", "old_text", "new_text"],
    "additionalProperties": False,
}

CONFIG_RESOLVE = {"path": "file-system/access.yaml", "mode": "deep_merge", "signed": True}

MAX_BYTES = 10 * 1024 * 1024
MAX_REPLACEMENTS = 100_000
SHOWN = 10  # line numbers in an error


@reported
def execute(params: dict[str, object], project_path: str) -> dict[str, object]:
    """Replace a piece of a text file; see CONFIG_SCHEMA."""
    old, new = encoded(params, "old_text"), encoded(params, "new_text")
    if not old:
        raise Refused("Give the text to replace as old_text; rye/file-system/write makes a file.")
    if old == new:
        raise Refused("old_text and new_text are the same; there is nothing to change.")
    every = flag(params, "replace_all", False)
    place = locate(text(params, "path"), project_path, params, writing=True)
    folder, name = place.open_parent()
    try:
        lock(folder)
        before = existing(folder, name, place.shown)
        descriptor, status = open_regular(folder, name, place.shown)
        with open(descriptor, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES or b"\0" in data[:8192]:
            raise Refused(
                f"{place.shown!r} is binary or larger than {MAX_BYTES} bytes (it has "
                f"{status.st_size}); edit it with a program that understands it."
            )
        changed, count, first = substituted(data, old, new, every, place.shown)
        replace(folder, name, (changed,), before or status, place.shown)
    finally:
        os.close(folder)
    return {
        "success": True,
        "path": place.shown,
        "replacements": count,
        "first_changed_line": first,
    }


def substituted(
    data: bytes, old: bytes, new: bytes, every: bool, shown: str
) -> tuple[bytes, int, int]:
    """Replace the old text in a file's content, each occurrence or the only one.

    Return the new content, the number of replacements, and the first line that changed. Errors call
    the file `shown`.
    """
    # Nobody sees CRLF in what was read, so a line end that is given as LF stands for both.
    free = b"\r" not in old
    folded = data.replace(b"\r\n", b"\n") if free else data
    found = _occurrences(folded, old, every)
    if not found:
        from nearest import described

        raise Refused(
            f"old_text does not occur in {shown!r}. {described(folded, old)}"
            "Read the file again and give the text exactly as it stands."
        )
    if len(found) > 1 and not every:
        raise Refused(_ambiguous(folded, old, found, shown))
    if len(found) > MAX_REPLACEMENTS or len(data) + len(found) * len(new) > 10 * MAX_BYTES:
        raise Refused(f"That is too much to replace in {shown!r} at once; use a program for it.")

    breaks = _breaks(data) if free else []
    many_lines = b"\n" in new and b"\r" not in new and b"\r\n" in data
    pieces, end, first = [], 0, 0
    for at in found:
        start = at + bisect_left(breaks, at)
        pieces.append(data[end:start])
        end = at + len(old) + bisect_left(breaks, at + len(old))
        match, piece = data[start:end], new
        if many_lines and _is_crlf(data, start):
            piece = new.replace(b"\n", b"\r\n")
        if not first and piece != match:
            first = data.count(b"\n", 0, start + _alike(match, piece)) + 1
        pieces.append(piece)
    if not first:
        raise Refused("old_text and new_text differ in line ends only, and those are kept.")
    pieces.append(data[end:])
    return b"".join(pieces), len(found), first


def _occurrences(data: bytes, old: bytes, every: bool) -> list[int]:
    # Where there must be only one, occurrences that overlap make it ambiguous too; a few tell.
    step, most = (len(old), MAX_REPLACEMENTS) if every else (1, SHOWN)
    found: list[int] = []
    at = data.find(old)
    while at >= 0 and len(found) <= most:
        found.append(at)
        at = data.find(old, at + step)
    return found


def _breaks(data: bytes) -> list[int]:
    """Where each CRLF stands once those before it are counted as one byte."""
    breaks: list[int] = []
    at = data.find(b"\r\n")
    while at >= 0:
        breaks.append(at - len(breaks))
        at = data.find(b"\r\n", at + 2)
    return breaks


def _alike(one: bytes, other: bytes) -> int:
    """How many bytes they have in common at their beginning."""
    for index, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            return index
    return min(len(one), len(other))


def _is_crlf(data: bytes, start: int) -> bool:
    """Whether lines end with CRLF where this piece stands."""
    line_end = data.find(b"\n", start)
    if line_end < 0:
        line_end = data.rfind(b"\n", 0, start)
    return line_end > 0 and data[line_end - 1] == 0x0D


def _ambiguous(data: bytes, old: bytes, found: list[int], shown: str) -> str:
    lines = [str(data.count(b"\n", 0, at) + 1) for at in found[:SHOWN]]
    more = ", ..." if len(found) > SHOWN else ""
    count = max(data.count(old), len(found))
    return (
        f"old_text occurs {count} times in {shown!r}, at lines {', '.join(lines)}{more}. "
        "Give more of the text around the one that is meant, or set replace_all."
    )
