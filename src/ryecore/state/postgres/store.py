"""The tables of a project's threads on a PostgreSQL server."""

from functools import partial

from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.ledger import PostgresLedger
from ryecore.state.postgres.notices import Notices
from ryecore.state.postgres.objects import PostgresObjects
from ryecore.state.postgres.records import PostgresRecordStore
from ryecore.state.postgres.registry import PostgresRegistry
from ryecore.state.postgres.run_queue import PostgresRunQueue
from ryecore.state.postgres.thread_files import PostgresThreadFiles
from ryecore.state.postgres.workers import in_workers
from ryecore.state.sql_approvals import SqlApprovals
from ryecore.state.sql_tables import SqlTables

__all__ = ["open_tables"]


def open_tables(address: str, place: str) -> SqlTables:
    """Open the tables at an address; they are made or upgraded if need be.

    Args:
        address: The address.
        place: What tells the changes of this machine and folder from those of others.

    Raises:
        ConfigError: The address isn't one.
        StateUnreachable: The server can't be reached, or refuses the user.
        StateError: The schema can't be made, or is of a newer version.
    """
    database = PostgresDatabase(PostgresAddress.parse(address), place)
    database.set_up()
    return SqlTables(
        database,
        in_workers(PostgresRegistry(database)),
        in_workers(PostgresLedger(database)),
        in_workers(SqlApprovals(database)),
        Notices(database),
        in_workers(PostgresRunQueue(database)),
        partial(PostgresRecordStore, database),
        PostgresThreadFiles(database),
        PostgresObjects(database),
    )
