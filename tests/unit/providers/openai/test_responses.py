import json
from typing import Any

import pytest

from ryecore.llm import (
    Capabilities,
    LlmError,
    LlmRequest,
    LlmResult,
    MediaPart,
    Message,
    ReasoningPart,
    ResponseFormat,
    StreamFold,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from ryecore.providers.errors import BrokenAnswer
from ryecore.providers.openai.request import ResponsesApi
from ryecore.providers.openai.response import ResponsesReader

CAN = Capabilities(reasoning=True)
ASKED = (Message.user("Hi."),)


def read(*events: object) -> LlmResult:
    reader, fold = ResponsesReader(), StreamFold("openai", "m")
    for event in events:
        for chunk in reader.read(event):
            fold.add(chunk)
    for chunk in reader.end(said_done=False):
        fold.add(chunk)
    return fold.result()


def completed(**more: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", **more}}


def done(at: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def body(request: LlmRequest, can: Capabilities = CAN, **settings: Any) -> dict[str, Any]:
    contents = {"media://1": b"png"}
    return ResponsesApi(**settings).body(request, contents, "openai", can, stream=False)


def test_items_that_come_whole_without_deltas_are_read() -> None:
    result = read(
        done(0, type="reasoning", summary=[{"text": "Hm."}, {"text": "So."}], id="rs"),
        done(1, type="message", content=[{"type": "output_text", "text": "Yes."}]),
        done(2, type="function_call", call_id="x", name="add", arguments="{}"),
        done(3, type="web_search_call"),
        completed(),
    )

    assert result.parts == (
        ReasoningPart("Hm.\n\nSo.", "openai"),
        TextPart("Yes."),
        ToolCallPart("x", "add", "{}"),
    )
    assert (result.stop_reason, result.usage) == ("tool_use", None)


def test_summaries_are_paragraphs() -> None:
    kind = "response.reasoning_summary"
    result = read(
        {"type": f"{kind}_part.added", "output_index": 0, "summary_index": 0},
        {"type": f"{kind}_text.delta", "output_index": 0, "delta": "One."},
        {"type": f"{kind}_part.added", "output_index": 0, "summary_index": 1},
        {"type": f"{kind}_text.delta", "output_index": 0, "delta": "Two."},
        done(0, type="reasoning", id="rs_1", encrypted_content="sealed", summary=[{"text": "!"}]),
        completed(),
    )

    assert isinstance(result.parts[0], ReasoningPart)
    assert result.parts[0].text == "One.\n\nTwo."
    kept = {"id": "rs_1", "encrypted_content": "sealed"}
    assert json.loads(result.parts[0].opaque) == kept


def test_reasoning_without_text_keeps_its_place() -> None:
    result = read(
        done(0, type="reasoning", id="rs_1", encrypted_content="sealed", summary=[]),
        done(1, type="function_call", call_id="x", name="add", arguments="{}"),
        completed(),
    )

    sent = body(LlmRequest("m", (*ASKED, result.message)))["input"]

    assert [one.get("type") for one in sent] == [None, "reasoning", "function_call"]
    assert sent[1] == {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "sealed",
    }


@pytest.mark.parametrize("opaque", ["", "no json", "[]", '{"id": "rs"}'])
def test_reasoning_that_cannot_go_back_stays_away(opaque: str) -> None:
    said = Message.assistant(ReasoningPart("Hm.", "openai", opaque), "Yes.")

    sent = body(LlmRequest("m", (*ASKED, said)))["input"]

    assert sent[1:] == [{"role": "assistant", "content": "Yes."}]


def test_a_refusal_is_text_and_a_content_filter() -> None:
    streamed = read(
        {"type": "response.refusal.delta", "output_index": 0, "delta": "No."},
        done(0, type="message", content=[{"type": "refusal", "refusal": "No."}]),
        completed(),
    )
    whole = read(
        done(0, type="message", content=[{"type": "refusal", "refusal": "No."}]), completed()
    )

    assert (streamed.text, streamed.stop_reason) == ("No.", "content_filter")
    assert (whole.text, whole.stop_reason) == ("No.", "content_filter")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow."}, "rate_limit"),
        ({"type": "error", "error": {"code": "server_error", "message": "Oh."}}, "unavailable"),
        ({"type": "error", "code": "context_length_exceeded", "message": "x"}, "context_length"),
        ({"type": "error", "code": "insufficient_quota", "message": "Pay."}, "auth"),
        ({"type": "response.failed", "response": {"error": {"code": "server_error"}}},
         "unavailable"),
        ({"type": "response.failed", "response": {"error": {"code": "invalid_prompt"}}},
         "content_filter"),
        ({"error": {"message": "Oh."}}, "unavailable"),
    ],
)  # fmt: skip
def test_errors_within_a_stream_have_their_kind(event: dict[str, Any], kind: str) -> None:
    with pytest.raises(LlmError) as caught:
        read(event)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"output": []}, {"status": "completed"}, {"output": [], "status": "x"}]
)
def test_another_json_is_no_answer(answer: object) -> None:
    with pytest.raises(BrokenAnswer):
        ResponsesReader().whole(answer)


def test_a_whole_answer_that_failed_is_an_error() -> None:
    failed = {"status": "failed", "output": [], "error": {"code": "server_error", "message": "Oh."}}

    with pytest.raises(LlmError, match="Oh"):
        ResponsesReader().whole(failed)


def test_a_stream_without_its_last_event_is_cut() -> None:
    with pytest.raises(BrokenAnswer):
        read({"type": "response.output_text.delta", "delta": "x"}, None, 7, {"type": "unknown"})


def test_reasoning_is_asked_for_only_where_a_model_can() -> None:
    request = LlmRequest("m", ASKED, reasoning="low")

    assert body(request)["reasoning"] == {"effort": "low"}
    assert body(request, reasoning_summary="auto")["reasoning"] == {
        "effort": "low",
        "summary": "auto",
    }
    plain = body(request, Capabilities(), reasoning_summary="auto")
    assert "reasoning" not in plain
    assert "include" not in plain


def test_a_schema_is_strict_where_it_can_be() -> None:
    closed = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

    def sent(schema: dict[str, Any], can: Capabilities = CAN) -> dict[str, Any]:
        request = LlmRequest("m", ASKED, response_format=ResponseFormat(schema))
        return body(request, can)

    assert sent(closed)["text"]["format"]["strict"] is True
    assert sent({"type": "object"})["text"]["format"]["strict"] is False
    degraded = sent(closed, Capabilities(response_format=False))
    assert degraded["text"]["format"] == {"type": "json_object"}
    assert "fits this schema" in degraded["instructions"]


def test_what_a_model_showed_comes_back_as_something_shown() -> None:
    picture = MediaPart("media://1", "image/png", 3)

    sent = body(LlmRequest("m", (*ASKED, Message.assistant("Look:", picture))))["input"]

    assert [one["role"] for one in sent] == ["user", "assistant", "user"]
    assert sent[2]["content"][0]["image_url"] == "data:image/png;base64,cG5n"


def test_an_answer_that_comes_with_the_last_event_alone_is_read() -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "Yes."}]}

    assert read(completed(output=[said])).parts == (TextPart("Yes."),)


def test_a_call_doesnt_lose_arguments_that_came_too_early() -> None:
    early = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a":'}
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}
    added = {"type": "response.output_item.added", "output_index": 0, "item": call}

    assert read(early, added, done(0, **call), completed()).parts == (
        ToolCallPart("c", "f", '{"a": 1}'),
    )


def test_an_id_or_name_that_the_api_refuses_is_sent_as_another() -> None:
    call = ToolCallPart("x" * 65, "multi_tool_use.parallel", "{}")
    result = ToolResultPart("x" * 65, call.name, (TextPart("None is called so."),))
    sent, answer = body(LlmRequest("m", (Message.assistant(call), Message.results(result))))[
        "input"
    ]

    assert sent["name"] == "_multi_tool_use_parallel"
    assert len(sent["call_id"]) <= 64
    assert answer["call_id"] == sent["call_id"]


def test_an_end_that_says_that_it_failed_is_no_answer() -> None:
    error = {"code": "server_error", "message": "It broke."}
    with pytest.raises(LlmError, match="It broke"):
        read(completed(status="failed", error=error))
    with pytest.raises(BrokenAnswer):
        read({"type": "response.completed", "response": None})
