# rye:signed:2026-11-28T17:20:55Z:f6cfbb003e5b90c07689b88de756115ea706045a38a8028814c0625d8af9c57d:BxuFWiACuem1malqdtMo5fGA_GLZ5tf_f39LUiZPgjqco8wGkMLkYNkLzBn7SwuCz4sGXHLTH8mpyBUoMhmCCA:a50d0ff255b90b74
"""Where a text that is not in a file stands almost: what somebody needs who mistyped it."""

from __future__ import annotations

import time

SECONDS = 0.5
LONGEST = 300  # characters of a line that is compared


def described(data: bytes, old: bytes) -> str:
    """Return a sentence on the line nearest to the text that was not found; empty if none is near.

    Lines of `data` end in LF.
    """
    lines = data.decode("utf-8", "replace").split("\n")
    wanted = [" ".join(line.split()) for line in old.decode().strip().split("\n")]
    return _alike(lines, wanted) or _similar(lines, wanted[0])


def _alike(lines: list[str], wanted: list[str]) -> str:
    """The place where the most lines are the same but for white space."""
    best = line_number = 0
    for index, line in enumerate(lines):
        if not wanted[0] or wanted[0] not in " ".join(line.split()):
            continue
        same = 1
        for there, here in zip(lines[index + 1 : index + len(wanted)], wanted[1:], strict=False):
            if " ".join(there.split()) != here:
                break
            same += 1
        if same > best:
            best, line_number = same, index + 1
    if not best:
        return ""
    if best == len(wanted):
        return f"From line {line_number} on only white space differs. "
    number = line_number + best
    there = repr(lines[number - 1][:LONGEST]) if number <= len(lines) else "behind the end"
    return f"It is alike from line {line_number} on, but line {number} is {there}. "


def _similar(lines: list[str], wanted: str) -> str:
    """The one line that resembles most, if one does."""
    import difflib

    until = time.monotonic() + SECONDS
    matcher = difflib.SequenceMatcher(None, "", wanted[:LONGEST], autojunk=False)
    best, found = 0.6, 0
    for number, line in enumerate(lines, 1):
        if time.monotonic() > until:
            break
        matcher.set_seq1(" ".join(line[:LONGEST].split()))
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            if ratio > best:
                best, found = ratio, number
    if not found:
        return ""
    return f"The nearest is line {found}: {lines[found - 1][:LONGEST]!r}. "
