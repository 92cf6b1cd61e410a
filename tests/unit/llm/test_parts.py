"""What a message says of itself."""

import pickle

from ryecore.llm import MediaPart, Message, ReasoningPart, TextPart, ToolResultPart

PNG, WAV = MediaPart("media://a", "image/png", 3), MediaPart("media://b", "audio/wav", 4)


def test_a_message_knows_its_media_those_in_results_too() -> None:
    result = ToolResultPart("c", "draw", (TextPart("here"), PNG))
    assert Message.results(result).media_types == {"image/png"}
    assert Message.user("Look.", PNG, WAV).media_types == {"image/png", "audio/wav"}
    assert Message.user("Look.").media_types == frozenset()


def test_a_message_knows_who_reasoned_in_it() -> None:
    message = Message.assistant(ReasoningPart("hm", "a"), ReasoningPart("hm", "b"), "Yes.")
    assert message.reasoned_by == {"a", "b"}
    assert Message.assistant("Yes.").reasoned_by == frozenset()


def test_what_was_looked_up_makes_no_difference() -> None:
    looked, other = Message.user("Look.", PNG), Message.user("Look.", PNG)
    _ = looked.media_types, looked.reasoned_by
    assert looked == other
    assert hash(looked) == hash(other)
    assert repr(looked) == repr(other)
    assert pickle.loads(pickle.dumps(looked)) == other
