"""The upgrade of a schema on a PostgreSQL server beside those who use it."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ryecore.errors import StateLocked
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.budget_functions import BUDGET_FUNCTIONS
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.schema import MIGRATIONS
from tests.postgres import needs_server, own_schema

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = needs_server

_WAITS = (
    "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
    " AND relation = 'charges'::regclass"
)


@pytest.fixture
def database(postgres_address: str) -> Iterator[PostgresDatabase]:
    """A schema whose next upgrade changes accounts, then charges."""
    address = PostgresAddress.parse(own_schema(postgres_address))
    version = MIGRATIONS.index(BUDGET_FUNCTIONS)
    database = PostgresDatabase(address)
    with database.connections.connect() as other:
        other.execute(f"CREATE SCHEMA {address.schema}".encode())
        other.execute("; ".join(MIGRATIONS[:version]).encode())
        other.execute(
            f"CREATE TABLE ryecore_schema AS SELECT {version}::bigint AS version".encode()
        )
    yield database
    database.close()


def _until(reached: Callable[[], bool]) -> None:
    """Wait for what another connection does."""
    until_s = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < until_s
        time.sleep(0.005)


def test_an_upgrade_and_a_reader_of_two_tables_wait_in_no_circle(
    database: PostgresDatabase,
) -> None:
    """The reader has read charges when the upgrade, which has accounts, waits for them."""
    with (
        ThreadPoolExecutor(1) as pool,
        database.connections.connect() as reader,
        database.connections.connect() as watch,
    ):
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute("SELECT * FROM charges")
        upgrading = pool.submit(database.set_up)
        _until(lambda: upgrading.done() or watch.execute(_WAITS).fetchone() != (0,))
        assert reader.execute("SELECT * FROM accounts").fetchall() == []
        reader.execute("COMMIT")
        upgrading.result()
    assert database.version() == len(MIGRATIONS)


@pytest.mark.parametrize("tables", [("charges", "accounts"), ("accounts", "charges")])
def test_an_upgrade_gets_its_turn_beside_a_reader_that_never_pauses(
    database: PostgresDatabase, tables: tuple[str, str]
) -> None:
    ended, begun = threading.Event(), threading.Event()

    def read() -> None:
        with database.connections.connect() as reader:
            while not ended.is_set():
                reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                for table in tables:
                    reader.execute(f"SELECT * FROM {table}".encode())
                reader.execute("COMMIT")
                begun.set()

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        assert begun.wait(20)
        try:
            database.set_up()
        finally:
            ended.set()
        reading.result()
    assert database.version() == len(MIGRATIONS)


def test_an_upgrade_that_is_kept_waiting_names_the_connection_and_changes_nothing(
    database: PostgresDatabase,
) -> None:
    with database.connections.connect() as reader:
        reader.execute("SET application_name = 'report\x1b[2J'")
        reader.execute("BEGIN")
        reader.execute("SELECT 'monthly' FROM charges")
        pid = reader.info.backend_pid
        with pytest.raises(StateLocked, match="can't be upgraded") as refused:
            database.set_up(wait_s=0.5)
        told = str(refused.value)
        assert f"connection {pid} (report" in told
        assert all(part in told for part in ("idle in transaction", "monthly", "charges"))
        assert "\x1b" not in told
        assert f"pg_terminate_backend({pid})" in str(refused.value.next_step)
        assert [one.pid for one in refused.value.holders] == [pid]
        assert refused.value.waited_s > 0.2
        assert database.version() == MIGRATIONS.index(BUDGET_FUNCTIONS)
        reader.execute("COMMIT")
    database.set_up()
    assert database.version() == len(MIGRATIONS)


def test_an_upgrade_says_who_keeps_the_lock_of_writers(database: PostgresDatabase) -> None:
    with database.connections.connect() as writer:
        writer.execute("BEGIN")
        writer.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", database.lock)
        with pytest.raises(StateLocked) as refused:
            database.set_up(wait_s=0.3)
        assert [one.pid for one in refused.value.holders] == [writer.info.backend_pid]
