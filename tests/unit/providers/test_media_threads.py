"""Media of a request are read on a worker thread, because their store may be on a server."""

import threading
from typing import Any

import pytest

from ryecore.llm import LlmRequest, MediaPart, MemoryMediaStore, Message
from ryecore.providers.media_threads import build_request

pytestmark = pytest.mark.anyio


class NotingStore(MemoryMediaStore):
    """A store that notes who reads."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: set[int] = set()

    def read(self, part: MediaPart) -> bytes:
        self.readers.add(threading.get_ident())
        return super().read(part)


@pytest.mark.parametrize("vendor", ["anthropic", "gemini"])
async def test_media_are_read_off_the_event_loop(vendor: str) -> None:
    store = NotingStore()
    part = store.put(b"\x89PNG\r\n\x1a\n", "image/png")
    request = LlmRequest("m", messages=(Message("user", (part,)),))

    await build_request(_builder(vendor), request, vendor, store)

    assert store.readers
    assert threading.get_ident() not in store.readers


async def test_a_request_of_text_needs_no_thread() -> None:
    def build(*_: object) -> int:
        return threading.get_ident()

    request = LlmRequest("m", messages=(Message.user("Hello?"),))

    assert await build_request(build, request, "x", MemoryMediaStore()) == threading.get_ident()


def _builder(vendor: str) -> Any:
    if vendor == "anthropic":
        from ryecore.providers.anthropic.request import parameters_of

        return parameters_of
    from ryecore.providers.gemini.request import contents_of

    return contents_of
