"""The search through the transcripts of a chain of threads.

The native engine matches regular expressions a line at a time. It needs at most linear time, or a
bounded number of steps for a pattern with look-around, and doesn't block the event loop.

Source: docs/design/threads.md#orchestrator.
"""

import json
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, TypeAlias

from ryecore.errors import InvalidQuery
from ryecore.lillux.schema import SchemaValidator
from ryecore.state.transcript_format import Record
from ryecore.threads.orchestrator.children import Document

__all__ = [
    "MAX_QUERY_CHARS",
    "MAX_RESULTS",
    "SearchType",
    "matcher",
    "search_records",
]

SearchType: TypeAlias = Literal["text", "regex"]

MAX_QUERY_CHARS: Final = 500
MAX_RESULTS: Final = 50

_NEVER_SEARCHED: Final = frozenset({"token_delta", "checkpoint", "model_call", "model_call_end"})
_LINE_CHARS: Final = 2000
_LINE_OVERLAP: Final = 200
_EXCERPT_CHARS: Final = 300
_BATCH: Final = 64
"""How many lines are matched between two checks of the time."""

Match: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[int]]]
"""Returns the indexes of the lines that match."""


def matcher(query: str, search_type: SearchType) -> Match:
    """Return the function that matches lines for a query of 1 to 500 characters.

    A text matches in any case, a regular expression only in its own.
    """
    if not query.strip() or len(query) > MAX_QUERY_CHARS:
        raise InvalidQuery(
            f"A query has 1 to {MAX_QUERY_CHARS} characters.",
            next_step="Search for a few words of it.",
            query=query[:MAX_QUERY_CHARS],
        )
    if search_type == "regex":
        return _Pattern(query).matching
    wanted = query.casefold()

    async def matching(lines: Sequence[str]) -> list[int]:
        return [at for at, line in enumerate(lines) if wanted in line.casefold()]

    return matching


class _Pattern:
    """A regular expression, matched natively and without the interpreter's lock.

    A JSON Schema forbids the pattern, so its failures are the matches.
    """

    def __init__(self, query: str) -> None:
        self._query = query
        try:
            self._schema = SchemaValidator(json.dumps({"items": {"not": {"pattern": query}}}))
        except ValueError:
            raise InvalidQuery(
                "The query isn't a regular expression that can be used here.",
                next_step="Write a simpler one, or search for text.",
                query=query,
            ) from None

    async def matching(self, lines: Sequence[str]) -> list[int]:
        found = await self._schema.failures_async(json.dumps(lines))
        if any(not one.path for one in found):
            raise InvalidQuery(
                "The query takes too long to match.",
                next_step="Write a simpler one, or search for text.",
                query=self._query,
            )
        return [int(one.path.strip("[]")) for one in found]


async def search_records(
    records: AsyncIterable[tuple[str, Record]],
    match: Match,
    *,
    most: int,
    until: float,
) -> tuple[list[Document], bool]:
    """Find records, oldest first, until a monotonic time; return whether there may be more.

    Each is returned with the text around the match in its first matching line.
    """
    found: list[Document] = []
    async for thread_id, record in records:
        if time.monotonic() >= until:
            return found, True
        if record.type in _NEVER_SEARCHED:
            continue
        line = await _first_match(record.payload, match, until)
        if line is None:
            continue
        if len(found) == most:
            return found, True
        turn = record.payload.get("turn")
        found.append(
            {
                "thread_id": thread_id,
                "timestamp": record.timestamp,
                "event_type": record.type,
                "turn": turn if isinstance(turn, int) else None,
                "excerpt": await _excerpt(line, match),
            }
        )
    return found, False


async def _first_match(payload: object, match: Match, until: float) -> str | None:
    lines = _lines(payload)
    while batch := list(islice(lines, _BATCH)):
        matching = await match(batch)
        if matching:
            return batch[min(matching)]
        if time.monotonic() >= until:
            return None
    return None


async def _excerpt(line: str, match: Match) -> str:
    """Return the part of a line that matches by itself; its beginning where only the whole does."""
    if len(line) <= _EXCERPT_CHARS:
        return line
    parts = list(_windows(line, _EXCERPT_CHARS, _EXCERPT_CHARS // 2))
    matching = await match(parts)
    first = min(matching) if matching else 0
    before, after = "…" if first else "", "…" if first < len(parts) - 1 else ""
    return f"{before}{parts[first]}{after}"


def _lines(payload: object) -> Iterator[str]:
    """Yield the lines of all texts and numbers in a payload, long ones in overlapping pieces."""
    waiting = [payload]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting.extend(reversed(list(one.values())))
        elif isinstance(one, list | tuple):
            waiting.extend(reversed(one))
        elif isinstance(one, str):
            # A lone surrogate isn't a character, neither here nor for the native side.
            whole = one if one.isascii() else one.encode(errors="replace").decode()
            for line in whole.splitlines():
                if line:
                    yield from _windows(line, _LINE_CHARS, _LINE_CHARS - _LINE_OVERLAP)
        elif isinstance(one, int | float) and not isinstance(one, bool):
            yield str(one)


def _windows(line: str, size: int, step: int) -> Iterator[str]:
    yield line[:size]
    for start in range(step, len(line) - size + step, step):
        yield line[start : start + size]
