"""What the suite doesn't ask of every adapter."""

import json
from typing import Any

import pytest

from ryecore.llm import (
    LlmError,
    LlmErrorKind,
    LlmRequest,
    LlmResult,
    MemoryMediaStore,
    Message,
    ReasoningPart,
    StopReason,
    StreamFold,
    TextPart,
    ToolCallPart,
    Usage,
)
from ryecore.testing.conformance import HttpResponse, WireServer
from tests.adapters import make_gemini

pytestmark = pytest.mark.anyio

_ASKED = LlmRequest("gemini-3.5-flash", (Message.user("Hello?"),))


def whole(*parts: dict[str, Any], reason: str = "STOP", **more: Any) -> HttpResponse:
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason}
    return HttpResponse((json.dumps({"candidates": [candidate], **more}).encode(),))


async def generated(server: WireServer) -> LlmResult:
    async with make_gemini(base_url=server.base_url) as provider:
        return await provider.generate(_ASKED, key="k", media=MemoryMediaStore())


async def failed(server: WireServer, **settings: Any) -> LlmError:
    async with make_gemini(base_url=server.base_url, **settings) as provider:
        with pytest.raises(LlmError) as caught:
            await provider.generate(_ASKED, key="k")
    return caught.value


async def test_calls_without_ids_get_some_that_are_theirs_alone() -> None:
    call = {"functionCall": {"name": "look_up", "args": {}}}
    with WireServer() as server:
        server.answer(whole(call, call, responseId="a1"), whole(call, responseId="a2"), whole(call))
        first, second, third = [await generated(server) for _ in range(3)]

    ids = [one.call_id for result in (first, second, third) for one in result.tool_calls]
    assert ids[:3] == ["made-a1-0", "made-a1-1", "made-a2-0"]
    assert len(set(ids)) == 4
    assert first.stop_reason == "tool_use"


async def test_a_signature_alone_is_kept() -> None:
    with WireServer() as server:
        server.answer(whole({"text": "So."}, {"text": "", "thoughtSignature": "c2ln"}))

        result = await generated(server)

    assert result.parts == (TextPart("So."), ReasoningPart("", "gemini", "c2ln"))


async def test_parts_of_tomorrow_are_passed_over() -> None:
    with WireServer() as server:
        server.answer(
            whole(
                {"executableCode": {"language": "PYTHON", "code": "1"}},
                {"hologram": {"light": 1}},
                {"text": "Yes."},
            )
        )

        assert (await generated(server)).parts == (TextPart("Yes."),)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("RECITATION", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "error"),
        ("OTHER", "error"),
        ("REASON_OF_TOMORROW", "error"),
    ],
)
@pytest.mark.filterwarnings("ignore:REASON_OF_TOMORROW:UserWarning")
async def test_stop_reasons(reason: str, stop: StopReason) -> None:
    with WireServer() as server:
        server.answer(whole({"text": "So far"}, reason=reason))

        assert (await generated(server)).stop_reason == stop


async def test_what_a_tool_of_the_vendors_read_counts_as_input() -> None:
    counted = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 7,
        "totalTokenCount": 132,
    }
    with WireServer() as server:
        server.answer(whole({"text": "Hi."}, usageMetadata=counted))

        usage = (await generated(server)).usage

    assert usage == Usage(45, 20, 60, 0, 7)
    assert usage.total_tokens == counted["totalTokenCount"]


async def test_a_blocked_prompt_is_the_filters_doing() -> None:
    blocked = json.dumps({"promptFeedback": {"blockReason": "SAFETY"}}).encode()
    with WireServer() as server:
        server.answer(HttpResponse((blocked,)))

        error = await failed(server)

    assert error.kind == "content_filter"
    assert "SAFETY" in str(error)


@pytest.mark.parametrize(
    ("status", "error", "kind", "wait"),
    [
        (429, {"details": [{"retryDelay": "7.5s"}]}, "rate_limit", 7.5),
        (429, {"details": [{"retryDelay": "later"}, "odd", None]}, "rate_limit", None),
        (400, {"message": "API key expired. Please renew it."}, "auth", None),
        (499, {"message": "Cancelled."}, "unavailable", None),
        (418, {"message": "Teapot."}, "bad_request", None),
    ],
)
async def test_kinds_of_failure(
    status: int, error: dict[str, Any], kind: LlmErrorKind, wait: float | None
) -> None:
    body = json.dumps({"error": {"code": status, **error}}).encode()
    with WireServer() as server:
        server.answer(HttpResponse((body,), status))

        caught = await failed(server)

    assert (caught.kind, caught.retry_after_s, caught.status) == (kind, wait, status)


async def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    with WireServer() as server:
        server.answer(HttpResponse(stop_at=-1, then="hang"))

        error = await failed(server, timeout_s=0.2)

    assert (error.kind, error.status) == ("unavailable", None)


async def test_media_that_nobody_keeps_are_an_error() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}
    with WireServer() as server:
        server.answer(whole(image))

        error = await failed(server)

    assert error.kind == "bad_request"
    assert "no store" in str(error)


async def test_thoughts_and_text_fold_in_a_stream() -> None:
    pieces = [
        {"candidates": [{"content": {"parts": [{"text": "Hm", "thought": True}]}}]},
        {"candidates": [{"content": {"parts": [{"text": ".", "thought": True}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "So.", "thoughtSignature": "c2ln"}]}}]},
        {"candidates": [{"finishReason": "STOP"}]},
    ]
    body = tuple(f"data: {json.dumps(one)}\n\n".encode() for one in pieces)
    fold = StreamFold("gemini", "gemini-3.5-flash")
    with WireServer() as server:
        server.answer(HttpResponse(body, media_type="text/event-stream"))
        async with make_gemini(base_url=server.base_url) as provider:
            async for chunk in provider.stream(_ASKED, key="k"):
                fold.add(chunk)

    assert fold.result().parts == (ReasoningPart("Hm.", "gemini", "c2ln"), TextPart("So."))
    assert not any(isinstance(one, ToolCallPart) for one in fold.result().parts)
