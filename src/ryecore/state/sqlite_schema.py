"""The schema of a SQLite file, made in a new file or upgraded in one that is there.

Source: decision 38.
"""

import sqlite3
from collections.abc import Sequence
from typing import Final

__all__ = ["Migration", "upgrade"]

Migration = Sequence[str]
"""The statements that upgrade a file's schema from one version to the next."""

_SCHEMA: Final = (
    "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    " ORDER BY rowid"
)
_MADE: Final[dict[tuple[tuple[str, ...], ...], tuple[str, ...]]] = {}
"""For migrations that this process has run on a new file: the statements that make the result.

They take a quarter of the time: migrations change tables one column after another.
"""


def upgrade(connection: sqlite3.Connection, migrations: Sequence[Migration], version: int) -> None:
    """Upgrade a file from a version, which is 0 for a new one, to that of the last migration.

    All is one transaction, so a new file's first pages are written once. On a new file, migrations
    may change only the schema.
    """
    key = tuple(map(tuple, migrations))
    made = None if version else _MADE.get(key)
    each = (one for statements in migrations[version:] for one in statements)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in each if made is None else made:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    if not version and made is None:
        found = tuple(sql for (sql,) in connection.execute(_SCHEMA))
        # A virtual table has made tables of its own, which its statement makes again.
        if not any(sql.startswith("CREATE VIRTUAL TABLE") for sql in found):
            _MADE[key] = found
