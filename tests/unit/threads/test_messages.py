"""A conversation as records, and rebuilt from them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.convert.strict import RECORDS
from ryecore.errors import StateError
from ryecore.llm import (
    LlmRequest,
    LlmResult,
    Message,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from ryecore.llm.messages import write_message
from ryecore.llm.token_estimates import estimated_tokens
from ryecore.state.transcript_check import Record
from ryecore.state.transcript_format import encode_payload
from ryecore.threads.records.messages import (
    CognitionIn,
    CognitionOut,
    ToolCallResult,
    answer_payload,
    cut_after,
    keep_tail,
    message_payload,
    read_payload,
    rebuild,
    result_payload,
)
from tests.conversations import CALLS, CONTENT, CONVERSATIONS, MEDIA, REASONING, TEXTS


def record(event_type: str, **payload: Any) -> Record:
    """A record as it comes out of the file."""
    return Record(1.0, "acme/t-1", event_type, json.loads(encode_payload(payload)))


def records_of(messages: Iterable[Message]) -> list[Record]:
    """What a thread writes while a conversation is had."""
    made, turn = [record("thread_started")], 0
    for message in messages:
        if message.role == "user":
            made.append(record("cognition_in", **message_payload(turn + 1, message)))
        elif message.role == "assistant":
            turn += 1
            made.append(record("model_call", turn=turn, attempt=1))
            made.append(record("token_delta", text="part"))
            answer = LlmResult(message.parts, "stop", None, "m", "fake")
            made.append(record("cognition_out", **answer_payload(turn, answer)))
            for call in message.tool_calls:
                made.append(
                    record("tool_call_start", turn=turn, call_id=call.call_id, tool=call.name)
                )
        else:
            for part in message.parts:
                assert isinstance(part, ToolResultPart)
                made.append(record("tool_call_result", **result_payload(turn, part)))
            made.append(record("checkpoint", turn=turn, digest=f"{turn:064}"))
    return made


@given(st.lists(TEXTS | REASONING | MEDIA | CALLS).map(tuple), CONTENT, st.booleans())
def test_payloads_made_by_hand_are_those_of_their_types(
    parts: tuple[Any, ...], content: tuple[Any, ...], flag: bool
) -> None:
    answer = LlmResult(parts, "stop", None, "m", "fake")
    result = ToolResultPart("c", "add", content, flag, not flag)

    told = message_payload(3, Message("user", parts))
    said, done = answer_payload(3, answer), result_payload(3, result)

    whole = CognitionOut(3, "fake", "m", parts=parts, stop_reason="stop")
    assert json.dumps(told) == json.dumps(RECORDS.write(CognitionIn(3, parts=parts)))
    assert json.dumps(said) == json.dumps(RECORDS.write(whole))
    returned = ToolCallResult(
        3, call_id="c", tool="add", content=content, is_error=flag, untrusted=not flag
    )
    assert json.dumps(done) == json.dumps(RECORDS.write(returned))


@given(CONVERSATIONS)
def test_a_conversation_comes_back_from_its_records_as_it_was(messages: list[Message]) -> None:
    rebuilt = rebuild(records_of(messages))
    assert rebuilt.messages == messages
    answers = sum(message.role == "assistant" for message in messages)
    assert (rebuilt.turn, rebuilt.asked_turn) == (answers, answers)
    assert (rebuilt.unknown, rebuilt.not_run, rebuilt.ended) == ((), (), False)


@given(CONVERSATIONS)
def test_messages_come_back_from_json(messages: list[Message]) -> None:
    said = json.loads(json.dumps([write_message(message) for message in messages]))
    assert [read_payload(one, Message) for one in said] == messages


@given(CONVERSATIONS, st.data())
def test_wherever_it_breaks_off_every_call_has_an_answer(
    messages: list[Message], data: st.DataObject
) -> None:
    records = records_of(messages)
    kept = records[: data.draw(st.integers(0, len(records)))]
    rebuilt = rebuild(kept)
    waiting: list[str] = []
    for message in rebuilt.messages:
        if message.role == "tool":
            results = [part for part in message.parts if isinstance(part, ToolResultPart)]
            assert [part.call_id for part in results] == waiting
            waiting = []
        else:
            assert waiting == []
            waiting = [call.call_id for call in message.tool_calls]
    assert waiting == []
    begun = sum(one.type == "tool_call_start" for one in kept)
    came = sum(one.type == "tool_call_result" for one in kept)
    assert len(rebuilt.unknown) == begun - came
    if not rebuilt.unknown and not rebuilt.not_run:
        assert rebuilt.messages == messages[: len(rebuilt.messages)]


def test_a_call_in_flight_is_unknown_and_one_that_had_not_begun_was_not_run() -> None:
    calls = [ToolCallPart(name, f"tool_{name}", "{}") for name in "abc"]
    answer = LlmResult(tuple(calls), "tool_use", None, "m", "fake")
    done = ToolResultPart("b", "tool_b", (TextPart("42"),), untrusted=False)
    rebuilt = rebuild(
        [
            record("thread_started"),
            record("cognition_in", **message_payload(1, Message.user("Go."))),
            record("model_call", turn=1, attempt=1),
            record("cognition_out", **answer_payload(1, answer)),
            record("tool_call_start", turn=1, call_id="a"),
            record("tool_call_start", turn=1, call_id="b"),
            record("tool_call_result", **result_payload(1, done)),
        ]
    )
    first, second, third = rebuilt.messages[-1].parts
    assert isinstance(first, ToolResultPart)
    assert isinstance(third, ToolResultPart)
    assert second == done
    assert first.is_error
    assert "whether it has had its effect is not known" in first.text
    assert third.is_error
    assert "not run" in third.text
    assert (rebuilt.unknown, rebuilt.not_run) == (("a",), ("c",))


def test_a_read_only_call_that_was_broken_off_may_be_made_again() -> None:
    calls = [ToolCallPart(name, f"tool_{name}", "{}") for name in "ab"]
    answer = LlmResult(tuple(calls), "tool_use", None, "m", "fake")
    rebuilt = rebuild(
        [
            record("cognition_out", **answer_payload(1, answer)),
            record("tool_call_start", turn=1, call_id="a", read_only=True),
            record("tool_call_start", turn=1, call_id="b"),
        ]
    )
    first, second = rebuilt.messages[-1].parts
    assert isinstance(first, ToolResultPart)
    assert isinstance(second, ToolResultPart)
    assert "may be called again" in first.text
    assert "is not known" in second.text
    assert (rebuilt.unknown, rebuilt.not_run) == (("b",), ("a",))


def test_partial_text_is_not_used_and_its_turn_is_known_to_have_been_asked() -> None:
    rebuilt = rebuild(
        [
            *records_of([Message.user("Go."), Message.assistant("One."), Message.user("On.")]),
            record("model_call", turn=2, attempt=1),
            record("token_delta", text="Tw"),
        ]
    )
    assert [message.text for message in rebuilt.messages] == ["Go.", "One.", "On."]
    assert (rebuilt.turn, rebuilt.asked_turn) == (1, 2)


def test_an_answer_that_the_turns_did_not_keep_is_not_rebuilt() -> None:
    filtered = LlmResult((TextPart("x"),), "content_filter", None, "m", "fake")
    empty = LlmResult((), "stop", None, "m", "fake")
    said = [record("cognition_out", **answer_payload(1, one)) for one in (filtered, empty)]
    assert rebuild(said).messages == []


@pytest.mark.parametrize("status", ["completed", "error", "cancelled", "continued", "killed"])
def test_how_a_thread_ended_is_known_until_it_is_resumed(status: str) -> None:
    records = [record("thread_started"), record(f"thread_{status}"), record("after_complete")]
    assert rebuild(records).status == status
    assert rebuild(records).ended
    assert not rebuild([*records, record("thread_resumed")]).ended
    assert rebuild([record("thread_started"), record("thread_handoff")]).status is None


@pytest.mark.parametrize(
    "odd",
    [
        record("cognition_in", turn=1),
        record("cognition_in", turn=1, parts=[{"type": "hologram"}]),
        record("cognition_out", parts=[{"type": "text", "text": 5}]),
        record("tool_call_result", call_id="c", tool=None, content=[]),
        record("tool_call_result", call_id="c", tool="t", content="42"),
        record("tool_call_result", call_id="c", tool="t", content=[{"type": "tool_call"}]),
    ],
)
def test_a_record_of_another_version_is_refused_in_words(odd: Record) -> None:
    with pytest.raises(StateError, match="this version"):
        rebuild([odd])


def test_a_reasoning_part_keeps_its_origin() -> None:
    said = {"type": "reasoning", "text": "", "origin": "anthropic", "opaque": "xyz"}
    assert read_payload(said, ReasoningPart) == ReasoningPart("", "anthropic", "xyz")


def test_a_fork_begins_with_a_turns_results() -> None:
    calls = [Message("assistant", (ToolCallPart("c", "t", "{}"),))] * 3
    results = [Message.results(ToolResultPart("c", "t", (TextPart(str(n)),))) for n in range(3)]
    pairs = [message for pair in zip(calls, results, strict=True) for message in pair]
    messages = [Message.user("Go."), *pairs]
    records = records_of(messages)
    cut = cut_after(records, 2)
    assert rebuild(cut.records).messages == messages[:5]
    assert cut.digest == f"{2:064}"
    with pytest.raises(StateError, match="the last one that ended is 3"):
        cut_after(records, 4)
    with pytest.raises(StateError, match="no turn has ended"):
        cut_after([], 1)


def tokens(messages: Iterable[Message]) -> int:
    return estimated_tokens(LlmRequest("", tuple(messages)))


@given(CONVERSATIONS, st.integers(0, 60))
def test_a_tail_fits_begins_with_a_user_message_and_splits_no_calls(
    messages: list[Message], most: int
) -> None:
    tail = keep_tail(messages, most)
    assert tokens(tail) <= most
    assert not tail or tail[0].role == "user"
    own = tail if tail == messages[len(messages) - len(tail) :] else tail[1:]
    assert own == messages[len(messages) - len(own) :]
    for before, message in zip([None, *tail], tail, strict=False):
        if message.role == "tool":
            assert before is not None
            assert before.tool_calls
    if sum(tokens([message]) for message in messages) <= most:
        assert tail == messages


def test_a_tail_in_the_middle_of_a_turns_work_says_that_something_was_left_out() -> None:
    work = [
        message
        for number in range(20)
        for message in (
            Message("assistant", (ToolCallPart(f"c{number}", "t", "{}"),)),
            Message.results(ToolResultPart(f"c{number}", "t", (TextPart("word " * 20),))),
        )
    ]
    tail = keep_tail([Message.user("A prompt. " * 100), *work], 200)
    assert tail[0].role == "user"
    assert "left out" in tail[0].text
    assert tail[1:] == work[-len(tail) + 1 :]
    assert len(tail) > 4
