import json
from typing import Any

import pytest

from ryecore.llm import (
    LlmError,
    LlmErrorKind,
    MediaJob,
    MediaProvider,
    MediaRequest,
    MediaResult,
    MemoryMediaStore,
    Usage,
)
from ryecore.testing.conformance import HttpResponse, WireServer
from ryecore.testing.conformance.bench import everything_in
from tests.adapters import make_gemini

pytestmark = pytest.mark.anyio

# Google's SDK hands work to threads of asyncio's there.
ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])

_JOB = "interaction1"


def answered(body: dict[str, Any], status: int = 200) -> HttpResponse:
    return HttpResponse((json.dumps(body).encode(),), status)


def image(*parts: dict[str, Any], reason: str = "STOP") -> HttpResponse:
    return answered(
        {
            "candidates": [{"content": {"parts": parts}, "finishReason": reason}],
            "modelVersion": "gemini-2.5-flash-image",
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1290},
        }
    )


async def poll(server: WireServer, store: MemoryMediaStore) -> MediaResult | MediaJob:
    async with make_gemini(base_url=server.base_url) as provider:
        return await provider.poll_media(_JOB, key="k", media=store)


async def test_an_image_is_made_at_once_from_words_and_images() -> None:
    store = MemoryMediaStore()
    sketch = store.put(b"sketch", "image/png")
    with WireServer() as server:
        server.answer(image({"inlineData": {"mimeType": "image/png", "data": "cG5n"}}))
        async with make_gemini(base_url=server.base_url) as provider:
            assert isinstance(provider, MediaProvider)
            request = MediaRequest("gemini-2.5-flash-image", "A tide", inputs=(sketch,))
            made = await provider.generate_media(request, key="the-key", media=store)
        (raw,) = server.raw

    assert isinstance(made, MediaResult)
    assert [store.read(one) for one in made.media] == [b"png"]
    assert (made.model, made.usage) == ("gemini-2.5-flash-image", Usage(3, 1290))
    body = json.loads(raw.body)
    assert raw.path == "/v1beta/models/gemini-2.5-flash-image:generateContent"
    assert raw.headers["x-goog-api-key"] == "the-key"
    assert body["generationConfig"]["responseModalities"] == ["IMAGE"]
    assert body["contents"][0]["parts"][0] == {"text": "A tide"}
    assert "c2tldGNo" in json.dumps(body["contents"][0]["parts"][1])


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (image(reason="IMAGE_SAFETY"), "content_filter"),
        (image({"text": "I'd rather not."}), "unavailable"),
        (answered({"promptFeedback": {"blockReason": "SAFETY"}}), "content_filter"),
        (answered({"error": {"code": 429, "message": "Slowly."}}, 429), "rate_limit"),
    ],
)
async def test_an_image_that_isnt_made(reply: HttpResponse, kind: LlmErrorKind) -> None:
    with WireServer() as server:
        server.answer(reply)
        async with make_gemini(base_url=server.base_url) as provider:
            request = MediaRequest("gemini-2.5-flash-image", "A tide")
            with pytest.raises(LlmError) as caught:
                await provider.generate_media(request, key="k", media=MemoryMediaStore())

    assert caught.value.kind == kind
    assert caught.value.model == "gemini-2.5-flash-image"


@pytest.mark.parametrize(
    "request_", [MediaRequest("m", "Two", count=2), MediaRequest("m", "La", media_type="audio/*")]
)
async def test_what_it_cant_make_is_refused_before_anything_is_sent(
    request_: MediaRequest,
) -> None:
    with WireServer() as server:
        async with make_gemini(base_url=server.base_url) as provider:
            with pytest.raises(LlmError) as caught:
                await provider.generate_media(request_, key="k", media=MemoryMediaStore())

        assert caught.value.kind == "bad_request"
        assert server.raw == []


@ASYNCIO
async def test_a_video_is_a_job_that_is_looked_after() -> None:
    store = MemoryMediaStore()
    sketch = store.put(b"sketch", "image/png")
    video = {"type": "video", "data": "bXA0", "mime_type": "video/mp4"}
    with WireServer() as server:
        server.answer(
            answered({"id": _JOB, "status": "in_progress"}),
            answered({"id": _JOB, "status": "in_progress"}),
            answered(
                {
                    "id": _JOB,
                    "status": "completed",
                    "model": "gemini-omni-flash",
                    "steps": [{"type": "model_output", "content": [video]}],
                    "usage": {"total_input_tokens": 30, "total_output_tokens": 900},
                }
            ),
        )
        async with make_gemini(base_url=server.base_url) as provider:
            request = MediaRequest("gemini-omni-flash", "A tide", "video/mp4", inputs=(sketch,))
            job = await provider.generate_media(request, key="k", media=store)
            assert job == MediaJob(_JOB)
            assert await provider.poll_media(_JOB, key="k", media=store) == MediaJob(_JOB)
            made = await provider.poll_media(_JOB, key="k2", media=store)
        paths = [(one.method, one.path) for one in server.raw]
        keys = [one.headers["x-goog-api-key"] for one in server.raw]
        asked = json.loads(server.raw[0].body)

    assert isinstance(made, MediaResult)
    assert [(store.read(one), one.media_type) for one in made.media] == [(b"mp4", "video/mp4")]
    assert (made.model, made.usage) == ("gemini-omni-flash", Usage(30, 900))
    assert paths == [
        ("POST", "/v1beta/interactions"),
        ("GET", f"/v1beta/interactions/{_JOB}?stream=false"),
        ("GET", f"/v1beta/interactions/{_JOB}?stream=false"),
    ]
    assert keys == ["k", "k", "k2"]
    assert asked["background"] is True
    assert asked["response_format"] == {"type": "video"}
    ((said,),) = ([one["content"]] for one in asked["input"])
    assert said == [
        {"type": "text", "text": "A tide"},
        {"type": "image", "data": "c2tldGNo", "mime_type": "image/png"},
    ]


@ASYNCIO
async def test_a_video_may_have_to_be_fetched() -> None:
    store = MemoryMediaStore()
    with WireServer() as server:
        uri = "https://somewhere.else.example/v1beta/files/vid1:download?alt=media"
        step = {"type": "model_output", "content": [{"type": "video", "uri": uri}]}
        server.answer(
            answered({"id": _JOB, "status": "completed", "steps": [step]}),
            HttpResponse((b"mp4",), media_type="video/mp4"),
        )

        made = await poll(server, store)

        assert server.raw[-1].path == "/v1beta/files/vid1:download?alt=media"
    assert isinstance(made, MediaResult)
    assert [store.read(one) for one in made.media] == [b"mp4"]


@pytest.mark.parametrize(
    ("ended", "kind"),
    [
        ({"status": "failed", "errors": [{"message": "Broken."}]}, "unavailable"),
        ({"status": "failed", "errors": [{"message": "Against the policy."}]}, "content_filter"),
        ({"status": "cancelled"}, "unavailable"),
        ({"status": "completed", "steps": []}, "content_filter"),
    ],
)
@ASYNCIO
async def test_a_video_that_isnt_made(ended: dict[str, Any], kind: LlmErrorKind) -> None:
    with WireServer() as server:
        server.answer(answered({"id": _JOB, **ended}))

        with pytest.raises(LlmError) as caught:
            await poll(server, MemoryMediaStore())

    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, "bad_request"), (401, "auth"), (429, "rate_limit"), (503, "unavailable")],
)
@ASYNCIO
async def test_a_video_that_cant_be_asked_for(status: int, kind: LlmErrorKind) -> None:
    refusal = answered({"error": {"code": "x", "message": "No, secret-key."}}, status)
    with WireServer() as server:
        server.answer(refusal)
        async with make_gemini(base_url=server.base_url) as provider:
            request = MediaRequest("gemini-omni-flash", "A tide", media_type="video/*")
            store = MemoryMediaStore()
            with pytest.raises(LlmError) as begun:
                await provider.generate_media(request, key="secret-key", media=store)
            with pytest.raises(LlmError) as polled:
                await provider.poll_media(_JOB, key="secret-key", media=store)

        assert len(server.raw) == 2
    for caught in (begun, polled):
        assert (caught.value.kind, caught.value.status) == (kind, status)
        assert "secret-key" not in everything_in(caught.value)


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_videos_are_refused_on_trio_in_words() -> None:
    with WireServer() as server:
        async with make_gemini(base_url=server.base_url) as provider:
            request = MediaRequest("gemini-omni-flash", "A tide", media_type="video/mp4")
            store = MemoryMediaStore()
            with pytest.raises(LlmError, match="on asyncio alone"):
                await provider.generate_media(request, key="k", media=store)
            with pytest.raises(LlmError, match="on asyncio alone"):
                await provider.poll_media(_JOB, key="k", media=store)

        assert server.raw == []
