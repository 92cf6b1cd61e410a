"""The upgrade of a schema on a server, beside processes that use it.

A transaction that reads several tables locks them one after the other, as an upgrade does. In
different orders the two would deadlock. So an upgrade waits for its locks for less time than the
server waits before it looks for deadlocks; then it releases them all and tries again, in the other
order. It locks all its tables before it changes any, so that a reader that never pauses seldom
comes between two of them.

Source: docs/how-to/share-state-on-postgresql.md; ADR 039.
"""

import re
import time
from binascii import crc32
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import errors

from ryecore.display.sanitize import shorten, to_one_line
from ryecore.errors import StateError, StateLocked
from ryecore.frozen import frozen
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.schema import MIGRATIONS
from ryecore.state.postgres.session import Session, value_of

__all__ = ["UPGRADE_WAIT_S", "LockingConnection", "upgrade", "version_of"]

UPGRADE_WAIT_S: Final = 30.0
"""The longest that an upgrade tries to lock what it changes, in seconds."""

_TABLE_WAIT_MS: Final = 200
"""The longest wait for a table; the server looks for deadlocks after a second by default."""

_SHORTEST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_MIGRATING: Final = crc32(b"ryecore migrations") & 0x7FFFFFFF
_CHANGED: Final = re.compile(r"(?:ALTER TABLE|ON) (\w+)")
"""The names in a migration's statements that may be those of tables which it locks: of ALTER TABLE,
CREATE INDEX and CREATE TRIGGER."""

_MAX_QUERY: Final = 200
_HOLDERS: Final = """
    SELECT a.pid, a.usename, a.application_name, host(a.client_addr), a.state, a.query,
        extract(epoch FROM clock_timestamp() - a.xact_start)::double precision,
        string_agg(DISTINCT c.relname, ', ')
    FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
    LEFT JOIN pg_class AS c ON c.oid = l.relation
    WHERE l.granted AND l.pid <> pg_backend_pid()
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (c.relkind = 'r' AND c.relnamespace = to_regnamespace(%s)
            OR l.locktype = 'advisory' AND (l.classid, l.objid) IN ((%s, 0), (%s, %s)))
    GROUP BY a.pid, a.usename, a.application_name, a.client_addr, a.state, a.query, a.xact_start
    HAVING a.xact_start IS NULL OR clock_timestamp() - a.xact_start > %s * interval '1 ms'
    ORDER BY a.xact_start LIMIT 3
"""


@frozen
class LockingConnection:
    """A connection to the server that keeps a lock, as `pg_stat_activity` shows it.

    What the server shows this user of another user's connection is empty.

    Attributes:
        pid: The process of the server that serves it.
        command: Its user, its program and the machine that it comes from.
        state: What it does, such as `idle in transaction`.
        transaction_s: The age of its transaction in seconds.
        query: Its current or last statement, cut.
        tables: The tables that it has locked; empty where it holds the lock of writers.
    """

    pid: int
    command: str
    state: str
    transaction_s: float | None
    query: str
    tables: str

    def describe(self) -> str:
        """Return it as a part of a sentence."""
        does = f", {self.state}" if self.state else ""
        since = f" for {self.transaction_s:.0f} s" if does and self.transaction_s else ""
        query = f", last statement: {self.query}" if self.query else ""
        locks = f"a lock on {self.tables}" if self.tables else "the lock of writers"
        return f"connection {self.pid} ({self.command}{does}{since}{query}) holds {locks}"


def version_of(session: Session, address: PostgresAddress) -> int:
    """Return the version of a schema; 0 if there is none.

    Raises:
        StateError: A newer ryecore has written it.
    """
    name = (f"{address.schema}.ryecore_schema",)
    if value_of(session.run("SELECT to_regclass(%s)", name)) is None:
        return 0
    query = "SELECT coalesce(max(version), 0) FROM ryecore_schema"
    version = int(value_of(session.run(query)))
    if version > len(MIGRATIONS):
        raise StateError(
            f"{address.shown} was written by a newer ryecore (version {version} of its schema).",
            next_step="Upgrade ryecore.",
        )
    return version


def upgrade(
    session: Session, address: PostgresAddress, lock: tuple[int, int], wait_s: float
) -> None:
    """Make or upgrade a schema; of several processes that do, one does it.

    Args:
        session: A connection.
        address: The address with the schema.
        lock: The lock that its writers take.
        wait_s: The longest time to try, in seconds.

    Raises:
        StateLocked: Others kept locked what has to be changed. Nothing was changed.
        StateError: A newer ryecore has upgraded it meanwhile.
        psycopg.Error: The server has refused something else.
    """
    began_s, pause_s, tries = time.monotonic(), _SHORTEST_PAUSE_S, 0
    while True:
        left_s = began_s + wait_s - time.monotonic()
        tries += 1
        try:
            _try_to_upgrade(
                session, address, lock, max(1, round(left_s * 1000)), is_reversed=tries % 2 == 0
            )
        except (errors.LockNotAvailable, errors.DeadlockDetected) as problem:
            waited_s = time.monotonic() - began_s
            if waited_s + pause_s > wait_s:
                raise _refused(session, address, lock, waited_s) from problem
            time.sleep(pause_s)  # those who wait for what was locked go first
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        else:
            return


def _try_to_upgrade(
    session: Session,
    address: PostgresAddress,
    lock: tuple[int, int],
    wait_ms: int,
    *,
    is_reversed: bool,
) -> None:
    name = address.schema
    session.run(
        f"BEGIN; SET LOCAL lock_timeout = {wait_ms};SELECT pg_advisory_xact_lock({_MIGRATING}, 0)"
    )
    try:
        found = session.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", (name,))
        if found.fetchone() is None:
            session.run(f"CREATE SCHEMA {name}")
        session.run("CREATE TABLE IF NOT EXISTS ryecore_schema (version bigint NOT NULL)")
        # Processes of an earlier version write tables in other orders, and must not deadlock.
        session.run("SELECT pg_advisory_xact_lock(%s, %s)", lock)
        session.run(f"SET LOCAL lock_timeout = {_TABLE_WAIT_MS}")
        migrations = MIGRATIONS[version_of(session, address) :]
        if tables := _changed_tables(session, name, migrations):
            session.run(f"LOCK TABLE {', '.join(reversed(tables) if is_reversed else tables)}")
        for statements in migrations:
            session.run(statements)
        session.run("DELETE FROM ryecore_schema")
        session.run("INSERT INTO ryecore_schema VALUES (%s)", (len(MIGRATIONS),))
    except BaseException:
        session.roll_back()
        raise
    session.run("COMMIT")


def _changed_tables(session: Session, schema: str, migrations: Sequence[str]) -> list[str]:
    """Return the tables that some migrations change, among those that are there."""
    names = {name for one in migrations for name in _CHANGED.findall(one)}
    found = session.run(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'"
        " AND relname = ANY (%s) ORDER BY relname",
        (schema, sorted(names)),
    )
    return [name for (name,) in found.fetchall()]


def _refused(
    session: Session, address: PostgresAddress, lock: tuple[int, int], waited_s: float
) -> StateLocked:
    holders = _holders(session, address, lock)
    locked = " and ".join(one.describe() for one in holders) or "others keep its tables locked"
    step = "End what reads or writes its tables for long (see pg_stat_activity), then try again."
    if holders:
        ends = "; ".join(f"SELECT pg_terminate_backend({one.pid})" for one in holders)
        step = f"Let its transaction end, or end the connection ({ends}), then try again."
    return StateLocked(
        f"{address.shown} can't be upgraded: {locked}. ryecore tried for "
        f"{waited_s:.1f} s; nothing was changed.",
        next_step=step,
        path=address.shown,
        holders=holders,
        waited_s=waited_s,
    )


def _holders(
    session: Session, address: PostgresAddress, lock: tuple[int, int]
) -> tuple[LockingConnection, ...]:
    """Return the connections that keep locked what an upgrade changes, the oldest first."""
    values = (address.schema, _MIGRATING, *lock, _TABLE_WAIT_MS)
    try:
        return tuple(_holder(*row) for row in session.run(_HOLDERS, values).fetchall())
    except psycopg.Error:
        return ()


def _holder(
    pid: int, user: str | None, program: str | None, host: str | None, *told: Any
) -> LockingConnection:
    state, query, transaction_s, tables = told
    parts = (
        _shown(program),
        f"user {_shown(user)}" if user else "",
        f"from {host}" if host else "",
    )
    return LockingConnection(
        pid,
        ", ".join(filter(None, parts)) or "unknown",
        state or "",
        transaction_s,
        _shown(query),
        tables or "",
    )


def _shown(text: str | None) -> str:
    return shorten(to_one_line(text or ""), _MAX_QUERY)
