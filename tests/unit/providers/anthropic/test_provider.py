"""What the suite doesn't ask of every adapter."""

import json
import subprocess
import sys
from typing import Any

import pytest

from ryecore.llm import (
    LlmError,
    LlmErrorKind,
    LlmRequest,
    LlmResult,
    MediaPart,
    MemoryMediaStore,
    Message,
    ReasoningPart,
    StopReason,
    StreamFold,
    TextPart,
    ToolCallPart,
    Usage,
)
from ryecore.testing.conformance import HttpResponse, RawRequest, WireServer
from tests.adapters import make_anthropic

pytestmark = pytest.mark.anyio

_ASKED = LlmRequest("claude-opus-5", (Message.user("Hello?"),))
_HEAD = {"id": "m", "type": "message", "role": "assistant", "model": "claude-opus-5"}


def events(*moves: dict[str, Any], stop: str | None = "end_turn") -> HttpResponse:
    written = [
        {"type": "message_start", "message": {**_HEAD, "content": [], "stop_reason": None}},
        *moves,
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    body = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in written]
    return HttpResponse(tuple(body), media_type="text/event-stream")


def block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": index},
    ]


async def streamed(server: WireServer, **settings: Any) -> LlmResult:
    fold = StreamFold("anthropic", "claude-opus-5")
    async with make_anthropic(base_url=server.base_url, **settings) as provider:
        async for chunk in provider.stream(_ASKED, key="k"):
            fold.add(chunk)
    return fold.result()


async def failed(server: WireServer, request: LlmRequest = _ASKED, **settings: Any) -> LlmError:
    async with make_anthropic(base_url=server.base_url, **settings) as provider:
        with pytest.raises(LlmError) as caught:
            await provider.generate(request, key="k", media=MemoryMediaStore())
    return caught.value


async def test_reasoning_that_isnt_shown_is_kept() -> None:
    hidden = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
    whole = {**_HEAD, "content": [hidden], "stop_reason": "end_turn"}
    expected = (ReasoningPart("", "anthropic", "redacted_thinking:ZGF0YQ=="),)
    with WireServer() as server:
        server.answer(events(*block(0, hidden)), HttpResponse((json.dumps(whole).encode(),)))

        assert (await streamed(server)).parts == expected
        async with make_anthropic(base_url=server.base_url) as provider:
            assert (await provider.generate(_ASKED, key="k")).parts == expected


async def test_blocks_and_events_of_tomorrow_are_passed_over() -> None:
    moves = [
        {"type": "weather", "sunny": True},
        *block(
            0,
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query": "tide"}'},
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "citations_delta", "citation": {}},
            {"type": "hologram_delta", "light": 1},
            {"type": "text_delta", "text": "Yes."},
        ),
    ]
    with WireServer() as server:
        server.answer(events(*moves))

        assert (await streamed(server)).parts == (TextPart("Yes."),)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop_sequence", "stop"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "stop"),
        ("reason_of_tomorrow", "stop"),
    ],
)
async def test_stop_reasons(reason: str, stop: StopReason) -> None:
    with WireServer() as server:
        server.answer(events(stop=reason))

        assert (await streamed(server)).stop_reason == stop


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (429, {"type": "rate_limit_error"}, "rate_limit"),
        (
            429,
            {
                "type": "rate_limit_error",
                "details": {"error_code": "enforced_spend_limit_reached"},
            },
            "auth",
        ),
        (402, {"type": "billing_error"}, "auth"),
        (400, {"type": "invalid_request_error", "message": "prompt is too long: 2 > 1"}, None),
        (504, {"type": "timeout_error"}, "unavailable"),
    ],
)
async def test_kinds_of_failure(
    status: int, error: dict[str, Any], kind: LlmErrorKind | None
) -> None:
    body = json.dumps({"type": "error", "error": {"message": "No.", **error}}).encode()
    with WireServer() as server:
        server.answer(HttpResponse((body,), status))

        assert (await failed(server)).kind == (kind or "context_length")


async def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    with WireServer() as server:
        server.answer(HttpResponse(stop_at=-1, then="hang"))

        error = await failed(server, timeout_s=0.2)

    assert (error.kind, error.status) == ("unavailable", None)


async def test_a_medium_that_isnt_there_is_a_bad_request_and_nothing_is_sent() -> None:
    lost = MediaPart("media://" + "0" * 64, "image/png", 3)
    with WireServer() as server:
        error = await failed(server, LlmRequest("claude-opus-5", (Message.user(lost),)))

        assert error.kind == "bad_request"
        assert "no medium with the handle" in str(error)
        assert server.raw == []


async def test_headers_of_the_host_travel() -> None:
    with WireServer() as server:
        server.answer(events())
        await streamed(server, headers={"X-Tenant": "north"})

        (raw,) = server.raw
    assert isinstance(raw, RawRequest)
    assert raw.headers["x-tenant"] == "north"


async def test_a_proxy_of_the_host_is_used() -> None:
    with WireServer() as server:
        server.answer(events())

        error = await failed(server, proxy="http://127.0.0.1:1")

        assert error.kind == "unavailable"
        assert server.raw == []


@pytest.mark.parametrize(
    ("module", "extra"), [("anthropic", "anthropic"), ("gemini", "gemini")], ids=str
)
async def test_a_missing_extra_says_how_to_get_it(module: str, extra: str) -> None:
    sdk = {"anthropic": "anthropic", "gemini": "google.genai"}[module]
    code = f"import sys; sys.modules[{sdk!r}] = None; import ryecore.providers.{module}"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert f"Run `pip install 'ryecore[{extra}]'`." in done.stderr.splitlines()[-1]
    assert "MissingExtra" in done.stderr


async def test_a_block_that_is_whole_from_its_beginning_is_read() -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
    with WireServer() as server:
        server.answer(events(*block(0, {"type": "text", "text": "Yes."}), *block(1, call)))

        parts = (await streamed(server)).parts
    assert parts == (TextPart("Yes."), ToolCallPart("c", "f", '{"a": 1}'))


async def test_a_stream_without_a_stop_reason_was_cut() -> None:
    said = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Half"})
    with WireServer() as server:
        server.answer(events(*said, stop=None))

        with pytest.raises(LlmError) as caught:
            await streamed(server)
    assert caught.value.kind == "unavailable"


async def test_a_call_doesnt_lose_arguments_that_came_too_early() -> None:
    early = {"type": "input_json_delta", "partial_json": '{"a": 1}'}
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    with WireServer() as server:
        server.answer(
            events({"type": "content_block_delta", "index": 0, "delta": early}, *block(0, call))
        )

        with pytest.raises(LlmError) as caught:
            await streamed(server)
    assert caught.value.kind == "unavailable"


@pytest.mark.parametrize("count", [-5, 1.5, float("nan"), float("inf"), "many", [1], None])
async def test_counts_that_are_none_are_not_counted(count: object) -> None:
    usage = {"input_tokens": 7, "output_tokens": count}
    whole = {**_HEAD, "content": [], "stop_reason": "end_turn", "usage": usage}
    with WireServer() as server:
        server.answer(HttpResponse((json.dumps(whole).encode(),)))

        async with make_anthropic(base_url=server.base_url) as provider:
            result = await provider.generate(_ASKED, key="k")
    assert result.usage == Usage(7)


async def test_a_text_that_is_none_breaks_nothing() -> None:
    odd: list[dict[str, Any]] = [{"type": "text_delta", "text": one} for one in (5, None, "Yes.")]
    with WireServer() as server:
        server.answer(events(*block(0, {"type": "text", "text": None}, *odd)))

        assert (await streamed(server)).text == "Yes."
