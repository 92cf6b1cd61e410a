"""The schema of a new SQLite file is the one that its migrations lead to."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from ryecore.node.database import _MIGRATIONS as OF_NODES
from ryecore.state.schema import MIGRATIONS as OF_THREADS
from ryecore.state.sqlite_schema import Migration, upgrade


def content(connection: sqlite3.Connection) -> tuple[list[object], ...]:
    """The version, the schema, and how many rows the tables have."""
    schema = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")
    found = [*schema.fetchall()]
    tables = [name for kind, name, _ in found if kind == "table"]
    return (
        connection.execute("PRAGMA user_version").fetchall(),
        found,
        [row for name in tables for row in connection.execute(f"SELECT count(*) FROM {name}")],
    )


TEXTS = (("CREATE VIRTUAL TABLE texts USING fts5 (text)",), ("CREATE TABLE more (x)",))


@pytest.mark.parametrize(
    "migrations", [OF_THREADS, OF_NODES, TEXTS], ids=["threads", "nodes", "texts"]
)
def test_a_new_file_is_the_same_however_it_is_made(
    tmp_path: Path, migrations: Sequence[Migration]
) -> None:
    found = []
    for name, parts in {
        "one by one": [*range(len(migrations))],  # as versions of ryecore came
        "first": [0],
        "next": [0],
    }.items():
        with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as opened:
            for version in parts:
                until = version + 1 if len(parts) > 1 else len(migrations)
                upgrade(opened, migrations[:until], version)
            found.append(content(opened))

    by_steps, first, following = found
    assert first == by_steps
    assert following == by_steps


def test_a_failed_upgrade_changes_nothing(tmp_path: Path) -> None:
    migrations = [
        ["CREATE TABLE a (x)"],
        ["ALTER TABLE a ADD COLUMN y", "ALTER TABLE b RENAME TO c"],
    ]
    with closing(sqlite3.connect(tmp_path / "a", isolation_level=None)) as opened:
        before = content(opened)
        with pytest.raises(sqlite3.OperationalError, match="no such table: b"):
            upgrade(opened, migrations, 0)
        assert content(opened) == before
