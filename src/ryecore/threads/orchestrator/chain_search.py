"""Searching the transcripts of a chain of threads.

Regular expressions are matched by the native engine, a line at a time: it needs no more than linear
time, or a bounded number of steps where a pattern looks around, and lets the event loop go on.

Source: docs/design/threads.md#orchestrator.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, TypeAlias

from attrs import frozen

from ryecore.errors import InvalidQuery
from ryecore.lillux.schema import SchemaValidator
from ryecore.state.transcript_format import Record

__all__ = [
    "MAX_QUERY_CHARS",
    "MAX_RESULTS",
    "Found",
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
"""How many lines are matched before the time is looked at."""

Match: TypeAlias = Callable[[Sequence[str]], Sequence[int]]
"""Says which of some lines match."""


@frozen
class Found:
    """A record that matches.

    Attributes:
        thread_id: Whose transcript it stands in.
        timestamp: When it was written, in seconds since 1970 (UTC).
        event_type: What it records.
        turn: The turn that it belongs to; None where it belongs to none.
        excerpt: Of the first line that matches, what is around the match.
    """

    thread_id: str
    timestamp: float
    event_type: str
    turn: int | None
    excerpt: str

    def to_dict(self) -> dict[str, object]:
        """The match as a JSON-ready object."""
        return {
            "thread_id": self.thread_id,
            "timestamp": self.timestamp,
            "event_type": self.event_type,
            "turn": self.turn,
            "excerpt": self.excerpt,
        }


def matcher(query: str, search_type: SearchType) -> Match:
    """What finds the lines that a query means.

    Args:
        query: A text, in which case doesn't count; or a regular expression, in which it does.
            1 to 500 characters.
        search_type: Which of the two it is.

    Raises:
        InvalidQuery: It is empty, too long, or no regular expression.
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
    return lambda lines: [at for at, line in enumerate(lines) if wanted in line.casefold()]


class _Pattern:
    """A regular expression, matched natively and without the interpreter's lock.

    A schema whose items must not match finds, as its failures, those that do.
    """

    def __init__(self, query: str) -> None:
        self._query = query
        try:
            self._schema = SchemaValidator(json.dumps({"items": {"not": {"pattern": query}}}))
        except ValueError:
            raise InvalidQuery(
                "The query is no regular expression that can be used here.",
                next_step="Write a simpler one, or search for text.",
                query=query,
            ) from None

    def matching(self, lines: Sequence[str]) -> list[int]:
        found = self._schema.failures(json.dumps(lines))
        if any(not one.path for one in found):
            raise InvalidQuery(
                "The query takes too long to match.",
                next_step="Write a simpler one, or search for text.",
                query=self._query,
            )
        return [int(one.path.strip("[]")) for one in found]


def search_records(
    records: Iterable[tuple[str, Record]],
    match: Match,
    *,
    most: int,
    until: float,
) -> tuple[list[Found], bool]:
    """Find the records that match, the oldest first.

    Args:
        records: The records, each with the id of the thread whose file it stands in.
        match: What a query means.
        most: How many are wanted.
        until: The monotonic time in seconds when to stop with what was found.

    Returns:
        The records, and whether there may be more.
    """
    found: list[Found] = []
    for thread_id, record in records:
        if time.monotonic() >= until:
            return found, True
        if record.type in _NEVER_SEARCHED:
            continue
        line = _first_match(record.payload, match, until)
        if line is None:
            continue
        if len(found) == most:
            return found, True
        turn = record.payload.get("turn")
        excerpt = _excerpt(line, match)
        found.append(
            Found(
                thread_id,
                record.timestamp,
                record.type,
                turn if isinstance(turn, int) else None,
                excerpt,
            )
        )
    return found, False


def _first_match(payload: object, match: Match, until: float) -> str | None:
    lines = _lines(payload)
    while batch := list(islice(lines, _BATCH)):
        matching = match(batch)
        if matching:
            return batch[min(matching)]
        if time.monotonic() >= until:
            return None
    return None


def _excerpt(line: str, match: Match) -> str:
    """The part of a line that matches by itself; its beginning where only the whole does."""
    if len(line) <= _EXCERPT_CHARS:
        return line
    parts = list(_windows(line, _EXCERPT_CHARS, _EXCERPT_CHARS // 2))
    matching = match(parts)
    first = min(matching) if matching else 0
    before, after = "…" if first else "", "…" if first < len(parts) - 1 else ""
    return f"{before}{parts[first]}{after}"


def _lines(payload: object) -> Iterator[str]:
    """The lines of all texts and numbers in a payload, long ones in pieces that overlap."""
    waiting = [payload]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting.extend(reversed(list(one.values())))
        elif isinstance(one, list | tuple):
            waiting.extend(reversed(one))
        elif isinstance(one, str):
            # What is no character, such as half a pair, is none for the native side either.
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
