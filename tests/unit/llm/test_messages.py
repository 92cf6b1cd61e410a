"""Messages as JSON, and the order that a conversation must keep."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import InvalidConversation
from ryecore.llm import Message, messages_from_json, messages_to_json
from ryecore.llm.messages import check_order
from tests.conversations import CONVERSATIONS


@given(CONVERSATIONS)
def test_any_conversation_comes_back_from_json(messages: list[Message]) -> None:
    text = messages_to_json(messages)
    assert messages_from_json(text) == tuple(messages)
    assert messages_from_json(text.encode()) == tuple(messages)
    assert messages_from_json(json.loads(text)) == tuple(messages)
    assert text.isascii()


@given(CONVERSATIONS)
def test_every_conversation_of_the_turns_is_in_order(messages: list[Message]) -> None:
    check_order(messages)


@given(CONVERSATIONS, st.data())
def test_one_that_lost_a_message_is_refused_exactly_where_a_call_and_a_result_were_parted(
    messages: list[Message], data: st.DataObject
) -> None:
    lost = data.draw(st.integers(0, len(messages) - 1))
    rest = [*messages[:lost], *messages[lost + 1 :]]
    if messages[lost].role == "tool" or messages[lost].tool_calls:
        with pytest.raises(InvalidConversation) as caught:
            check_order(rest)
        assert caught.value.next_step
    else:
        check_order(rest)


@given(CONVERSATIONS)
def test_the_calls_of_the_last_answer_may_wait(messages: list[Message]) -> None:
    if messages[-1].role != "tool":
        return
    calls = [call.call_id for call in messages[-2].tool_calls]
    check_order(messages[:-1], waiting=calls)
    with pytest.raises(InvalidConversation, match="missing"):
        check_order(messages[:-1], waiting={*calls} - {calls[0]})


def test_a_part_of_a_conversation_is_saved_as_it_is() -> None:
    tail = Message.results()
    assert messages_from_json(messages_to_json([tail])) == (tail,)


@pytest.mark.parametrize("data", ["", "null", '{"format": "ryecore.messages", "version": 1}'])
def test_what_holds_no_messages_is_refused_with_a_next_step(data: str) -> None:
    with pytest.raises(InvalidConversation) as caught:
        messages_from_json(data)
    assert caught.value.next_step


def test_a_saved_session_names_its_reader_and_an_unknown_version_the_known_ones() -> None:
    with pytest.raises(InvalidConversation, match=r"AgentSession\.from_json"):
        messages_from_json({"format": "ryecore.session"})
    with pytest.raises(InvalidConversation) as caught:
        messages_from_json({"format": "ryecore.messages", "version": 7})
    assert caught.value.known_versions == (1,)
