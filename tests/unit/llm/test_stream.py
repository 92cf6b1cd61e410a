"""What a stream becomes, and errors without keys."""

import time
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from ryecore.llm import (
    LlmResult,
    ReasoningDelta,
    ReasoningPart,
    StreamChunk,
    StreamEnd,
    StreamFold,
    TextDelta,
    TextPart,
    ToolCallDelta,
    ToolCallPart,
    ToolCallStart,
    redact,
)


def folded(*chunks: StreamChunk) -> LlmResult:
    fold = StreamFold("p", "m")
    for chunk in chunks:
        fold.add(chunk)
    return fold.result()


def test_a_character_in_two_halves_is_one_again() -> None:
    result = folded(
        ReasoningDelta("\ud83d"),
        ReasoningDelta("\ude00"),
        TextDelta("A \ud83d"),
        TextDelta("\ude00!"),
        ToolCallStart(0, "c", "f"),
        ToolCallDelta(0, '{"a": "\ud83d'),
        ToolCallDelta(0, '\ude00"}'),
        StreamEnd("stop"),
    )

    assert result.parts == (
        ReasoningPart("😀", "p"),
        TextPart("A 😀!"),
        ToolCallPart("c", "f", '{"a": "😀"}'),
    )


def test_half_a_character_is_replaced_so_that_the_text_can_be_sent_and_kept() -> None:
    fold = StreamFold("p", "m")
    fold.add(TextDelta("cut \ud83d"))

    assert fold.text_bytes == 7
    assert fold.result().text == "cut �"


@pytest.mark.parametrize("quoted", ["{key!r}", "b{key!r}", "{key}", "<{stripped}>"])
def test_a_key_is_taken_out_however_it_is_quoted(quoted: str) -> None:
    key = "hush-hush\r\nX: 1"
    said = redact(f"Illegal: {quoted.format(key=key, stripped=key.strip())}", key)

    assert "hush" not in said


@pytest.mark.parametrize("write", [quote_plus, quote, lambda key: b64encode(key.encode()).decode()])
def test_a_key_is_taken_out_of_urls_and_headers(write: Callable[[str], str]) -> None:
    key = "hush/hush+hush = hush%hush"

    said = redact(f"GET /?k={write(key)}&x", key + "\n").replace("=&", "&")

    assert said == "GET /?k=***&x"


def test_calls_without_end_are_folded_in_time_that_grows_with_their_number() -> None:
    fold = StreamFold("p", "m")
    began = time.process_time()
    for number in range(50_000):
        fold.add(ToolCallStart(number, f"c{number}", "f"))
    fold.add(ToolCallStart(50_000, "c7", "f"))
    fold.add(StreamEnd("tool_use"))

    assert len(fold.result().tool_calls) == 50_000
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("a", "a bad model name: llama", "a bad model name: llama"),
        ("x", "x-api-key: x", "x-api-key: x"),
        ("   ", "no   model", "no   model"),
        ("none", "none of them: nonetheless, key=none", "*** of them: nonetheless, key=***"),
        ("hunter2", "Invalid key 'hunter2' of hunter22", "Invalid key '***' of hunter22"),
        ("hunter2+hunter2", "xhunter2+hunter2x", "x***x"),
    ],
)
def test_a_short_key_is_struck_from_no_other_word(key: str, text: str, expected: str) -> None:
    assert redact(text, key) == expected
