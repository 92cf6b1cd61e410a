"""Media from endpoints of their own: images at once, videos as background interactions."""

import asyncio
import base64
import re
from typing import Any, Final

import anyio.to_thread
from google.genai import types
from google.genai.client import AsyncClient

from ryecore.llm import (
    LlmError,
    LlmErrorKind,
    MediaJob,
    MediaOutcome,
    MediaPart,
    MediaRequest,
    MediaResult,
    MediaStore,
    StreamFold,
    Usage,
    redact,
)
from ryecore.providers.errors import no_media_store
from ryecore.providers.gemini.response import ResponseReader, read_response

__all__ = ["make_media", "poll_video", "read_medium"]

_RUNNING: Final = ("in_progress", "queued")
_FILE: Final = re.compile(r"files/[\w-]+")
_FILTERED: Final = re.compile(r"safety|polic|prohibited|blocked", re.IGNORECASE)


def read_medium(
    part: MediaPart, media: MediaStore | None, provider_id: str, model: str
) -> types.Blob:
    """Return the content of a medium."""
    if media is None:
        raise no_media_store(part, provider_id, model)
    return types.Blob(mime_type=part.media_type, data=media.read(part))


async def make_media(
    client: AsyncClient, request: MediaRequest, provider_id: str, media: MediaStore
) -> MediaOutcome:
    """Make images, or start a video."""
    family = request.media_type.partition("/")[0]
    inputs = [
        await anyio.to_thread.run_sync(read_medium, one, media, provider_id, request.model)
        for one in request.inputs
    ]
    if family not in ("image", "video") or request.count != 1:
        raise LlmError(
            f"{provider_id} makes one image or video in a call, not {request.count} of type "
            f"{request.media_type}.",
            next_step="Ask once for each.",
            kind="bad_request",
            provider=provider_id,
            model=request.model,
        )
    if family == "video":
        _needs_asyncio(provider_id, request.model)
        return await _video(client, request, inputs, provider_id)
    parts = [types.Part(text=request.prompt), *(types.Part(inline_data=one) for one in inputs)]
    response = await client.models.generate_content(
        model=request.model,
        contents=[types.Content(role="user", parts=parts)],
        config=types.GenerateContentConfig(
            response_modalities=["IMAGE"],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        ),
    )
    return await _images(response, request, provider_id, media)


async def poll_video(
    client: AsyncClient, job_id: str, provider_id: str, media: MediaStore
) -> MediaOutcome:
    """Return a video, or its job while it isn't ready."""
    _needs_asyncio(provider_id, "")
    made = await client.interactions.get(id=job_id)
    if made.status in _RUNNING:
        return MediaJob(job_id)
    model = str(made.model or "")
    if made.status != "completed":
        why = "; ".join(one.message or "" for one in made.errors or ())
        kind: LlmErrorKind = "content_filter" if _FILTERED.search(why) else "unavailable"
        raise _failed(provider_id, model, f"{made.status}. {why}".strip(), kind)
    video = made.output_video
    if video is None:
        why = made.output_text or "no video was made"
        raise _failed(provider_id, model, why, "content_filter")
    if video.data:
        content = base64.b64decode(video.data)
    else:
        # Only the name is used: the key must not go to another host that an answer names.
        named = _FILE.search(video.uri or "")
        if named is None:
            raise _failed(provider_id, model, "the video's file has no name", "unavailable")
        content = await client.files.download(file=named[0])
    media_type = str(video.mime_type or "video/mp4")
    part = await anyio.to_thread.run_sync(media.put, content, media_type)
    return MediaResult((part,), model, _usage(made.usage))


async def _video(
    client: AsyncClient, request: MediaRequest, inputs: list[types.Blob], provider_id: str
) -> MediaJob:
    asked: list[Any] = [{"type": "text", "text": request.prompt}]
    asked += [
        {
            "type": str(one.mime_type).partition("/")[0],
            "data": base64.b64encode(one.data or b"").decode("ascii"),
            "mime_type": one.mime_type,
        }
        for one in inputs
    ]
    begun: Any = await client.interactions.create(
        model=request.model,
        input=asked,
        background=True,
        store=True,
        response_format={"type": "video"},
        stream=False,
    )
    if not begun.id:
        raise _failed(provider_id, request.model, "it named no interaction", "unavailable")
    return MediaJob(begun.id)


def _needs_asyncio(provider_id: str, model: str) -> None:
    """Refuse trio: the SDK's interactions use asyncio's threads."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        running = False
    else:
        running = True
    if not running:
        why = "Google's SDK makes videos on asyncio alone"
        raise _failed(provider_id, model, why, "bad_request")


def _usage(counted: Any) -> Usage | None:
    """Return an interaction's usage: its input includes cached tokens, its output no thoughts."""
    if counted is None:
        return None
    cached = counted.total_cached_tokens or 0
    return Usage(
        max(0, (counted.total_input_tokens or 0) - cached),
        counted.total_output_tokens or 0,
        cached,
        0,
        counted.total_thought_tokens or 0,
    )


async def _images(
    response: types.GenerateContentResponse,
    request: MediaRequest,
    provider_id: str,
    media: MediaStore,
) -> MediaResult:
    reader = ResponseReader(provider_id, request.model, media)
    fold = StreamFold(provider_id, request.model)
    for chunk in await read_response(reader, response):
        fold.add(chunk)
    fold.add(reader.end())
    result = fold.result()
    images = tuple(one for one in result.parts if isinstance(one, MediaPart))
    if not images:
        kind: LlmErrorKind = (
            "content_filter" if result.stop_reason == "content_filter" else "unavailable"
        )
        raise _failed(provider_id, request.model, result.text or "no image was made", kind)
    return MediaResult(images, result.model, result.usage)


def _failed(provider_id: str, model: str, why: str, kind: LlmErrorKind) -> LlmError:
    return LlmError(
        f"{provider_id} made no media: {redact(why)}", kind=kind, provider=provider_id, model=model
    )
