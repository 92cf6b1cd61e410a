import base64
from typing import Any

import pytest

from ryecore.errors import LlmError
from ryecore.llm import (
    LlmRequest,
    MemoryMediaStore,
    Message,
    ReasoningEffort,
    ReasoningPart,
    ResponseFormat,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from ryecore.providers.gemini.request import config_of, contents_of

_TOOL = ToolSpec("look_up", "Look up.", {"type": "object"})
_SKIP = "skip_thought_signature_validator"


def said(*parts: Any, model: str = "gemini-3.5-flash") -> list[dict[str, Any]]:
    """What an assistant message becomes, without what is empty."""
    request = LlmRequest(model, (Message.assistant(*parts),))
    (content,) = contents_of(request, "gemini", MemoryMediaStore())
    assert content.role == "model"
    return [part.model_dump(exclude_none=True) for part in content.parts or ()]


@pytest.mark.parametrize(
    ("model", "effort", "level", "budget", "shown"),
    [
        ("gemini-3.5-flash", "low", "LOW", None, True),
        ("gemini-3.5-flash", "none", "MINIMAL", None, False),
        ("gemini-3.8-flash", "none", "LOW", None, False),
        ("gemini-3-pro-preview", "medium", "HIGH", None, True),
        ("gemini-3.1-pro-preview", "medium", "MEDIUM", None, True),
        ("someone-elses", "high", "HIGH", None, True),
        ("models/gemini-2.5-flash", "medium", None, 8_192, True),
        ("gemini-2.5-flash", "none", None, 0, False),
        ("gemini-2.5-pro", "none", None, 128, False),
    ],
)
def test_effort_is_said_as_the_model_wants_it(
    model: str, effort: ReasoningEffort, level: str | None, budget: int | None, shown: bool
) -> None:
    thinking = config_of(LlmRequest(model, (), reasoning=effort)).thinking_config

    assert thinking is not None
    assert (thinking.thinking_level and thinking.thinking_level.value) == level
    assert thinking.thinking_budget == budget
    assert thinking.include_thoughts is shown


def test_models_that_dont_think_arent_asked_to() -> None:
    assert config_of(LlmRequest("gemini-2.0-flash", (), reasoning="high")).thinking_config is None
    assert config_of(LlmRequest("gemini-3.5-flash", ())).thinking_config is None


def test_a_schema_beside_tools_is_for_models_that_take_it() -> None:
    settings: dict[str, Any] = {
        "tools": (_TOOL,),
        "response_format": ResponseFormat({"type": "object"}),
        "system": "Be brief.",
    }
    old = config_of(LlmRequest("gemini-2.5-flash", (), **settings))
    new = config_of(LlmRequest("gemini-3.5-flash", (), **settings))

    assert (old.response_json_schema, old.response_mime_type) == (None, None)
    assert new.response_json_schema == {"type": "object"}
    told = 'Be brief.\n\nAnswer with JSON that fits this schema: {"type": "object"}'
    assert (old.system_instruction, new.system_instruction) == (told, "Be brief.")


def test_a_signature_travels_on_the_part_that_follows() -> None:
    parts = said(
        ReasoningPart("Hm.", "gemini", "c2ln"),
        ToolCallPart("c1", "look_up", "{}"),
        ToolCallPart("c2", "look_up", "{}"),
    )

    assert parts[0] == {"text": "Hm.", "thought": True}
    assert parts[1]["thought_signature"] == b"sig"
    assert "thought_signature" not in parts[2]


def test_a_signature_at_the_end_travels_on_an_empty_text() -> None:
    parts = said(TextPart("So."), ReasoningPart("", "gemini", "c2ln"))

    assert parts == [{"text": "So."}, {"text": "", "thought_signature": b"sig"}]


def test_calls_of_another_providers_model_are_marked_where_the_model_asks_for_it() -> None:
    calls = (ToolCallPart("c1", "look_up", "{}"), ToolCallPart("c2", "look_up", "{}"))
    foreign = ReasoningPart("Mine.", "another", "c2ln")

    new = said(foreign, *calls)
    old = said(foreign, *calls, model="gemini-2.5-flash")

    assert base64.urlsafe_b64encode(new[0]["thought_signature"]).decode() == _SKIP
    assert "thought_signature" not in new[1]
    assert all("thought_signature" not in part for part in old)


def test_ids_that_were_made_here_dont_travel() -> None:
    (made, given) = said(
        ToolCallPart("made-x-0", "look_up", "{}"), ToolCallPart("c2", "look_up", "{}")
    )

    assert "id" not in made["function_call"]
    assert given["function_call"]["id"] == "c2"


@pytest.mark.parametrize("broken", ['{"word": ', "[1]", "null"])
def test_arguments_that_are_no_object_go_back_within_one(broken: str) -> None:
    (part,) = said(ToolCallPart("c1", "look_up", broken))

    assert part["function_call"]["args"] == {"invalid_arguments": broken}


def test_images_of_a_tool_stand_beside_its_result_for_older_models() -> None:
    store = MemoryMediaStore()
    picture = store.put(b"png", "image/png")
    results = Message.results(ToolResultPart("c1", "draw", (TextPart("Look:"), picture)))

    (content,) = contents_of(LlmRequest("gemini-2.5-flash", (results,)), "gemini", store)

    first, second = content.parts or ()
    assert first.function_response is not None
    assert first.function_response.response == {"output": "Look:"}
    assert second.inline_data is not None
    assert second.inline_data.data == b"png"


def test_a_medium_without_a_store_is_a_bad_request() -> None:
    picture = MemoryMediaStore().put(b"png", "image/png")
    request = LlmRequest("gemini-3.5-flash", (Message.user(picture),))

    with pytest.raises(LlmError, match="no media store") as caught:
        contents_of(request, "gemini", None)
    assert caught.value.kind == "bad_request"


def test_what_another_model_called_is_sent_in_a_form_that_is_taken() -> None:
    call = ToolCallPart("c", "größe", '{"a": Infinity}')
    request = LlmRequest(
        "gemini-3.5-flash",
        (
            Message.assistant(call, ToolCallPart("d", "f", '{"a":' * 900 + "1" + "}" * 900)),
            Message.results(ToolResultPart("c", "größe", (TextPart("No."),))),
        ),
    )
    said, given = contents_of(request, "gemini", MemoryMediaStore())

    first, second = (part.function_call for part in said.parts or ())
    (result,) = (part.function_response for part in given.parts or ())
    assert first is not None
    assert second is not None
    assert result is not None
    assert first.name == result.name == "_gr__e"
    assert first.args == {"invalid_arguments": '{"a": Infinity}'}
    assert list(second.args or ()) == ["invalid_arguments"]
