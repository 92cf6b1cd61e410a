"""A session as JSON, continued in another process's stead."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.agent.saved import SavedCosts, SavedSession, write_session
from ryecore.agent.session import AgentSession
from ryecore.errors import AgentTurnError, InputError, InvalidConversation, StoreError
from ryecore.llm import (
    FolderMediaStore,
    MediaPart,
    MemoryMediaStore,
    Message,
    Price,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from ryecore.testing import call, fail, say
from tests.conversations import CONVERSATIONS, TEXT, USER
from tests.unit.agent.studio import Studio

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

COUNT = st.integers(0, 2**60)
MILLISECONDS = st.integers(0, 2**40)
COSTS = st.builds(
    SavedCosts,
    TEXT,
    COUNT,
    st.builds(Usage, COUNT, COUNT, COUNT),
    *[COUNT] * 3,
    st.integers(-(2**60), 2**60),
    turns=COUNT,
    duration_ms=MILLISECONDS,
)

CALL = Message.assistant(ToolCallPart("c1", "add", '{"a": 1, "b": 2}'))
RESULT = Message.results(ToolResultPart("c1", "add", (TextPart("3"),)))


def price(provider: str, model: str) -> Price:
    """A dollar for a million tokens."""
    return Price(input="1", output="1", cache_read="0.1")


def saved(**changed: Any) -> dict[str, Any]:
    """A saved session, damaged where a test says so."""
    document = json.loads(Studio("x").session().to_json())
    return document | {"messages": json.loads(MESSAGES)} | changed


MESSAGES = '[{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]'


async def test_a_conversation_continues_with_its_messages_and_what_it_has_cost() -> None:
    before = Studio(
        call("add", {"a": 1, "b": 2}, usage=Usage(10, 1)),
        say("3", usage=Usage(20, 2, 30, 4, 5)),
        price_of=price,
    )
    session = AgentSession(before.agent(), before.deps, session_id="c-7")
    await session.send("1 + 2?")
    text = session.to_json()

    after = Studio(say("sure", usage=Usage(40, 4)), price_of=price)
    again = AgentSession.from_json(after.agent(), after.deps, text, on_event=after.events.append)
    assert (again.messages, again.spent) == (session.messages, session.spent)
    assert again.to_json() == text
    reply = await again.send("Sure?")

    assert reply.cost_usd == Decimal("0.000044")
    assert again.cost_usd == session.cost_usd + reply.cost_usd
    assert again.tokens_used.input == session.tokens_used.input + 40
    assert after.model.requests[0].messages == (*session.messages, Message.user("Sure?"))
    [cost] = [one for one in after.events if one.type == "cost:updated"]
    assert (cost.node_id, cost.attempt_number) == ("c-7", 3)
    assert cost.cumulative_cost_usd == again.cost_usd


@given(CONVERSATIONS, st.none() | USER, COSTS, TEXT)
def test_any_conversation_comes_back(
    messages: list[Message], unanswered: Message | None, costs: SavedCosts, session_id: str
) -> None:
    studio = Studio()
    text = write_session(SavedSession("helper", session_id, tuple(messages), unanswered, costs))
    session = AgentSession.from_json(studio.agent(), studio.deps, text)
    assert session.messages == tuple(messages)
    assert session.spent.cost_microcents == costs.cost_microcents
    assert session.to_json() == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Every object and list of a document, with each of its keys and indices."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from places(value[key])  # type: ignore[index]


@given(CONVERSATIONS, COSTS, JSON, st.data())
def test_whatever_stands_in_a_saved_session_it_is_continued_or_refused(
    messages: list[Message], costs: SavedCosts, other: Any, data: st.DataObject
) -> None:
    studio = Studio()
    text = write_session(SavedSession("helper", "s", tuple(messages), messages[0], costs))
    document = json.loads(text)
    owner, key = data.draw(st.sampled_from([*places(document)]))
    if data.draw(st.booleans()):
        owner[key] = other
    else:
        del owner[key]
    try:
        session = AgentSession.from_json(studio.agent(), studio.deps, json.dumps(document))
    except InvalidConversation:
        return
    again = AgentSession.from_json(studio.agent(), studio.deps, session.to_json())
    assert (again.messages, again.spent) == (session.messages, session.spent)
    assert session.cost_usd >= 0


async def test_open_continues_what_was_saved_or_begins_anew() -> None:
    studio, first = Studio("hello", "again"), None
    for count in (2, 4):
        session = AgentSession.open("scripted/m-1", deps=studio.deps, saved=first)
        await session.send("hi")
        first = session.to_json()
        assert len(session.messages) == count
    with pytest.raises(TypeError, match="messages"):
        AgentSession.open("scripted/m-1", deps=studio.deps, saved=first, messages=())


async def test_the_object_of_a_json_column_and_bytes_are_taken_too() -> None:
    studio = Studio("hello", "again")
    session = studio.session()
    await session.send("hi")
    for data in (json.loads(session.to_json()), session.to_json().encode()):
        again = AgentSession.from_json(studio.agent(), studio.deps, data)
        assert again.messages == session.messages


async def test_a_message_whose_answer_failed_is_asked_again_after_a_restart() -> None:
    studio = Studio(fail("unavailable"))
    session = studio.session()
    with pytest.raises(AgentTurnError):
        await session.send("hi")

    after = Studio("hello")
    again = AgentSession.from_json(after.agent(), after.deps, session.to_json())
    assert (again.messages, again.unanswered) == ((), Message.user("hi"))
    assert (await again.retry()).text == "hello"
    assert again.unanswered is None
    assert again.messages == (Message.user("hi"), Message.assistant("hello"))
    with pytest.raises(InputError, match="Nothing waits"):
        await again.retry()


async def test_what_is_saved_during_a_reply_keeps_the_tools_that_ran() -> None:
    studio, snapshots = Studio(call("add", {"a": 1, "b": 2}), "3"), []
    session = studio.session()
    await session.send("1 + 2?", on_event=lambda event: snapshots.append(session.to_json()))
    first, last, whole = (json.loads(snapshots[place]) for place in (0, -2, -1))
    assert whole["messages"] == json.loads(session.to_json())["messages"]
    assert (first["messages"], first["unanswered"]["parts"][0]["text"]) == ([], "1 + 2?")
    assert [one["role"] for one in last["messages"]] == ["user", "assistant", "tool"]
    assert last["unanswered"] is None

    for snapshot in snapshots[:-1]:
        after = Studio("3")
        again = AgentSession.from_json(after.agent(), after.deps, snapshot)
        assert (await again.retry()).text == "3"
        assert after.model.requests[0].messages[0] == Message.user("1 + 2?")


async def test_half_a_surrogate_pair_and_what_is_no_json_survive() -> None:
    studio = Studio("\ud83d é")
    session = studio.session()
    await session.send("\udc00\x00 ü")
    assert session.to_json().isascii()
    again = AgentSession.from_json(studio.agent(), studio.deps, session.to_json())
    assert again.messages == session.messages


@pytest.mark.parametrize(
    ("data", "reason", "step"),
    [
        ("{", "this isn't", "as it is"),
        (b"\xff", "this isn't", "as it is"),
        ("[" * 99_999, "nested too deeply", "as it is"),
        ("[]", "not a list", "as it is"),
        (None, "not a NoneType", "as it is"),
        ("{}", "isn't a saved ryecore.session", "as it is"),
        ({"format": ["x"]}, "isn't a saved ryecore.session", "as it is"),
        ({"format": "ryecore.messages"}, "ryecore.messages", "messages_from_json"),
        (saved(version=2), "version 2; this ryecore reads version 1", "version of ryecore"),
        (saved(version=True), "version true;", "version of ryecore"),
        (saved(version=[]), "a list as its version;", "version of ryecore"),
        (saved(messages=None), "messages must be a list, not null", "as it is"),
        (saved(agent=1, session_id=2), r"agent must be text, not 1, and 1 more", "as it is"),
        (
            saved(messages=[{"role": "user", "parts": [{"type": "text"}]}]),
            r"messages\[0\].parts\[0\].text is missing",
            "as it is",
        ),
        (saved(messages=[{"role": "cook", "parts": []}]), "must be one of user", "as it is"),
        (saved(spent={"cost_microcents": -1}), "below zero", "as it is"),
        (saved(spent={"attempts": 2**63}), "too large", "as it is"),
        (saved(spent={"usage": {"input_tokens": -1}}), "below zero", "as it is"),
        (saved(agent="clerk"), "with the agent 'clerk', not with 'helper'", "name='clerk'"),
        (saved(pending=[{"call_id": "c1"}]), r"pending\[0\].id is missing", "as it is"),
    ],
)  # fmt: skip
async def test_what_is_damaged_or_of_another_version_is_refused(
    data: Any, reason: str, step: str
) -> None:
    studio = Studio("x")
    with pytest.raises(InvalidConversation, match=reason) as caught:
        AgentSession.from_json(studio.agent(), studio.deps, data)
    assert step in caught.value.next_step


@pytest.mark.parametrize(
    ("messages", "reason", "index"),
    [
        ([RESULT, Message.user("x")], r"begins with the result of add \(c1\)", 0),
        ([Message.user("x"), RESULT], r"messages\[1\] has the result of add", 1),
        ([CALL, RESULT, RESULT], r"messages\[2\] has the result of add", 2),
        ([CALL, Message.user("x")], r"result of add \(c1\) is missing behind messages\[0\]", 0),
        ([CALL, RESULT, CALL], r"is missing behind messages\[2\]", 2),
        ([Message("user", "hi")], "has a str, which isn't a part", 0),  # type: ignore[arg-type]
        ([Message("user", CALL.parts)], "role user and a part of the type tool_call", 0),
        ([CALL, Message("assistant", RESULT.parts)], "a part of the type tool_result", 1),
        ([CALL, Message("tool", (*RESULT.parts, TextPart("x")))], "type text", 1),
    ],
)
async def test_a_history_that_was_cut_between_calls_and_results_is_refused(
    messages: list[Message], reason: str, index: int
) -> None:
    studio = Studio("x")
    with pytest.raises(InvalidConversation, match=reason) as caught:
        AgentSession(studio.agent(), studio.deps, messages=messages)
    assert (caught.value.message_index, bool(caught.value.next_step)) == (index, True)


async def test_results_of_one_answer_may_stand_in_several_messages_and_in_any_order() -> None:
    calls = Message.assistant(*(ToolCallPart(one, "add", "{}") for one in ("c1", "c2", "c1")))
    results = [Message.results(ToolResultPart(one, "add", ())) for one in ("c2", "c1", "c1")]
    studio = Studio("x")
    AgentSession(studio.agent(), studio.deps, messages=[calls, *results])
    with pytest.raises(InvalidConversation, match="c1"):
        AgentSession(studio.agent(), studio.deps, messages=[calls, *results[:2]])


async def test_a_session_needs_an_agent_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="needs an Agent"):
        AgentSession.from_json("helper", Studio().deps, "{")  # type: ignore[arg-type]


async def test_media_come_back_by_their_handles_where_their_store_outlives_the_process(
    tmp_path: Path,
) -> None:
    kept, gone = FolderMediaStore(tmp_path), MemoryMediaStore()
    for store in (kept, gone):
        studio = Studio("a chart", media=store)
        session = studio.session()
        await session.send("What is this?", store.put(b"\x89PNG", "image/png", "chart.png"))
        again = AgentSession.from_json(studio.agent(), studio.deps, session.to_json())
        medium = again.messages[0].parts[1]
        assert isinstance(medium, MediaPart)
        assert (medium.name, medium.media_type, medium.size_bytes) == ("chart.png", "image/png", 4)
    assert FolderMediaStore(tmp_path).read(medium) == b"\x89PNG"
    with pytest.raises(StoreError, match="FolderMediaStore"):
        MemoryMediaStore().read(medium)
