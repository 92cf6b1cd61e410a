"""The suite that every store passes, run on a PostgreSQL server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from ryecore.state.store import ThreadStore
from ryecore.testing.state import StateConformance, StateStore
from tests.matrix import IS_SOAK
from tests.postgres import needs_server


@needs_server
class TestPostgresStore(StateConformance):
    """Registry, ledger and approvals on a server, records in the project's folder."""

    backends = ("asyncio", "trio") if IS_SOAK else ("asyncio",)
    examples = 60 if IS_SOAK else 2
    address: str

    @pytest.fixture(autouse=True)
    def _server(self, postgres_address: str) -> None:
        type(self).address = postgres_address

    @asynccontextmanager
    async def open_store(self, place: Path) -> AsyncGenerator[StateStore, None]:
        (user := place / "user").mkdir(exist_ok=True)
        schema = f"rye_{sha256(str(place).encode()).hexdigest()[:16]}"
        state = f"{self.address}&schema={schema}"
        store = ThreadStore.open(place / "project/.ai", user, state=state)
        try:
            yield store
        finally:
            store.close()
