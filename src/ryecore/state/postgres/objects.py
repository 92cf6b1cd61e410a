"""Objects in a schema of a PostgreSQL server, in chunks of 1 MiB.

An upload is one transaction, so that one which is interrupted leaves nothing. It doesn't hold the
lock of the registry's writers.

Source: ADR 043.
"""

import os
from collections.abc import Collection, Iterator
from threading import BoundedSemaphore
from typing import Final, Self

from ryecore.state.object_store import (
    CHUNK_BYTES,
    MAX_WHOLE_BYTES,
    Content,
    Spool,
    StoredObject,
    check_digest,
    check_space,
    join_whole,
    missing_object,
    verified,
)
from ryecore.state.postgres.address import PostgresAddress
from ryecore.state.postgres.database import PostgresDatabase

__all__ = ["PostgresObjects"]

_MOST_CONNECTIONS: Final = 4
_PAGE: Final = 1000
_SMALL_BYTES: Final = 64 * 1024
"""Up to so many bytes are sent without asking first whether they are there."""


_REFRESH: Final = (
    "UPDATE objects SET stored_at = clock_timestamp()"
    " WHERE space = %s AND sha256 = %s AND size_bytes = %s"
)
_NEW_ID: Final = "nextval('object_contents')"
_ADD: Final = (
    "INSERT INTO objects (space, sha256, content_id, size_bytes) VALUES (%s, %s, {}, %s)"
    " ON CONFLICT DO NOTHING RETURNING content_id"
)
_ADD_SMALL: Final = (
    f"WITH known AS ({_REFRESH}),"  # noqa: S608 - constants of this module
    f" added AS ({_ADD.format(_NEW_ID)})"
    " INSERT INTO object_chunks SELECT content_id, 0, %s FROM added"
)
_ADD_LARGE: Final = _ADD.format("%s")
_FIRST: Final = (
    "SELECT one.content_id, one.size_bytes, part.chunk FROM objects AS one"
    " LEFT JOIN object_chunks AS part ON part.content_id = one.content_id AND part.number = 0"
    " WHERE one.space = %s AND one.sha256 = %s"
)
_NEXT: Final = "SELECT chunk FROM object_chunks WHERE content_id = %s AND number = %s"
_FOUND: Final = "SELECT sha256 FROM objects WHERE space = %s AND sha256 = ANY (%s)"
_LIST: Final = (
    "SELECT sha256, size_bytes, CAST(extract(epoch FROM stored_at) AS double precision)"
    " FROM objects WHERE space = %s AND sha256 > %s ORDER BY sha256 LIMIT %s"
)
_DELETE: Final = (
    "WITH gone AS (DELETE FROM objects WHERE space = %s AND sha256 = ANY (%s)"
    " RETURNING content_id)"
    " DELETE FROM object_chunks USING gone WHERE object_chunks.content_id = gone.content_id"
)


class _StoredMeanwhileError(Exception):
    """Another writer of the same object was first."""


class PostgresObjects:
    """The objects of a schema. At most four connections are used at once.

    Args:
        database: The database, whose schema is set up.
        space: The space.
    """

    def __init__(
        self, database: PostgresDatabase, space: str = "", room: "_Room | None" = None
    ) -> None:
        self._database = database
        self._space = space
        self._room = room or _Room()

    @classmethod
    def open(cls, address: str) -> Self:
        """Open the objects at an address; the tables are made or upgraded if need be.

        Raises:
            ConfigError: The address isn't one.
            StateUnreachable: The server can't be reached, or refuses the user.
            StateError: The schema can't be made, or is of a newer version.
        """
        database = PostgresDatabase(PostgresAddress.parse(address))
        database.set_up()
        return cls(database)

    @property
    def shown(self) -> str:
        """The address without its password, and the space."""
        return ", ".join(filter(None, (self._database.shown, self._space)))

    def below(self, space: str) -> Self:
        """Return the store of a space."""
        check_space(space)
        name = f"{self._space}/{space}" if self._space else space
        return type(self)(self._database, name, self._room)

    def put(self, content: Content, *, sha256: str | None = None) -> str:
        """Store content; see `ObjectStore.put`."""
        with Spool.of(content, sha256) as spool, self._room.entered():
            about = (self._space, spool.sha256, spool.size_bytes)
            with self._database.statements("written") as run:
                if spool.size_bytes > _SMALL_BYTES and run.run(_REFRESH, about).rowcount:
                    return spool.sha256
                if spool.size_bytes <= CHUNK_BYTES:
                    run.run(_ADD_SMALL, (*about, *about, b"".join(spool.chunks())))
                    return spool.sha256
            try:
                self._add_large(spool)
            except _StoredMeanwhileError:
                with self._database.statements("written") as run:
                    run.run(_REFRESH, about)
            return spool.sha256

    def get(self, sha256: str, *, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
        """Return the content of an object; see `ObjectStore.get`."""
        return join_whole(self.read(sha256), sha256, max_bytes)

    def read(self, sha256: str) -> Iterator[bytes]:
        """Yield the content of an object in chunks; see `ObjectStore.read`."""
        return verified(self._chunks(check_digest(sha256)), sha256, self.shown)

    def missing(self, digests: Collection[str]) -> set[str]:
        """Return the names that no object has here."""
        missing = {check_digest(one) for one in digests}
        for some in _pages(missing):
            with self._room.entered(), self._database.statements("read") as run:
                found = run.run(_FOUND, (self._space, some)).fetchall()
            missing.difference_update(name for (name,) in found)
        return missing

    def list(self) -> Iterator[StoredObject]:
        """Yield the objects of this space."""
        after = ""
        while True:
            with self._room.entered(), self._database.statements("read") as run:
                rows = run.run(_LIST, (self._space, after, _PAGE)).fetchall()
            for row in rows:
                yield StoredObject(*row)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def delete(self, digests: Collection[str]) -> None:
        """Delete objects."""
        for some in _pages({check_digest(one) for one in digests}):
            with self._room.entered(), self._database.statements("written") as run:
                run.run(_DELETE, (self._space, some))

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _add_large(self, spool: Spool) -> None:
        with self._database.transaction() as run:
            ((content_id,),) = run.run(f"SELECT {_NEW_ID}").fetchall()
            for number, chunk in enumerate(spool.chunks()):
                run.run(
                    "INSERT INTO object_chunks VALUES (%s, %s, %s)", (content_id, number, chunk)
                )
            added = run.run(_ADD_LARGE, (self._space, spool.sha256, content_id, spool.size_bytes))
            if added.fetchone() is None:
                raise _StoredMeanwhileError

    def _chunks(self, sha256: str) -> Iterator[bytes]:
        with self._room.entered(), self._database.statements("read") as run:
            found = run.run(_FIRST, (self._space, sha256), binary=True).fetchone()
        if found is None:
            raise missing_object(sha256, self.shown)
        content_id, size_bytes, chunk = found
        yield chunk or b""
        for number in range(1, -(-size_bytes // CHUNK_BYTES)):
            with self._room.entered(), self._database.statements("read") as run:
                found = run.run(_NEXT, (content_id, number), binary=True).fetchone()
            if found is None:
                raise missing_object(sha256, self.shown)
            yield found[0]


class _Room:
    """The bound of the connections in use. A forked child begins with a bound of its own."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._free = BoundedSemaphore(_MOST_CONNECTIONS)

    def entered(self) -> BoundedSemaphore:
        """Return what to hold while a connection is used."""
        if self._pid != os.getpid():
            self._pid, self._free = os.getpid(), BoundedSemaphore(_MOST_CONNECTIONS)
        return self._free


def _pages(digests: set[str]) -> Iterator[list[str]]:
    """Yield names in lists that fit into a statement."""
    names = sorted(digests)
    for start in range(0, len(names), _PAGE):
        yield names[start : start + _PAGE]
