"""Calls that wait for a person: suspended, saved, answered, and continued."""

import json
from typing import Any

import pytest

from ryecore.agent.session import AgentSession
from ryecore.errors import AgentTurnError, InputError, InvalidConversation
from ryecore.policy.context import CancelToken
from ryecore.testing import call, fail, say
from ryecore.tools import Denied, ToolApprovalRequest, ToolContext, ToolDef, tool
from tests.unit.agent.studio import Studio

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

ORDERED: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ordered() -> None:
    """Begin with no order."""
    ORDERED.clear()


@tool(needs_approval=True)
async def order(item: str) -> str:
    """Order something."""
    ORDERED.append(item)
    return f"{item} ordered"


def ask_twice() -> Any:
    """A turn with two orders, and a call that needs no approval between them."""
    ink = call("order", {"item": "ink"})
    return call("order", {"item": "tea"}) + call("add", {"a": 1, "b": 2}) + ink


def results(session: AgentSession) -> list[tuple[str, bool]]:
    """The results of the last turn with tools."""
    [message] = [one for one in session.messages if one.role == "tool"][-1:]
    return [(part.text, part.is_error) for part in message.parts]  # type: ignore[union-attr]


async def test_calls_wait_siblings_run_and_the_reply_continues_after_the_answers() -> None:
    studio = Studio(ask_twice(), say("done"), tools=[order])
    session = studio.session()
    reply = await session.send("Go.")

    assert (reply.stop_reason, reply.output) == ("approval", None)
    tea, ink = session.pending
    assert (tea.tool_name, dict(tea.arguments), tea.place) == ("order", {"item": "tea"}, 0)
    assert (dict(ink.arguments), ink.reason) == ({"item": "ink"}, "This tool always asks.")
    assert ORDERED == []
    assert results(session) == [("3", False)]
    assert studio.told[-3:] == ["approval:requested", "approval:requested", "agent:end"]
    with pytest.raises(InputError, match="wait for an approval"):
        await session.send("And now?")
    with pytest.raises(InputError, match="wait for an approval"):
        await session.resume()

    session.resolve(tea.id, approve=True)
    session.resolve(ink.id, approve=False, reason="we have ink")
    assert studio.told[-2:] == ["approval:resolved"] * 2
    assert (await session.resume()).text == "done"
    assert ORDERED == ["tea"]
    denied = "The call of the tool order was not approved: we have ink"
    assert results(session) == [("tea ordered", False), ("3", False), (denied, True)]
    assert session.pending == ()
    with pytest.raises(InputError, match="No call waits"):
        await session.resume()


async def test_a_stream_without_content_goes_on_after_the_answers_and_after_a_failure() -> None:
    studio = Studio(call("order", {"item": "tea"}), fail("auth"), say("done"), tools=[order])
    session = studio.session()
    async with session.stream("Go.") as events:
        assert [event.type async for event in events][-1] == "agent:end"
    assert events.reply.stop_reason == "approval"
    session.resolve(session.pending[0].id, approve=True)
    with pytest.raises(AgentTurnError):
        async with session.stream() as events:
            told = [event.type async for event in events]
    async with session.stream() as events:
        told = [event.type async for event in events]
    assert told == ["agent:token", "cost:updated", "agent:end"]
    assert events.reply.text == "done"
    assert ORDERED == ["tea"]


async def test_a_saved_conversation_is_answered_in_another_process() -> None:
    before = Studio(ask_twice(), tools=[order])
    session = before.session()
    await session.send("Go.")
    session.resolve(session.pending[0].id, approve=True)
    text = session.to_json()

    after = Studio(say("done"), tools=[order])
    again = AgentSession.from_json(after.agent(), after.deps, text)
    assert again.to_json() == text
    [ink] = again.pending
    again.resolve(ink.id, approve=True)
    await again.resume()
    assert ORDERED == ["tea", "ink"]
    assert [name for name, _ in results(again)] == ["tea ordered", "3", "ink ordered"]
    assert json.loads(again.to_json())["pending"] == []


async def test_another_tool_or_other_arguments_than_approved_are_asked_again() -> None:
    session = Studio(call("order", {"item": "tea"}), tools=[order]).session()
    await session.send("Go.")
    session.resolve(session.pending[0].id, approve=True)
    text = session.to_json()

    async def changed(item: str) -> str:
        """Order something."""
        ORDERED.append(f"much {item}")
        return "ordered"

    other = tool(name="order", needs_approval=True)(changed)
    for studio, saved in (
        (Studio(say("done"), tools=[other]), text),
        (Studio(say("done"), tools=[order]), text.replace(r"\"tea\"", r"\"gin\"")),
    ):
        again = AgentSession.from_json(studio.agent(), studio.deps, saved)
        assert not again.pending
        assert (await again.resume()).stop_reason == "approval"
        assert len(again.pending) == 1
        assert ORDERED == []


@pytest.mark.parametrize("other", ["true", "1.0", "[1]"])
async def test_arguments_that_are_only_equal_in_python_are_asked_again(other: str) -> None:
    async def run(arguments: Any, ctx: ToolContext) -> str:
        ORDERED.append(repr(arguments["n"]))
        return "ordered"

    free = ToolDef(
        name="free", description="", parameters={"type": "object"}, run=run, needs_approval=True
    )
    session = Studio(call("free", {"n": 1}), tools=[free]).session()
    await session.send("Go.")
    session.resolve(session.pending[0].id, approve=True)
    saved = session.to_json().replace(r"\"n\":1", rf"\"n\":{other}")
    saved = saved.replace(r"\"n\": 1", rf"\"n\": {other}")
    assert saved != session.to_json()
    after = Studio(say("done"), tools=[free])
    again = AgentSession.from_json(after.agent(), after.deps, saved)
    assert (await again.resume()).stop_reason == "approval"
    assert ORDERED == []


async def test_the_code_of_a_tool_without_a_schema_of_its_types_is_approved_too() -> None:
    async def run(arguments: Any, ctx: ToolContext) -> str:
        return "ordered"

    async def other(arguments: Any, ctx: ToolContext) -> str:
        return "much ordered"

    def raw(function: Any) -> ToolDef:
        return ToolDef(
            name="raw",
            description="",
            parameters={"type": "object"},
            run=function,
            needs_approval=True,
        )

    session = Studio(call("raw", {}), tools=[raw(run)]).session()
    await session.send("Go.")
    session.resolve(session.pending[0].id, approve=True)
    for function, reason in ((other, "approval"), (run, "stop")):
        after = Studio(say("done"), tools=[raw(function)])
        again = AgentSession.from_json(after.agent(), after.deps, session.to_json())
        assert (await again.resume()).stop_reason == reason


async def test_a_cancelled_resume_leaves_the_answers_in_place() -> None:
    studio = Studio(call("order", {"item": "tea"}), say("done"), tools=[order])
    session = studio.session()
    await session.send("Go.")
    session.resolve(session.pending[0].id, approve=True)
    cancelled = CancelToken()
    cancelled.cancel()
    with pytest.raises(AgentTurnError):
        await session.resume(cancellation=cancelled)
    await session.resume()
    assert ORDERED == ["tea"]


async def test_an_answer_that_fails_after_the_call_is_retried_without_calling_again() -> None:
    studio = Studio(
        call("order", {"item": "tea"}), fail("invalid_request"), say("done"), tools=[order]
    )
    session = studio.session()
    await session.send("Go.")
    session.resolve(session.pending[0].id, approve=True)
    with pytest.raises(AgentTurnError):
        await session.resume()
    assert (await session.retry()).text == "done"
    assert ORDERED == ["tea"]


async def test_answers_have_an_id_that_waits_and_are_given_once() -> None:
    session = Studio(call("order", {"item": "tea"}), tools=[order]).session()
    await session.send("Go.")
    [tea] = session.pending
    with pytest.raises(InputError, match="No call waits"):
        session.resolve("other", approve=True)
    with pytest.raises(InputError, match="True or False"):
        session.resolve(tea.id, approve="no")  # type: ignore[arg-type]
    session.resolve(tea.id, approve=False)
    with pytest.raises(InputError, match="answered once"):
        session.resolve(tea.id, approve=True)


async def test_a_saved_approval_belongs_to_a_call_without_a_result() -> None:
    session = Studio(call("order", {"item": "tea"}), tools=[order]).session()
    await session.send("Go.")
    studio, document = Studio(tools=[order]), json.loads(session.to_json())
    pending = document["pending"][0]
    for damaged in (
        [],
        [pending, pending],
        [pending | {"place": 1}],
        [pending | {"call_id": "x"}],
        [pending | {"tool_name": "add"}],
    ):
        with pytest.raises(InvalidConversation):
            AgentSession.from_json(studio.agent(), studio.deps, document | {"pending": damaged})


async def test_a_host_that_answers_itself_may_say_why_not() -> None:
    async def approve(request: ToolApprovalRequest) -> bool | Denied:
        assert len(request.tool_digest) == 64
        return Denied("not today")

    studio = Studio(call("order", {"item": "tea"}), say("ok"), tools=[order], approve=approve)
    session = studio.session()
    assert (await session.send("Go.")).text == "ok"
    assert results(session)[0][0].endswith("was not approved: not today")


@pytest.mark.parametrize("asked", [ask_twice, lambda: call("order", {"item": "tea"})])
async def test_whatever_event_a_conversation_is_saved_at_it_can_be_continued(asked: Any) -> None:
    snapshots: list[str] = []
    studio = Studio(asked(), say("done"), tools=[order])
    session = studio.session()
    await session.send("Go.", on_event=lambda _: snapshots.append(session.to_json()))
    assert json.loads(snapshots[-1])["pending"] == json.loads(session.to_json())["pending"]
    for one in session.pending:
        session.resolve(one.id, approve=True)
    await session.resume(on_event=lambda _: snapshots.append(session.to_json()))

    for snapshot in snapshots:
        after = Studio(asked(), say("done"), tools=[order])
        again = AgentSession.from_json(after.agent(), after.deps, snapshot)
        assert again.to_json() == snapshot
    assert again.messages == session.messages
