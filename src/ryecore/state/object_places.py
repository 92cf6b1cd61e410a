"""Where the objects of a project are that other machines have to read, by an address.

Source: docs/how-to/keep-objects.md; ADR 043.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from attrs import field

from ryecore.errors import ConfigError, MissingExtra
from ryecore.frozen import frozen

if TYPE_CHECKING:
    from ryecore.state.object_store import ObjectStore

__all__ = [
    "IN_FOLDER",
    "IN_PROJECT",
    "ObjectPlace",
    "SharedObjects",
    "check_address",
    "is_on_postgres",
    "open_objects",
]

IN_FOLDER: Final = "folder"
"""The address that leaves the objects in the project's folder."""

_S3: Final = "s3:"
_POSTGRES: Final = ("postgresql:", "postgres:")


@frozen
class ObjectPlace:
    """Where objects are.

    Attributes:
        address: The address; None for the project's folder.
        environ: The environment, which holds the keys of a bucket.
    """

    address: str | None = field(default=None, repr=False)  # it may hold a password
    environ: Mapping[str, str] = field(factory=dict, repr=False)

    def examine(self) -> str:
        """Look whether the store can be used, and return where it is. Nothing is made.

        Raises:
            StateUnreachable: The server can't be reached, or refuses the user.
            RyeError: The store can't be used.
        """
        address = self.address or IN_FOLDER
        if address.startswith(_POSTGRES):
            with _needing("postgres", "psycopg", "Objects on PostgreSQL need"):
                from ryecore.state.postgres.health import ServerHealth  # noqa: PLC0415
            return ServerHealth.examine(address).shown
        store = open_objects(address, self.environ)
        next(iter(store.list()), None)
        return store.shown


IN_PROJECT: Final = ObjectPlace()
"""The place of objects that stay in the project's folder."""


def open_objects(address: str, environ: Mapping[str, str] | None = None) -> "ObjectStore":
    """Open a store of objects.

    Args:
        address: `s3://bucket/prefix`, `postgresql://user@host/database`, or the absolute path of
            a folder.
        environ: The environment with the keys of a bucket; this process's by default.

    Raises:
        ConfigError: The address can't be used.
        StateUnreachable: The server can't be reached, or the environment has no keys.
        MissingExtra: The extra of the address isn't installed.
    """
    environ = os.environ if environ is None else environ
    checked = check_address(address, environ)
    if checked is None:
        raise _unknown_address()
    return _open(checked, environ)


class SharedObjects:
    """The store of objects at a place, opened when it is first needed.

    Args:
        place: The place.
        known: A store that is open already, and its address.
    """

    def __init__(
        self, place: ObjectPlace, known: "tuple[str | None, ObjectStore | None]" = (None, None)
    ) -> None:
        self._place = place
        self._lock = Lock()
        address, store = known
        self._is_ours = address is None or address != place.address or store is None
        self._store: ObjectStore | None = None if self._is_ours else store

    def open(self) -> "ObjectStore | None":
        """Return the store; None where objects are in the project's folder.

        Raises:
            StateUnreachable: The server can't be reached, or refuses the user.
            MissingExtra: The extra of the address isn't installed.
        """
        if self._place.address is None:
            return None
        with self._lock:
            if self._store is None:
                self._store = _open(self._place.address, self._place.environ)
            return self._store

    def need(self) -> "ObjectStore":
        """Return the store, which other machines read.

        Raises:
            ConfigError: The objects are in the project's folder.
            RyeError: The store can't be opened.
        """
        found = self.open()
        if found is None:
            raise ConfigError(
                "A project travels by objects that machines share, and these are in its folder.",
                next_step="Leave RYE_OBJECTS out, so that they are where the state is.",
            )
        return found

    def artifacts_of(self, thread_id: str) -> "ObjectStore | None":
        """Return the space of a thread's large results."""
        return self._below(f"threads/{thread_id}")

    def values_of(self, run_id: str) -> "ObjectStore | None":
        """Return the space of the values of a graph's run."""
        return self._below(f"graphs/{run_id}")

    def handed_of(self, run_id: str) -> "ObjectStore":
        """Return the space of what a run's worker sends to a node; see `need`."""
        return self.need().below(f"handed/{run_id}")

    def spaces_of(self, thread_id: str) -> "tuple[ObjectStore, ...]":
        """Return all spaces of a thread, or of a run of a graph."""
        if self.open() is None:
            return ()
        spaces = (self.artifacts_of(thread_id), self.values_of(thread_id))
        return tuple(filter(None, (*spaces, self.handed_of(thread_id))))

    def _below(self, space: str) -> "ObjectStore | None":
        store = self.open()
        return None if store is None else store.below(space)

    def close(self) -> None:
        """Close the store, if it was opened here."""
        with self._lock:
            if self._store is not None and self._is_ours:
                self._store.close()


def is_on_postgres(address: str) -> bool:
    """Return whether an address is that of a PostgreSQL server."""
    return address.startswith(_POSTGRES)


def check_address(address: str, environ: Mapping[str, str]) -> str | None:
    """Check the address of objects, and return it; None for the project's folder.

    Raises:
        ConfigError: It can't be used. The message doesn't repeat it.
    """
    if address == IN_FOLDER:
        return None
    if is_on_postgres(address):
        from ryecore.state.postgres.address import PostgresAddress  # noqa: PLC0415 - only with one

        PostgresAddress.parse(address)
    elif address.startswith(_S3):
        from ryecore.state.s3.address import S3Address  # noqa: PLC0415 - only with one

        S3Address.parse(address, environ)
    elif not Path(address).is_absolute():
        raise _unknown_address()
    return address


def _unknown_address() -> ConfigError:
    return ConfigError(
        "The address of the objects can't be used: it begins with no known scheme.",
        next_step="Write s3://BUCKET/PREFIX, postgresql://USER@HOST/DATABASE, the absolute path of "
        f"a folder, or, as a project's place, {IN_FOLDER} for its own.",
    )


def _open(address: str, environ: Mapping[str, str]) -> "ObjectStore":
    if is_on_postgres(address):
        with _needing("postgres", "psycopg", "Objects on PostgreSQL need"):
            from ryecore.state.postgres.objects import PostgresObjects  # noqa: PLC0415
        return PostgresObjects.open(address)
    if address.startswith(_S3):
        with _needing("s3", "obstore", "Objects in a bucket need"):
            from ryecore.state.s3.objects import S3Objects  # noqa: PLC0415
        return S3Objects.open(address, environ)
    from ryecore.state.folder_objects import FolderObjects  # noqa: PLC0415

    return FolderObjects(address, durable=True)


@contextmanager
def _needing(extra: str, package: str, what: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as problem:
        if (problem.name or "").partition(".")[0] != package:
            raise
        raise MissingExtra(
            f"{what} the package {package}, which is not installed.",
            next_step=f"pip install 'ryecore[{extra}]'",
            extra=extra,
        ) from None
