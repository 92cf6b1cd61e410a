"""A conversation that keeps its messages, through errors too."""

from decimal import Decimal

import anyio
import pytest

from ryecore.agent.events import AgentToken
from ryecore.agent.session import AgentSession
from ryecore.errors import AgentTurnError, ConfigError, InputError
from ryecore.llm import Media, MemoryMediaStore, Message, Price, Usage
from ryecore.policy.context import CallContext, CancelToken
from ryecore.testing import call, fail, hang, say
from ryecore.tools import ToolContext, tool
from tests.unit.agent.studio import Studio

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_conversation_keeps_its_messages_and_adds_up_its_cost():
    studio = Studio(
        call("add", {"a": 1, "b": 2}, usage=Usage(10, 1)),
        say("3", usage=Usage(20, 2)),
        say("as I said", usage=Usage(40, 4)),
        price_of=lambda provider, model: Price(input="1", output="1"),
    )
    session = studio.session()
    first = await session.send("1 + 2?")
    assert (first.text, first.output, first.turns) == ("3", "3", 2)
    assert (first.tokens_used.input, first.cost_usd) == (30, Decimal("0.000033"))
    second = await session.send("Sure?")
    assert (second.tokens_used.input, second.cost_usd) == (40, Decimal("0.000044"))
    assert (session.tokens_used.input, session.cost_usd) == (70, Decimal("0.000077"))
    assert [message.role for message in session.messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert studio.model.requests[2].messages == session.messages[:5]
    assert str(second) == "as I said"


async def test_a_reply_tells_what_came_from_the_cache_and_what_that_saved():
    price = Price("1", "0", cache_read="0.1", cache_write="1.25", cache_write_1h="2")
    studio = Studio(
        say("one", usage=Usage(10, 1, 0, 1_000)),
        say("two", usage=Usage(20, 1, 1_000, 0, 0, 500)),
        say("three", usage=Usage(30, 1, 2_000)),
        price_of=lambda provider, model: price,
    )
    session = studio.session()
    first, second, third = [(await session.send("Go on.")).spent for _ in range(3)]
    assert (first.cache_read_tokens, first.cache_write_tokens) == (0, 1_000)
    assert (second.cache_read_tokens, second.cache_write_tokens) == (1_000, 500)
    assert [one.cache_saved_usd for one in (first, second, third)] == [
        Decimal("-0.00025"), Decimal("0.0004"), Decimal("0.0018"),
    ]  # fmt: skip
    whole = session.spent
    assert (whole.cache_read_tokens, whole.cache_write_tokens) == (3_000, 1_500)
    assert whole.cache_saved_usd == Decimal("0.00195")
    again = AgentSession.from_json(studio.agent(), studio.deps, session.to_json())
    assert again.spent == whole
    assert "3,000 from the cache" in session._repr_html_()
    assert "$0.001950 saved" in session._repr_html_()
    told = [one.to_dict() for one in studio.events if one.type == "cost:updated"]
    assert [one.get("cacheReadTokens") for one in told] == [None, 1_000, 2_000]
    assert [one.get("cacheSavedMicrocents") for one in told] == [-25_000, 40_000, 180_000]


async def test_a_conversation_can_be_taken_up_again():
    studio = Studio("one", "two")
    before = studio.session()
    await before.send("hello")
    after = AgentSession(studio.agent(), studio.deps, messages=before.messages)
    await after.send("again")
    assert len(studio.model.requests[1].messages) == 3


async def test_a_tool_that_fails_is_told_to_the_model_within_the_budget():
    studio = Studio(call("explode"), "It broke.")
    reply = await studio.session().send("Do it.")
    assert reply.text == "It broke."
    assert studio.model.requests[1].messages[-1].parts[0].is_error
    stubborn = Studio(*[call("explode")] * 10)
    with pytest.raises(AgentTurnError) as caught:
        await stubborn.session().send("Do it.")
    assert (caught.value.code, len(stubborn.model.requests)) == ("tool_failed", 4)


async def test_a_tool_that_is_denied_is_told_to_the_model():
    studio = Studio(call("explode"), "I may not.")
    reply = await studio.session(tools=["add"]).send("Do it.")
    assert reply.text == "I may not."
    denied = studio.model.requests[1].messages[-1].parts[0]
    assert denied.is_error
    assert "not granted" in denied.text


async def test_after_an_error_the_conversation_is_whole_and_goes_on():
    studio = Studio(
        call("add", {"a": 1, "b": 2}) + call("shout", {"text": "x"}),
        fail("unavailable"),
        "back",
    )
    session = studio.session()
    with pytest.raises(AgentTurnError) as caught:
        await session.send("Go.")
    assert (caught.value.code, caught.value.retryable) == ("provider_unavailable", True)
    called = {part.call_id for message in session.messages for part in message.tool_calls}
    answered = {
        part.call_id
        for message in session.messages
        if message.role == "tool"
        for part in message.parts
    }
    assert called == answered
    assert (await session.send("Again.")).text == "back"


async def test_events_come_while_the_answer_does_and_then_the_reply():
    studio = Studio(say("a b c d e f g h i j k l m n o p q r s t u v w"))
    session = studio.session()
    seen = []
    async with session.stream("Spell.") as events:
        with pytest.raises(InputError, match="isn't there yet"):
            events.reply  # noqa: B018
        async for event in events:
            seen.append(event)
    assert "".join(one.token for one in seen if isinstance(one, AgentToken)) == events.reply.text
    assert len(seen) > 2


async def test_leaving_a_stream_early_cancels_the_answer():
    studio = Studio(say("hal") + hang())
    session = studio.session()
    with anyio.fail_after(10):
        async with session.stream("Go.") as events:
            async for _ in events:
                break
    assert (studio.model.open_streams, studio.model.closed) == (0, 1)


async def test_a_stream_that_was_left_says_so_and_holds_nobody():
    session = Studio(hang()).session()
    async with session.stream("Go.") as events:
        pass
    with anyio.fail_after(10):
        with pytest.raises(AgentTurnError, match="was left") as caught:
            async for _ in events:
                pass
    assert caught.value.code == "cancelled"
    with pytest.raises(AgentTurnError, match="was left"):
        events.reply  # noqa: B018


async def test_an_error_in_a_stream_comes_at_the_end_of_its_events():
    session = Studio(fail("auth")).session()

    async def read():
        async with session.stream("Go.") as events:
            return [event async for event in events]

    with pytest.raises(AgentTurnError) as caught:
        await read()
    assert caught.value.code == "provider_auth"


async def test_an_error_of_the_readers_own_is_not_wrapped():
    session = Studio("hi").session()
    with pytest.raises(ZeroDivisionError):
        async with session.stream("Go."):
            raise ZeroDivisionError


async def test_one_answer_at_a_time():
    studio = Studio(hang())
    session = studio.session()
    token = CancelToken()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def first():
                with pytest.raises(AgentTurnError) as caught:
                    await session.send("Go.", cancellation=token)
                assert caught.value.code == "cancelled"

            tasks.start_soon(first)
            while not studio.model.open_streams:
                await anyio.lowlevel.checkpoint()
            with pytest.raises(InputError, match="answering already"):
                await session.send("And?")
            token.cancel()
    assert session.messages == ()


@pytest.mark.parametrize("said", [(), ("",), ("  ",)])
async def test_saying_nothing_is_refused(said):
    with pytest.raises(InputError, match="message is empty"):
        await Studio("x").session().send(*said)


async def test_what_is_no_content_or_no_message_is_refused_at_once():
    studio = Studio("x")
    session = studio.session()
    for strange in (Message.user("hi"), 5, None, ["hi"]):
        with pytest.raises(InputError, match="can't be sent"):
            await session.send(strange)
    assert session.messages == ()
    with pytest.raises(InputError, match="isn't a Message"):
        AgentSession(studio.agent(), studio.deps, messages=["hi"])


async def test_a_deadline_that_has_passed_cancels():
    studio = Studio(hang())
    session = AgentSession(studio.agent(), studio.deps, call=CallContext(deadline=0.0))
    with pytest.raises(AgentTurnError) as caught:
        await session.send("Go.")
    assert caught.value.code == "cancelled"


async def test_a_structured_answer_stands_in_the_output():
    studio = Studio("no", '{"n": 1}')
    reply = await studio.session(output_schema={"type": "object"}).send("Count.")
    assert (reply.output, reply.text) == ({"n": 1}, '{"n": 1}')


def test_a_session_that_cant_be_is_refused_at_once():
    with pytest.raises(InputError, match="needs an Agent"):
        AgentSession("helper", Studio().deps)
    for changed in ({"provider": "gone"}, {"tools": ["gone"]}, {"output_schema": {"type": 1}}):
        with pytest.raises(AgentTurnError):
            Studio().session(**changed)


async def test_a_notebook_shows_the_conversation_and_no_markup_of_the_models():
    studio = Studio(call("shout", {"text": "<b>"}), say("<script>alert(1)</script>"))
    session = studio.session()
    reply = await session.send("Say <i>.")
    shown = session._repr_html_() + reply._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "shout" in shown
    assert isinstance(session.messages[0], Message)


async def test_a_conversation_that_is_cancelled_between_tools_knows_what_ran_and_what_did_not():
    token = CancelToken()

    @tool
    async def pay() -> str:
        """Pay, and be cancelled by somebody."""
        token.cancel()
        return "paid"

    @tool
    async def ship() -> str:
        """Ship."""
        await anyio.sleep_forever()
        return "never"

    pays = call("add", {"a": 1, "b": 1}) + call("pay") + call("ship")
    studio = Studio(pays, "I see.", tools=[pay, ship])
    session = studio.session()
    with pytest.raises(AgentTurnError):
        await session.send("Order.", cancellation=token)
    results = session.messages[-1].parts
    assert (results[0].text, results[0].is_error) == ("2", False)
    assert [part.is_error for part in results] == [False, *[part.is_error for part in results[1:]]]
    assert all("not" in part.text or part.text == "paid" for part in results[1:])
    assert results[2].is_error
    await session.send("What happened?")
    assert studio.model.requests[1].messages[2].parts == results


async def test_an_async_listener_is_refused_because_nobody_would_await_it():
    async def listen(event):
        """Never awaited."""

    session = Studio("hi").session()
    with pytest.raises(InputError, match="async"):
        await session.send("Go.", on_event=listen)
    assert (await session.send("Go.")).text == "hi"
    with pytest.raises(ConfigError, match="async"):
        Studio("hi").context(emit=listen)


async def test_a_reply_that_failed_leaves_the_conversation_as_it_was():
    studio = Studio("hello", fail("unavailable"), fail("unavailable"), "here")
    session = studio.session()
    await session.send("Hi.")
    before = session.messages

    for _ in range(2):
        with pytest.raises(AgentTurnError):
            await session.send("Are you there?")
        assert session.messages == before

    reply = await session.retry()
    assert reply.text == "here"
    assert [one.role for one in studio.model.requests[-1].messages] == ["user", "assistant", "user"]
    with pytest.raises(InputError, match="Nothing waits"):
        await session.retry()


async def test_a_reply_that_was_cancelled_leaves_the_conversation_as_it_was():
    studio = Studio(say("well") + hang(), "here")
    session = studio.session()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.send, "Are you there?")
        while not studio.model.open_streams:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert session.messages == ()

    assert (await session.retry()).text == "here"
    assert len(studio.model.requests[-1].messages) == 1


async def test_what_tools_did_stays_when_the_answer_behind_it_fails():
    studio = Studio(
        call("add", {"a": 1, "b": 2}), fail("unavailable"), fail("unavailable"), "3", "as I said"
    )
    session = studio.session()
    with pytest.raises(AgentTurnError):
        await session.send("1 + 2?")
    done = session.messages
    assert [one.role for one in done] == ["user", "assistant", "tool"]
    with pytest.raises(AgentTurnError):
        await session.retry()
    assert session.messages == done

    assert (await session.retry()).text == "3"
    assert studio.model.requests[-1].messages == done
    assert len(session.messages) == 4


async def test_roles_alternate_when_something_else_is_said_after_a_failure():
    studio = Studio(call("add", {"a": 1, "b": 2}), fail("unavailable"), "Bye.")
    session = studio.session()
    with pytest.raises(AgentTurnError):
        await session.send("1 + 2?")
    await session.send("Never mind.")
    assert [one.role for one in session.messages] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip


async def test_a_conversation_that_ends_with_a_question_is_answered_by_retry():
    studio = Studio("Yes.")
    session = AgentSession(studio.agent(), studio.deps, messages=[Message.user("Well?")])
    assert (await session.retry()).text == "Yes."
    assert len(session.messages) == 2


async def test_a_file_is_sent_in_one_call_and_stays_in_the_conversation(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(9))
    studio = Studio("A lamp.", "A chair.", "ok")
    session = studio.session()
    reply = await session.send("What is this?", Media(tmp_path / "photo.png"))
    assert reply.text == "A lamp."
    text, part = session.messages[0].parts
    assert (text.text, part.media_type, part.name) == ("What is this?", "image/png", "photo.png")
    with pytest.raises(InputError, match="can't be read"):
        await session.send("And this?", Media(tmp_path / "absent.png"))
    assert len(session.messages) == 2
    store = MemoryMediaStore()
    kept = Studio("A lamp.", media=store).session()
    await kept.send(Media(tmp_path / "photo.png"))
    assert len(store.read(kept.messages[0].parts[0])) == 17
    async with session.stream("This?", Media(b"%PDF-1.7")) as events:
        assert [event.type async for event in events][-1] == "agent:end"
    assert events.reply.text == "A chair."


async def test_equal_calls_of_two_replies_have_ids_of_their_own():
    keys: list[str] = []

    @tool
    def pay(to: str, ctx: ToolContext) -> str:
        keys.append(ctx.call.call_id)
        return "paid"

    asked = call("pay", {"to": "Bob"})
    studio = Studio(asked, "Done.", asked, "Done again.", asked, fail("unavailable"), asked, "Yes.")
    session = studio.session(tools=[pay])
    await session.send("Pay Bob.")
    await session.send("Pay him again.")
    with pytest.raises(AgentTurnError):
        await session.send("And once more.")
    await session.retry()
    assert len(set(keys)) == len(keys) == 4


async def test_a_repeated_conversation_calls_its_tools_by_the_same_ids():
    keys: list[str] = []

    @tool
    def pay(to: str, ctx: ToolContext) -> str:
        keys.append(ctx.call.call_id)
        return "paid"

    for _ in range(2):
        studio = Studio(call("pay", {"to": "Bob"}), "Done.", call("pay", {"to": "Bob"}), "Done.")
        session = AgentSession(
            studio.agent(tools=[pay]), studio.deps, call=CallContext(call_id="order-17")
        )
        await session.send("Pay Bob.")
        await session.send("Pay him again.")
    assert keys[:2] == keys[2:]
    assert keys[0] != keys[1]
