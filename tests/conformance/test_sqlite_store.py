from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from ryecore.state.store import ThreadStore
from ryecore.testing.state import StateConformance, StateStore
from tests.matrix import IS_SOAK


class TestSqliteStore(StateConformance):
    examples = 200 if IS_SOAK else 12

    @asynccontextmanager
    async def open_store(self, place: Path) -> AsyncGenerator[StateStore, None]:
        user = place / "user/.ai"
        user.mkdir(parents=True, exist_ok=True)
        store = ThreadStore.open(place / "project/.ai", user)
        try:
            yield store
        finally:
            store.close()
