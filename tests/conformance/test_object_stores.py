"""The suite that every store of objects passes: in a folder, and on a PostgreSQL server."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from ryecore.state.folder_objects import FolderObjects
from ryecore.testing.objects import ObjectConformance, ObjectStore
from ryecore.testing.objects.bench import Opens
from tests.matrix import IS_SOAK
from tests.postgres import needs_server

KILLS = 20 if IS_SOAK else 2


class TestFolderObjects(ObjectConformance):
    """Objects in a folder."""

    kills = KILLS

    @contextmanager
    def open_store(self, place: Path) -> Iterator[ObjectStore]:
        yield FolderObjects(place / "objects")

    def alter(self, place: Path, sha256: str, content: bytes) -> None:
        path = place / "objects" / sha256[:2] / sha256
        path.chmod(0o600)
        path.write_bytes(content)


class TestDurableFolderObjects(TestFolderObjects):
    """Objects in a folder that survive the loss of power."""

    @contextmanager
    def open_store(self, place: Path) -> Iterator[ObjectStore]:
        yield FolderObjects(place / "objects", durable=True)


@needs_server
class TestPostgresObjects(ObjectConformance):
    """Objects in a schema of a server."""

    kills = KILLS
    secrets = ("hunter2-of-the-test",)

    @pytest.fixture(autouse=True)
    def _server(self, postgres_address: str) -> None:
        type(self).settings = {"address": postgres_address}

    @contextmanager
    def open_store(self, place: Path) -> Iterator[ObjectStore]:
        from ryecore.state.postgres.objects import PostgresObjects

        store = PostgresObjects.open(self._address(place))
        try:
            yield store
        finally:
            store.close()

    def alter(self, place: Path, sha256: str, content: bytes) -> None:
        import psycopg

        schema = self._schema(place)
        change = (
            f"UPDATE {schema}.object_chunks AS part SET chunk = %s FROM {schema}.objects AS one"
            " WHERE one.content_id = part.content_id AND one.sha256 = %s AND part.number = %s"
        )
        last = (len(content) - 1) // 2**20
        with psycopg.connect(self.settings["address"]) as connection:
            done = connection.execute(change, (content[last * 2**20 :], sha256, last))
            assert done.rowcount == 1

    def broken_stores(self, place: Path) -> dict[str, Opens]:
        address = self._address(place)
        return {
            "no server": lambda: self._opened(
                f"postgresql://tester:{self.secrets[0]}@127.0.0.1:1/postgres"
            ),
            "a wrong password": lambda: self._opened(
                address.replace("tester@", f"guarded:{self.secrets[0]}@")
            ),
            "no such database": lambda: self._opened(address.replace("/postgres?", "/nowhere?")),
        }

    @contextmanager
    def _opened(self, address: str) -> Iterator[ObjectStore]:
        from ryecore.state.postgres.objects import PostgresObjects

        yield PostgresObjects.open(address)

    def _address(self, place: Path) -> str:
        return f"{self.settings['address']}&schema={self._schema(place)}"

    def _schema(self, place: Path) -> str:
        return f"rye_{sha256(str(place).encode()).hexdigest()[:16]}"
