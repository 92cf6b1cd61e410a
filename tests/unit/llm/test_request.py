"""What stands in the messages of a conversation is known, however it grows or is replaced."""

from hypothesis import given
from hypothesis import strategies as st

from ryecore.llm import MediaPart, Message, ReasoningPart, TextPart, ToolResultPart
from ryecore.llm.request import Contents

PNG, WAV = MediaPart("media://a", "image/png", 3), MediaPart("media://b", "audio/wav", 4)
MESSAGES = (
    Message.user("Look."),
    Message.user("Look.", WAV),
    Message.results(ToolResultPart("c", "draw", (TextPart("here"), PNG))),
    Message.assistant(ReasoningPart("hm", "a"), ReasoningPart("hm", "b"), "Yes."),
    Message.assistant(ReasoningPart("hm", "a")),
)


def _looked_at(*messages: Message) -> Contents:
    contents = Contents()
    contents.look(messages)
    return contents


def test_media_are_known_those_in_results_too() -> None:
    assert _looked_at(*MESSAGES).media_types == {"image/png", "audio/wav"}
    assert _looked_at(MESSAGES[0]).media_types == set()


def test_it_is_known_who_reasoned() -> None:
    assert _looked_at(*MESSAGES).reasoned_by == {"a", "b"}
    assert _looked_at(*MESSAGES[:3]).reasoned_by == set()


@given(st.lists(st.lists(st.sampled_from(MESSAGES)), min_size=1))
def test_whatever_was_looked_at_before_what_stands_in_the_last_one_counts(
    conversations: list[list[Message]],
) -> None:
    contents = Contents()
    for messages in conversations:
        contents.look(tuple(messages))
        fresh = _looked_at(*messages)
        assert contents.media_types == fresh.media_types
        assert contents.reasoned_by == fresh.reasoned_by
