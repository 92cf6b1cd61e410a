"""Media for requests are read on worker threads, as their store may be on a server."""

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

from ryecore.llm import LlmRequest, MediaPart, MediaStore, ToolResultPart

__all__ = ["build_request"]

T = TypeVar("T")


async def build_request(
    build: Callable[[LlmRequest, str, MediaStore | None], T],
    request: LlmRequest,
    provider_id: str,
    media: MediaStore | None,
) -> T:
    """Build a vendor's request, on a worker thread if media have to be read for it."""
    if media is None or not _has_media(request):
        return build(request, provider_id, media)
    return await anyio.to_thread.run_sync(build, request, provider_id, media)


def _has_media(request: LlmRequest) -> bool:
    return any(
        isinstance(part, MediaPart)
        or (
            isinstance(part, ToolResultPart)
            and any(isinstance(one, MediaPart) for one in part.content)
        )
        for message in request.messages
        for part in message.parts
    )
