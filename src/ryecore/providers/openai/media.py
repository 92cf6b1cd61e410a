"""Media in requests, and images from OpenAI's endpoint for them."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio.to_thread
import openai
from openai.types import ImagesResponse

from ryecore.llm import (
    LlmError,
    LlmRequest,
    MediaPart,
    MediaRequest,
    MediaStore,
    ToolResultPart,
    Usage,
)
from ryecore.providers.errors import BrokenAnswer, no_media_store

__all__ = [
    "Contents",
    "ask_for_images",
    "data_url",
    "file_name",
    "images_in",
    "media_of",
    "read_contents",
]

Contents: TypeAlias = Mapping[str, bytes]
"""The content of media, by handle."""


_FORMATS: Final = {"image/png": "png", "image/webp": "webp", "image/jpeg": "jpeg"}


def data_url(part: MediaPart, contents: Contents) -> str:
    """Return a medium as a `data:` address."""
    return f"data:{part.media_type};base64,{base64.b64encode(contents[part.handle]).decode()}"


def file_name(part: MediaPart) -> str:
    """Return a medium's name; a document must have one."""
    return part.name or f"file.{part.media_type.rpartition('/')[2]}"


def media_of(request: LlmRequest) -> list[MediaPart]:
    """Return the media in a request's messages and in the results of tools."""
    found: list[MediaPart] = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, MediaPart):
                found.append(part)
            elif isinstance(part, ToolResultPart):
                found += [one for one in part.content if isinstance(one, MediaPart)]
    return found


async def read_contents(
    parts: Sequence[MediaPart], media: MediaStore | None, provider_id: str, model: str
) -> Contents:
    """Return the content of media by handle, read on a worker thread."""
    if not parts:
        return {}
    if media is None:
        raise no_media_store(parts[0], provider_id, model)
    wanted = {part.handle: part for part in parts}
    return {
        handle: await anyio.to_thread.run_sync(media.read, part) for handle, part in wanted.items()
    }


async def ask_for_images(
    client: openai.AsyncOpenAI,
    request: MediaRequest,
    contents: Contents,
    headers: dict[str, str | openai.Omit],
) -> ImagesResponse:
    """Request images, made from only a prompt or from other images; refuse other media."""
    settings: dict[str, Any] = {
        "model": request.model,
        "prompt": request.prompt,
        "n": request.count,
        "extra_headers": headers,
    }
    if not request.media_type.startswith("image/"):
        raise LlmError(
            f"This endpoint makes images, and was asked for {request.media_type}.",
            kind="bad_request",
        )
    if request.media_type in _FORMATS:
        settings["output_format"] = _FORMATS[request.media_type]
    elif request.media_type != "image/*":
        raise LlmError(f"No model here makes {request.media_type}.", kind="bad_request")
    if not request.model.startswith(("gpt-", "chatgpt-")):
        # Other models, and compatible servers, answer with an address by default.
        settings["response_format"] = "b64_json"
        settings.pop("output_format", None)
    if not request.inputs:
        made: ImagesResponse = await client.images.generate(**settings)
        return made
    files = [(file_name(one), contents[one.handle], one.media_type) for one in request.inputs]
    edited: ImagesResponse = await client.images.edit(image=files, **settings)
    return edited


def images_in(answer: object) -> tuple[list[bytes], str, Usage | None]:
    """Return the images of an answer, their media type, and the usage."""
    if not isinstance(answer, ImagesResponse) or not answer.data:
        raise BrokenAnswer("the answer holds no image.")
    encoded = [one.b64_json for one in answer.data]
    if not all(encoded):
        raise BrokenAnswer("the answer holds an address instead of an image.")
    counted = answer.usage
    return (
        [base64.b64decode(one or "", validate=True) for one in encoded],
        f"image/{answer.output_format or 'png'}",
        Usage(counted.input_tokens, counted.output_tokens) if counted is not None else None,
    )
