"""Opening the tables of a project's threads: in its folder, or on a server.

Source: decision 77.
"""

from hashlib import sha256

from ryecore.errors import ConfigError, MissingExtra
from ryecore.lillux.processes import current_process
from ryecore.state.attestation import AttestedFolder
from ryecore.state.database import Database
from ryecore.state.model import Durability
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_tables import SqlTables

__all__ = ["open_tables"]


def open_tables(place: AttestedFolder, durability: Durability, state: str | None) -> SqlTables:
    """Open the tables of a project: in its folder, or on the server of an address."""
    if state is None:
        return SqlTables.of(
            Database(place.private / "threads.db", MIGRATIONS, durability=durability)
        )
    if durability == "machine":
        raise ConfigError(
            "durability is machine, and the state is on a server, which syncs its own rows only.",
            next_step="Leave one of them out: the files of threads aren't synced with a server's "
            "rows yet.",
        )
    try:
        from ryecore.state.postgres.store import open_tables as open_on_server  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != "psycopg":
            raise
        raise MissingExtra(
            "State on PostgreSQL needs the package psycopg, which is not installed.",
            next_step="pip install 'ryecore[postgres]'",
            extra="postgres",
        ) from None
    machine = f"{current_process().boot_id} {place.path}"
    return open_on_server(state, sha256(machine.encode()).hexdigest()[:16])
