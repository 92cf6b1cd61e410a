import json
from typing import Any

import pytest

from ryecore.errors import LlmError
from ryecore.llm import (
    LlmRequest,
    MemoryMediaStore,
    Message,
    ReasoningEffort,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)


def parameters_of(*given: Any) -> dict[str, Any]:
    """Import the SDK where it is needed: that takes a second."""
    from ryecore.providers.anthropic.request import parameters_of

    return parameters_of(*given)


_TOOL = ToolSpec("look_up", "Look up.", {"type": "object"})


def asked(model: str = "claude-opus-5", **settings: Any) -> dict[str, Any]:
    settings.setdefault("messages", (Message.user("Hello?"),))
    settings.setdefault("cache", None)
    return parameters_of(LlmRequest(model, **settings), "anthropic", MemoryMediaStore())


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "output"),
    [
        ("claude-opus-5", "high", {"type": "adaptive", "display": "summarized"}, "high"),
        ("claude-opus-5-20260724", "low", {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-opus-5", "none", {"type": "disabled"}, None),
        ("claude-opus-5-5", "none", None, "low"),
        ("claude-fable-5-2", "none", None, "low"),
        ("claude-sonnet-5-5", "none", {"type": "between_tools"}, None),
        ("claude-haiku-4-5", "low", {"type": "enabled", "budget_tokens": 4_096}, None),
        ("claude-haiku-4-5-20251001", "none", {"type": "disabled"}, None),
        ("someone-elses", "medium", {"type": "adaptive", "display": "summarized"}, "medium"),
        ("claude-opus-5", None, None, None),
    ],
)
def test_effort_is_said_as_the_model_wants_it(
    model: str, effort: ReasoningEffort | None, thinking: object, output: str | None
) -> None:
    parameters = asked(model, reasoning=effort)

    assert parameters.get("thinking") == thinking
    assert parameters.get("output_config", {}).get("effort") == output


def test_a_budget_stays_below_what_may_be_written() -> None:
    assert asked("claude-haiku-4-5", reasoning="high", max_output_tokens=2_000)["thinking"] == {
        "type": "enabled",
        "budget_tokens": 1_999,
    }
    assert "thinking" not in asked("claude-haiku-4-5", reasoning="high", max_output_tokens=1_000)


@pytest.mark.parametrize(
    ("model", "bound"),
    [("claude-haiku-4-5", 64_000), ("claude-opus-5-5", 128_000), ("someone-elses", 32_000)],
)
def test_a_request_without_a_bound_gets_the_models(model: str, bound: int) -> None:
    assert asked(model)["max_tokens"] == bound
    assert asked(model, max_output_tokens=7)["max_tokens"] == 7


def test_a_model_that_cant_be_made_to_call_a_tool_is_asked_freely() -> None:
    settings = {"tools": (_TOOL,), "tool_choice": "required"}

    assert asked("claude-opus-5", **settings)["tool_choice"] == {"type": "any"}
    assert "tool_choice" not in asked("claude-opus-5-5", **settings)


def test_a_budget_isnt_sent_with_a_tool_that_must_be_called() -> None:
    settings = {"tools": (_TOOL,), "tool_choice": "required", "reasoning": "high"}

    assert "thinking" not in asked("claude-haiku-4-5", **settings)


def test_no_temperature_is_sent() -> None:
    assert "temperature" not in asked(temperature=0.3)


def test_effort_and_schema_stand_side_by_side() -> None:
    from ryecore.llm import ResponseFormat

    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    output = asked(reasoning="low", response_format=ResponseFormat(schema))["output_config"]

    assert output == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}


def test_a_schema_that_cannot_be_enforced_stands_in_the_system_text() -> None:
    from ryecore.llm import ResponseFormat

    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    parameters = asked(system="Count.", response_format=ResponseFormat(schema), cache=None)

    assert "output_config" not in parameters
    assert parameters["system"] == (
        "Count.\n\nAnswer with JSON that fits this schema: "
        '{"type": "object", "additionalProperties": {"type": "integer"}}'
    )


def test_reasoning_goes_back_as_the_block_that_it_was() -> None:
    message = Message.assistant(
        ReasoningPart("Hm.", "anthropic", "c2ln"),
        ReasoningPart("", "anthropic", "redacted_thinking:ZGF0YQ=="),
        ReasoningPart("", "anthropic", "b25seQ=="),
        ReasoningPart("Unsigned.", "anthropic"),
        TextPart("So."),
    )
    (written,) = asked(messages=(message,))["messages"]

    assert written["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {"type": "thinking", "thinking": "", "signature": "b25seQ=="},
        {"type": "text", "text": "So."},
    ]


def test_empty_texts_and_messages_are_left_out() -> None:
    messages = (Message.user("Hello?"), Message.assistant(""), Message.user("", "Still there?"))

    written = asked(messages=messages)["messages"]

    assert [one["content"] for one in written] == [
        [{"type": "text", "text": "Hello?"}],
        [{"type": "text", "text": "Still there?"}],
    ]


@pytest.mark.parametrize("broken", ['{"word": ', "[1]", '"word"', "null", "nan"])
def test_arguments_that_are_no_object_go_back_within_one(broken: str) -> None:
    message = Message.assistant(ToolCallPart("call_1", "look_up", broken))
    (written,) = asked(messages=(message,))["messages"]

    assert written["content"][0]["input"] == {"invalid_arguments": broken}
    json.dumps(written)


def test_a_text_file_is_a_document_with_its_name() -> None:
    store = MemoryMediaStore()
    message = Message.user(store.put("Flut und Ebbe: Füße.".encode(), "text/plain", "tides.txt"))
    request = LlmRequest("claude-opus-5", (message,), cache=None)
    (written,) = parameters_of(request, "anthropic", store)["messages"]

    assert written["content"] == [
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Flut und Ebbe: Füße."},
            "title": "tides.txt",
        }
    ]


def test_what_cant_be_sent_is_a_bad_request() -> None:
    store = MemoryMediaStore()
    sound = LlmRequest("claude-opus-5", (Message.user(store.put(b"x", "audio/wav")),))
    image = LlmRequest("claude-opus-5", (Message.user(store.put(b"x", "image/png")),))

    with pytest.raises(LlmError, match=r"audio/wav can't be sent") as taken:
        parameters_of(sound, "anthropic", store)
    assert taken.value.kind == "bad_request"
    with pytest.raises(LlmError, match="no media store") as missing:
        parameters_of(image, "anthropic", None)
    assert missing.value.kind == "bad_request"


def test_an_id_or_name_that_the_api_refuses_is_sent_as_another() -> None:
    call = ToolCallPart("functions.look:0", "multi_tool_use.parallel", '{"a": NaN}')
    result = ToolResultPart("functions.look:0", call.name, (TextPart("None is called so."),), True)
    said, given = asked(messages=(Message.assistant(call), Message.results(result)))["messages"]

    (sent,), (answer,) = said["content"], given["content"]
    assert sent["name"] == "_multi_tool_use_parallel"
    assert sent["input"] == {"invalid_arguments": '{"a": NaN}'}
    assert sent["id"].startswith("call_")
    assert answer["tool_use_id"] == sent["id"]


def test_blank_text_is_left_out() -> None:
    messages = (
        Message.user("Hello?"),
        Message.assistant("\n\n", ToolCallPart("c", "look_up", "{}")),
        Message.results(ToolResultPart("c", "look_up", (TextPart(" "),))),
    )
    _, said, given = asked(messages=messages)["messages"]

    assert [block["type"] for block in said["content"]] == ["tool_use"]
    assert given["content"][0]["content"] == []


def test_a_bound_of_0_is_no_missing_bound() -> None:
    assert asked(max_output_tokens=0)["max_tokens"] == 0
