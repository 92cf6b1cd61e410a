"""An estimate counts all that a model would read, and rather too much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.llm.parts import MediaPart, Message, TextPart, ToolCallPart, ToolResultPart
from ryecore.llm.request import LlmRequest, ResponseFormat, ToolSpec
from ryecore.llm.token_estimates import TokenEstimate, estimated_tokens, tool_tokens

BARE = LlmRequest("m", (Message.user("When is high tide?"),))
SCHEMA = {"type": "object", "properties": {"port": {"type": "string"}}}


@pytest.mark.parametrize(
    "request_with_more",
    [
        LlmRequest("m", BARE.messages, system="You know the tides."),
        LlmRequest("m", BARE.messages, tools=(ToolSpec("tide", "When it is high.", SCHEMA),)),
        LlmRequest("m", BARE.messages, response_format=ResponseFormat(SCHEMA)),
        LlmRequest("m", (*BARE.messages, Message.assistant(ToolCallPart("1", "tide", "{}")))),
        LlmRequest(
            "m", (*BARE.messages, Message.results(ToolResultPart("1", "tide", (TextPart("9"),))))
        ),
        LlmRequest("m", (Message.user("When?", MediaPart("media://0", "image/png", 9)),)),
    ],
)
def test_whatever_is_sent_along_counts(request_with_more):
    assert estimated_tokens(request_with_more) > estimated_tokens(BARE)


@pytest.mark.parametrize("text", ["满潮是什么时候", "満潮はいつですか", "만조는언제입니까"])
def test_a_script_of_ideographs_is_not_taken_for_a_third_of_itself(text):
    assert estimated_tokens(LlmRequest("m", (Message.user(text * 100),))) >= len(text) * 100


def test_half_a_character_is_counted_too():
    assert estimated_tokens(LlmRequest("m", (Message.user("\ud83d" * 3),))) > 0


def test_a_tool_alone_counts_as_in_a_request():
    tool = ToolSpec("look_up", "Finds a word, ä.", SCHEMA)

    assert tool_tokens(tool) == estimated_tokens(LlmRequest("m", (), tools=(tool,)))


TURNS = [
    Message.user("When is high tide?"),
    Message.assistant(ToolCallPart("1", "tide", '{"port": "Köln"}')),
    Message.results(ToolResultPart("1", "tide", (TextPart("9"),))),
    Message.assistant("At nine."),
]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(TURNS), max_size=6),
            st.sampled_from(["", "Be short."]),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_an_estimate_that_goes_on_from_the_last_one_is_the_same(
    requests: list[tuple[list[Message], str, bool]],
) -> None:
    estimate = TokenEstimate()
    for messages, system, has_tool in requests:
        tools = (ToolSpec("tide", "When it is high.", SCHEMA),) if has_tool else ()
        request = LlmRequest("m", tuple(messages), system=system, tools=tools)
        assert estimate.of(request) == estimated_tokens(request)
