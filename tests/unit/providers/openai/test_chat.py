"""What compatible servers really send."""

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
    ToolSpec,
    Usage,
)
from ryecore.providers.errors import BrokenAnswer
from ryecore.providers.openai.request import ChatApi
from ryecore.providers.openai.response import ChatReader

CAN = Capabilities(reasoning=True)
PICTURE = MediaPart("media://1", "image/png", 3)
ASKED = (Message.user("Hi."),)


def read(*events: object, said_done: bool = True) -> LlmResult:
    reader, fold = ChatReader(), StreamFold("server", "m")
    for event in events:
        for chunk in reader.read(event):
            fold.add(chunk)
    for chunk in reader.end(said_done=said_done):
        fold.add(chunk)
    return fold.result()


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def calls(*deltas: dict[str, Any]) -> dict[str, Any]:
    return delta(tool_calls=[*deltas])


def function(name: str | None = None, arguments: object = None, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


def body(request: LlmRequest, can: Capabilities = CAN, **settings: Any) -> dict[str, Any]:
    contents = {PICTURE.handle: b"png"}
    return ChatApi(**settings).body(request, contents, "server", can, stream=False)


END = delta("stop")


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    first = read(calls(function("add", "{}", index=0)), END)
    second = read(calls(function("add", "{}", index=0)), END)

    ids = {one.call_id for done in (first, second) for one in done.tool_calls}
    assert len(ids) == 2
    assert all(one.startswith("call_") for one in ids)
    assert first.stop_reason == "tool_use"


def test_calls_that_all_have_the_index_0_are_told_apart_by_their_ids() -> None:
    done = read(
        calls(function("add", '{"a":1}', index=0, id="x")),
        calls(function("add", '{"a":2}', index=0, id="y")),
        END,
    )

    assert done.tool_calls == (
        ToolCallPart("x", "add", '{"a":1}'),
        ToolCallPart("y", "add", '{"a":2}'),
    )


def test_deltas_without_an_index_go_on_with_the_last_call() -> None:
    done = read(
        calls(function("add", "", id="x")),
        calls(function(None, '{"a"')),
        calls(function(None, ":1}")),
        calls(function("stop", "{}", id="y")),
        END,
    )

    assert [(one.name, one.arguments_json) for one in done.tool_calls] == [
        ("add", '{"a":1}'),
        ("stop", "{}"),
    ]


def test_a_server_that_repeats_id_and_name_makes_one_call() -> None:
    done = read(
        calls(function("add", '{"a"', index=0, id="x")),
        calls(function("add", ":1}", index=0, id="x")),
        calls(function(None, "", index=0, id="another-for-each-delta")),
        END,
    )

    assert done.tool_calls == (ToolCallPart("x", "add", '{"a":1}'),)


def test_a_name_that_comes_late_waits_for_no_argument() -> None:
    done = read(
        calls(function(None, '{"a"', index=0, id="x")), calls(function("add", ":1}", index=0)), END
    )

    assert done.tool_calls == (ToolCallPart("x", "add", '{"a":1}'),)


def test_a_call_that_is_never_named_is_a_call_all_the_same() -> None:
    assert read(calls(function(None, "{}", index=0, id="x")), END).tool_calls == (
        ToolCallPart("x", "", "{}"),
    )


def test_arguments_that_come_as_an_object_become_text() -> None:
    done = read(calls(function("add", {"a": 1}, index=0, id="x")), END)

    assert done.tool_calls[0].arguments_json == '{"a": 1}'


def test_interleaved_parallel_calls_keep_their_own_arguments() -> None:
    done = read(
        calls(function("a", "", index=0, id="x"), function("b", "", index=1, id="y")),
        calls(function(None, "1", index=1)),
        calls(function(None, "0", index=0)),
        END,
    )

    assert [one.arguments_json for one in done.tool_calls] == ["0", "1"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_has_two_names_and_keeps_the_one_it_came_by(field: str) -> None:
    done = read(
        delta(content="", **{field: "Let me"}),
        delta(content="", **{field: " see."}),
        delta(content="Yes."),
        END,
    )

    assert done.parts == (ReasoningPart("Let me see.", "server", field), TextPart("Yes."))


def test_content_in_parts_is_read() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}

    done = read(delta(content=[thinking]), delta(content=[{"type": "text", "text": "Yes."}]), END)

    assert done.parts == (ReasoningPart("Hm.", "server"), TextPart("Yes."))


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "stop"),
        ("tool_calls", "stop"),  # without any call
        ("eos", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("content_filter", "content_filter"),
    ],
)
def test_finish_reasons_of_many_servers(finish: str, stop: str) -> None:
    assert read(delta(content="x"), delta(finish)).stop_reason == stop


def test_a_bound_that_cuts_a_call_is_told() -> None:
    done = read(calls(function("add", '{"a', index=0, id="x")), delta("length"))

    assert done.stop_reason == "length"


def test_a_refusal_is_text_and_a_content_filter() -> None:
    done = read(delta(refusal="I can't "), delta(refusal="do that."), END)

    assert (done.text, done.stop_reason) == ("I can't do that.", "content_filter")


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_a_server_that_failed_says_so_in_the_finish_reason(reason: str) -> None:
    with pytest.raises(LlmError) as caught:
        read(delta(content="x"), delta(reason))
    assert caught.value.kind == "unavailable"


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"error": {"message": "Slow.", "code": "rate_limit_exceeded"}}, "rate_limit"),
        ({"error": {"message": "Provider down.", "code": 502}}, "unavailable"),
        ({"error": {"message": "Bad key.", "code": 401}}, "auth"),
        ({"error": {"message": "Pay.", "type": "insufficient_quota"}}, "auth"),
        ({"object": "error", "message": "context length is 9", "code": 400}, "context_length"),
        ({"error": "Something."}, "unavailable"),
    ],
)  # fmt: skip
def test_an_error_with_status_200_is_an_error(event: dict[str, Any], kind: str) -> None:
    with pytest.raises(LlmError) as caught:
        read(delta(content="x"), event)
    assert caught.value.kind == kind
    with pytest.raises(LlmError) as caught:
        ChatReader().whole(event if "error" in event else {"error": event})
    assert caught.value.kind == kind


USAGE = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}


@pytest.mark.parametrize(
    ("told", "usage"),
    [
        (USAGE, Usage(100, 50)),
        (USAGE | {"prompt_tokens_details": {"cached_tokens": 30}}, Usage(70, 50, 30)),
        (USAGE | {"prompt_cache_hit_tokens": 30}, Usage(70, 50, 30)),
        (USAGE | {"cached_tokens": 30}, Usage(70, 50, 30)),
        (USAGE | {"completion_tokens_details": {"reasoning_tokens": 20}},
         Usage(100, 30, reasoning_tokens=20)),
        (USAGE | {"total_tokens": 170, "completion_tokens_details": {"reasoning_tokens": 20}},
         Usage(100, 50, reasoning_tokens=20)),
        (USAGE | {"prompt_tokens_details": None, "completion_tokens_details": None},
         Usage(100, 50)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(0, 0, 9)),
        ({"queue_time": 1}, None),
    ],
)  # fmt: skip
def test_counts_are_disjoint_however_a_server_counts(
    told: dict[str, Any], usage: Usage | None
) -> None:
    assert read(END, {"choices": [], "usage": told}).usage == usage


def test_usage_may_come_with_every_chunk_or_in_a_choice() -> None:
    growing = [delta(content="x") | {"usage": USAGE | {"completion_tokens": n}} for n in (1, 2)]
    in_choice = delta("stop")
    in_choice["choices"][0]["usage"] = USAGE

    assert read(*growing, END).usage == Usage(100, 2)
    assert read(in_choice).usage == Usage(100, 50)
    assert read(delta(content="x"), END).usage is None


def test_what_is_whole_without_the_servers_word_for_it() -> None:
    with pytest.raises(BrokenAnswer):
        read(delta(content="x"), END, said_done=False)
    with pytest.raises(BrokenAnswer):
        read(delta(content="x"), said_done=True)
    assert read(END, {"choices": [], "usage": USAGE}, said_done=False).usage == Usage(100, 50)


@pytest.mark.parametrize("event", [None, 7, [], "text", {}, {"choices": None}, {"choices": [None]},
                                   {"choices": [{"delta": None}]}, {"choices": [{"delta": []}]},
                                   calls({}), calls(function("a", index="x", id=7))])  # fmt: skip
def test_odd_events_break_nothing(event: object) -> None:
    assert read(event, delta(content="Fine."), END).text == "Fine."


def test_bounds_are_named_as_the_server_wants() -> None:
    request = LlmRequest("m", ASKED, max_output_tokens=9)

    assert body(request)["max_tokens"] == 9
    assert body(request, max_tokens_field="max_completion_tokens")["max_completion_tokens"] == 9


def test_usage_is_asked_for_unless_the_host_says_no() -> None:
    request = LlmRequest("m", ASKED)

    asked = ChatApi().body(request, {}, "server", CAN, stream=True)
    not_asked = ChatApi(stream_usage=False).body(request, {}, "server", CAN, stream=True)

    assert asked["stream_options"] == {"include_usage": True}
    assert "stream_options" not in not_asked


def test_a_schema_degrades_to_json_where_the_model_takes_none() -> None:
    wanted = ResponseFormat({"type": "object"}, "tide")
    request = LlmRequest("m", ASKED, system="Be brief.", response_format=wanted)

    sent = body(request, Capabilities(response_format=False))

    assert sent["response_format"] == {"type": "json_object"}
    assert sent["messages"][0]["content"] == (
        'Be brief.\n\nAnswer with JSON that fits this schema: {"type": "object"}'
    )
    assert body(request)["messages"][0]["content"] == "Be brief."
    assert body(request)["response_format"]["json_schema"]["name"] == "tide"


def test_what_tools_and_models_show_stands_behind_the_results() -> None:
    pair = (ToolCallPart("x", "a", "{}"), ToolCallPart("y", "b", "{}"))
    results = Message.results(
        ToolResultPart("x", "a", (PICTURE,)), ToolResultPart("y", "b", (TextPart("2"),))
    )
    request = LlmRequest("m", (*ASKED, Message.assistant(*pair), results, *ASKED))

    sent = body(request)["messages"]

    assert [one["role"] for one in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert sent[2]["content"] == "It is shown below."
    assert sent[4]["content"][0]["image_url"]["url"] == "data:image/png;base64,cG5n"


def test_reasoning_goes_back_while_the_question_is_worked_on_and_not_later() -> None:
    thought = ReasoningPart("Hm.", "server", "reasoning")
    worked = (
        Message.assistant(thought, ToolCallPart("x", "a", "{}")),
        Message.results(ToolResultPart("x", "a", (TextPart("1"),))),
    )

    during = body(LlmRequest("m", (*ASKED, *worked)))["messages"]
    after = body(LlmRequest("m", (*ASKED, *worked, *ASKED)))["messages"]

    assert during[1]["reasoning"] == "Hm."
    assert "reasoning" not in after[1]


def test_broken_arguments_go_back_as_json() -> None:
    said = Message.assistant(
        *(ToolCallPart(text, "a", text) for text in ('{"a": 1}', "{x", "", "7"))
    )

    sent = body(LlmRequest("m", (*ASKED, said)))["messages"][1]["tool_calls"]

    assert [one["function"]["arguments"] for one in sent] == [
        '{"a": 1}', '{"invalid_arguments": "{x"}', "{}", '{"invalid_arguments": "7"}',
    ]  # fmt: skip


def test_models_that_always_think_get_no_temperature() -> None:
    def sent(model: str) -> dict[str, Any]:
        return body(LlmRequest(model, ASKED, temperature=0.5, reasoning="none"))

    assert "temperature" not in sent("o3")
    assert sent("o3")["reasoning_effort"] == "low"
    assert sent("gpt-5")["reasoning_effort"] == "minimal"
    assert sent("gpt-5.2")["reasoning_effort"] == "none"
    assert sent("llama")["temperature"] == 0.5
    assert "reasoning_effort" not in body(LlmRequest("m", ASKED, reasoning="low"), Capabilities())


def test_a_tool_is_sent_without_what_not_every_server_knows() -> None:
    tool = ToolSpec("add", "Adds.", {"type": "object"})

    (sent,) = body(LlmRequest("m", ASKED, tools=(tool,)))["tools"]

    assert set(sent["function"]) == {"name", "description", "parameters"}


def test_long_ids_are_shortened_for_openai_and_left_to_other_servers() -> None:
    call = ToolCallPart("x" * 41, "größe", "{}")
    result = ToolResultPart("x" * 41, "größe", (TextPart("No."),))
    request = LlmRequest("m", (Message.assistant(call), Message.results(result)))
    for settings, most in (({"max_id_chars": 40}, 40), ({}, 41)):
        said, answer = body(request, **settings)["messages"]
        (sent,) = said["tool_calls"]
        assert len(sent["id"]) <= most
        assert sent["id"] == answer["tool_call_id"]
        assert (sent["id"] == call.call_id) == (most == 41)
        assert sent["function"]["name"] == "_gr__e"


def test_another_choice_than_the_first_is_passed_over() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "No."}, "finish_reason": "length"}]}
    assert read(delta(content="Yes."), other, delta(finish="stop")).text == "Yes."
