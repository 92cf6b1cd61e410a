"""The schema of a SQLite file: made at once where the file is new, else upgraded step by step.

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
_made: Final[dict[tuple[tuple[str, ...], ...], tuple[str, ...]]] = {}
"""The statements that make what migrations lead to, of those that this process has run whole.

They take a quarter of the time: migrations change tables one column after another.
"""


def upgrade(connection: sqlite3.Connection, migrations: Sequence[Migration], version: int) -> None:
    """Upgrade a file from a version, which is 0 for a new one, to that of the last migration.

    Each migration is a transaction of its own. Migrations change the schema alone, no rows of a new
    file.
    """
    key = tuple(map(tuple, migrations))
    made = None if version else _made.get(key)
    if made is not None:
        _run(connection, made, len(migrations))
        return
    for number, statements in enumerate(migrations[version:], version + 1):
        _run(connection, statements, number)
    if not version:
        _made[key] = tuple(sql for (sql,) in connection.execute(_SCHEMA))


def _run(connection: sqlite3.Connection, statements: Migration, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
