"""The store's statements in PostgreSQL's words, and its rows.

The statements are written once, for SQLite. Where PostgreSQL says something in another way, its
words are put in their place.

Source: decision 77.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from ryecore.state.schema import BELOW_AND_AFTER, NOW

__all__ = ["NamedRow", "in_postgres"]

_BELOW_AND_AFTER: Final = """WITH RECURSIVE below (thread_id) AS (
        VALUES (?) UNION SELECT next.thread_id FROM below CROSS JOIN LATERAL (
            SELECT child.thread_id FROM threads AS child WHERE child.parent_id = below.thread_id
            UNION ALL SELECT one.continuation_thread_id FROM threads AS one
            WHERE one.thread_id = below.thread_id AND one.continuation_thread_id IS NOT NULL
            AND (one.status = 'continued' OR one.completed_at IS NULL)
        ) AS next)"""
"""A recursive query may name itself once only."""

_WORDS: Final = (
    ("results CROSS JOIN", "results JOIN"),
    ("one CROSS JOIN", "one JOIN"),
    (BELOW_AND_AFTER, _BELOW_AND_AFTER),
    (
        NOW,
        "to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')",
    ),
    ("instr(body, '\"died\": true')", "strpos(body, '\"died\": true') > 0"),
    ("min(", "least("),
    ("json_each(labels) AS one", "json_each_text(CAST(labels AS json)) AS one"),
    (
        "json_extract(labels, ?)",
        "(jsonb_path_query_first(CAST(labels AS jsonb), CAST(? AS jsonpath)) #>> '{}')",
    ),
    (
        "SELECT value FROM json_each(?)",
        "SELECT value FROM json_array_elements_text(CAST(? AS json))",
    ),
    ("json_each(?) AS one", "json_array_elements_text(CAST(? AS json)) AS one (value)"),
    # Ids are compared by their bytes, whatever the language of the database.
    (
        "thread_id >= ? AND thread_id < ?",
        'thread_id COLLATE "C" >= ? AND thread_id COLLATE "C" < ?',
    ),
    ("threads.thread_id > one.value", 'threads.thread_id COLLATE "C" > one.value'),
    ("threads.thread_id < one.value", 'threads.thread_id COLLATE "C" < one.value'),
    ("?", "%s"),
)


@cache
def in_postgres(sql: str) -> str:
    """Return a statement of the store in PostgreSQL's words. Each is one of a few constants."""
    for words, instead in _WORDS:
        sql = sql.replace(words, instead)
    return sql


class NamedRow:
    """A row whose values have places and names, as one of SQLite."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Mapping[str, int], values: tuple[Any, ...]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, key: Any, /) -> Any:
        """Return a value by its place or name, or several by a slice."""
        return self._values[self._names[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the values."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def keys(self) -> list[str]:
        """Return the names."""
        return list(self._names)
