"""Images from OpenAI's own endpoint for them."""

import base64
from typing import Any, Final

import openai
from openai.types import ImagesResponse

from ryecore.llm import LlmError, MediaRequest, Usage
from ryecore.providers.openai.content import Contents, file_name
from ryecore.providers.openai.failures import BrokenAnswer

__all__ = ["ask_for_images", "images_in"]

_FORMATS: Final = {"image/png": "png", "image/webp": "webp", "image/jpeg": "jpeg"}


async def ask_for_images(
    client: openai.AsyncOpenAI,
    request: MediaRequest,
    contents: Contents,
    headers: dict[str, str | openai.Omit],
) -> ImagesResponse:
    """Ask for images, made anew or from others.

    Args:
        client: The client to ask with.
        request: What to make.
        contents: The content of the media to start from.
        headers: The call's own headers.

    Raises:
        LlmError: Something else than images is asked for, or a type that can't be made.
    """
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
        # The others, and compatible servers, answer with an address unless they are told not to.
        settings["response_format"] = "b64_json"
        settings.pop("output_format", None)
    if not request.inputs:
        made: ImagesResponse = await client.images.generate(**settings)
        return made
    files = [(file_name(one), contents[one.handle], one.media_type) for one in request.inputs]
    edited: ImagesResponse = await client.images.edit(image=files, **settings)
    return edited


def images_in(answer: object) -> tuple[list[bytes], str, Usage | None]:
    """The images of an answer, their media type, and what was counted.

    Raises:
        BrokenAnswer: There is none, or one comes as an address alone.
    """
    if not isinstance(answer, ImagesResponse) or not answer.data:
        raise BrokenAnswer("The answer holds no image.")
    encoded = [one.b64_json for one in answer.data]
    if not all(encoded):
        raise BrokenAnswer("The answer gives an address in the place of an image.")
    counted = answer.usage
    return (
        [base64.b64decode(one or "", validate=True) for one in encoded],
        f"image/{answer.output_format or 'png'}",
        Usage(counted.input_tokens, counted.output_tokens) if counted is not None else None,
    )
