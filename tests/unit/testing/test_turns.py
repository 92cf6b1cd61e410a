import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.llm import (
    LlmResult,
    ReasoningDelta,
    ReasoningPart,
    StreamEnd,
    StreamFold,
    TextDelta,
    TextPart,
    ToolCallPart,
    Usage,
)
from ryecore.testing import Turn, call, cut, fail, hang, raw, say, think


def folded(turn: Turn, chunk_chars: int = 4) -> LlmResult:
    fold = StreamFold("scripted", "m")
    prepared = turn.prepared(chunk_chars)
    for chunk in prepared.chunks:
        fold.add(chunk)
    assert prepared.end is not None
    fold.add(prepared.end)
    return fold.result()


def test_turns_join_into_one() -> None:
    turn = think("Add them.", opaque="s") + say("So:") + call("add", {"a": 1}, call_id="c")

    done = folded(turn)

    assert done.parts == (
        ReasoningPart("Add them.", "scripted", "s"),
        TextPart("So:"),
        ToolCallPart("c", "add", '{"a": 1}'),
    )
    assert done.stop_reason == "tool_use"


def test_parallel_calls_have_an_index_each() -> None:
    turn = call("add", {"a": 1}, call_id="x") + call("add", "{broken", call_id="y")

    assert folded(turn).tool_calls == (
        ToolCallPart("x", "add", '{"a": 1}'),
        ToolCallPart("y", "add", "{broken"),
    )


def test_the_last_word_counts_for_usage_and_stop_reason() -> None:
    turn = say("a", usage=Usage(1), stop_reason="length") + say("b", usage=Usage(2))

    assert turn.prepared(4).end == StreamEnd("length", Usage(2))
    assert say("a").prepared(4).end == StreamEnd("stop")


def test_raw_chunks_stay_as_they_are() -> None:
    chunks = (TextDelta("much longer than four"), ReasoningDelta("x"))

    assert raw(*chunks).prepared(4).chunks == chunks
    assert raw(*chunks).ending == "cut"
    assert (raw(*chunks) + say("!")).ending == "whole"


def test_nothing_follows_an_end() -> None:
    assert (say("half") + cut()).ending == "cut"
    for ended in (hang(), fail("auth")):
        assert (say("half") + ended).ending == ended.ending
        with pytest.raises(ValueError, match="must be the last"):
            ended + say("more")


def test_chunks_are_made_once() -> None:
    turn = say("Once upon a time")

    assert turn.prepared(4) is turn.prepared(4)
    assert turn.prepared(4) != turn.prepared(5)
    assert turn == say("Once upon a time")


@given(st.text(), st.integers(1, 50))
def test_pieces_make_the_text_again(text: str, chunk_chars: int) -> None:
    chunks = say(text).prepared(chunk_chars).chunks

    assert folded(say(text), chunk_chars).text == text
    assert all(isinstance(one, TextDelta) and 0 < len(one.text) <= chunk_chars for one in chunks)
