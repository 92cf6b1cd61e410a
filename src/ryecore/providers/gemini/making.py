"""Media at endpoints of their own: images at once, videos as long operations."""

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
    redact,
)
from ryecore.providers.gemini.answering import ResponseReader
from ryecore.providers.gemini.asking import read_medium
from ryecore.providers.gemini.failing import kind_of_rpc

__all__ = ["begin_media", "look_after"]


async def begin_media(
    client: AsyncClient, request: MediaRequest, provider_id: str, media: MediaStore
) -> MediaOutcome:
    """Make images, or begin to make a video.

    Args:
        client: The SDK's client.
        request: What to make.
        provider_id: The provider's id.
        media: Where inputs are read, and images are put.

    Raises:
        LlmError: It can't be made.
    """
    family = request.media_type.partition("/")[0]
    inputs = [read_medium(one, media, provider_id, request.model) for one in request.inputs]
    if family == "video":
        return await _video(client, request, inputs, provider_id)
    if family != "image" or request.count != 1:
        raise LlmError(
            f"{provider_id} makes one image or videos in a call, not {request.count} of type "
            f"{request.media_type}.",
            next_step="Ask once for each image.",
            kind="bad_request",
            provider=provider_id,
            model=request.model,
        )
    parts = [types.Part(text=request.prompt), *(types.Part(inline_data=one) for one in inputs)]
    response = await client.models.generate_content(
        model=request.model,
        contents=[types.Content(role="user", parts=parts)],
        config=types.GenerateContentConfig(
            response_modalities=["IMAGE"],
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
        ),
    )
    return _images(response, request, provider_id, media)


async def look_after(
    client: AsyncClient, job_id: str, provider_id: str, media: MediaStore
) -> MediaOutcome:
    """A video, or its job again while it isn't ready.

    Args:
        client: The SDK's client.
        job_id: The operation's name.
        provider_id: The provider's id.
        media: Where the video is put.

    Raises:
        LlmError: It failed.
    """
    asked = types.GenerateVideosOperation()
    asked.name = job_id
    operation = await client.operations.get(asked)
    if not operation.done:
        return MediaJob(job_id)
    if operation.error:
        text = str(operation.error.get("message", "the operation failed"))
        raise _failed(provider_id, "", text, kind_of_rpc(operation.error.get("code")))
    made = operation.response
    if made is None or not made.generated_videos:
        reasons = "; ".join((made.rai_media_filtered_reasons if made else None) or ())
        raise _failed(provider_id, "", reasons or "no video was made", "content_filter")
    parts = [
        await _kept(client, one.video, media)
        for one in made.generated_videos
        if one.video is not None
    ]
    return MediaResult(tuple(parts), _model_of(job_id))


async def _video(
    client: AsyncClient, request: MediaRequest, inputs: list[types.Blob], provider_id: str
) -> MediaJob:
    image = None
    if inputs:
        image = types.Image(image_bytes=inputs[0].data, mime_type=inputs[0].mime_type)
    operation = await client.models.generate_videos(
        model=request.model,
        source=types.GenerateVideosSource(prompt=request.prompt, image=image),
        config=types.GenerateVideosConfig(number_of_videos=request.count),
    )
    if not operation.name:
        raise _failed(provider_id, request.model, "it named no operation", "unavailable")
    return MediaJob(operation.name)


def _images(
    response: types.GenerateContentResponse,
    request: MediaRequest,
    provider_id: str,
    media: MediaStore,
) -> MediaResult:
    reader = ResponseReader(provider_id, request.model, media)
    fold = StreamFold(provider_id, request.model)
    for chunk in reader.read(response):
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


async def _kept(client: AsyncClient, video: types.Video, media: MediaStore) -> MediaPart:
    content = video.video_bytes or await client.files.download(file=video)
    return media.put(content, video.mime_type or "video/mp4")


def _model_of(job_id: str) -> str:
    """The model in an operation's name: `models/veo/operations/1`."""
    _, _, rest = job_id.partition("models/")
    return rest.partition("/")[0]


def _failed(provider_id: str, model: str, why: str, kind: LlmErrorKind) -> LlmError:
    return LlmError(
        f"{provider_id} made no media: {redact(why)}", kind=kind, provider=provider_id, model=model
    )
