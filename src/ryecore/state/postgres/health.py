"""The condition of a project's tables on a server, for `rye doctor`. Nothing is changed."""

from typing import Self

from ryecore.frozen import frozen
from ryecore.state.model import ThreadRecord
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.database import PostgresDatabase
from ryecore.state.postgres.schema import MIGRATIONS
from ryecore.state.schema import IS_ACTIVE
from ryecore.state.thread_rows import record_of

__all__ = ["ServerHealth"]


@frozen
class ServerHealth:
    """The condition of the tables.

    Attributes:
        shown: Their address, without a password.
        server: The version of the server.
        is_current: Whether the tables are there and up to date; else the next run makes them so.
        threads: The number of threads.
        active: The threads that haven't ended.
    """

    shown: str
    server: str
    is_current: bool
    threads: int = 0
    active: tuple[ThreadRecord, ...] = ()

    @classmethod
    def examine(cls, state: str) -> Self:
        """Examine the tables at an address.

        Raises:
            StateUnreachable: The server can't be reached, or refuses the user.
            StateError: A newer ryecore has written them.
        """
        address = PostgresAddress.parse(state)
        database = PostgresDatabase(address)
        try:
            ((server,),) = database.read("SHOW server_version")
            if database.version() < len(MIGRATIONS):
                return cls(address.shown, server, is_current=False)
            ((threads,),) = database.read("SELECT count(*) FROM threads")
            rows = database.read(f"SELECT * FROM threads WHERE {IS_ACTIVE}")  # noqa: S608 - a constant
            return cls(address.shown, server, True, threads, tuple(map(record_of, rows)))
        finally:
            database.close()
