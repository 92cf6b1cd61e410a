"""The events of a reply: reasoning as it comes, and an end that closes a browser's stream."""

from decimal import Decimal
from typing import Any

import anyio
import pytest

from ryecore import EventBus
from ryecore.agent.events import AgentEnd, AgentEvent, AgentReasoning
from ryecore.errors import AgentTurnError
from ryecore.llm import Price, Usage
from ryecore.testing import call, fail, hang, say, think
from tests.unit.agent.studio import Studio

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def free(provider: str, model: str) -> Price:
    return Price(input="1", output="1")


async def test_reasoning_comes_in_pieces_and_whole_in_the_reply() -> None:
    studio = Studio(
        think("I need a sum.") + call("add", {"a": 1, "b": 2}), think("", opaque="x") + say("3")
    )
    session = studio.session()
    events: list[AgentEvent] = []
    reply = await session.send("1 + 2?", on_event=events.append)
    pieces = [event for event in events if isinstance(event, AgentReasoning)]
    assert "".join(piece.text for piece in pieces) == "I need a sum."
    assert pieces[0].to_dict() == {
        "type": "agent:reasoning",
        "nodeId": pieces[0].node_id,
        "text": pieces[0].text,
        "model": "m-1",
    }
    assert (reply.text, reply.reasoning) == ("3", "I need a sum.")


async def test_the_reasoning_of_several_turns_is_told_apart_and_not_kept_for_the_next() -> None:
    studio = Studio(
        think("First.") + call("add", {"a": 1, "b": 2}), think("Then.") + say("3"), say("ok")
    )
    session = studio.session()
    assert (await session.send("1 + 2?")).reasoning == "First.\n\nThen."
    assert (await session.send("Thanks.")).reasoning == ""


async def test_a_node_emits_its_reasoning() -> None:
    studio = Studio(think("Hm.") + say("yes"))
    await studio.run()
    assert "".join(e.text for e in studio.events if isinstance(e, AgentReasoning)) == "Hm."


async def test_the_last_event_of_a_reply_is_its_end_with_what_it_spent() -> None:
    studio = Studio(
        call("add", {"a": 1, "b": 2}, usage=Usage(10, 1)),
        say("3", usage=Usage(20, 2)),
        say("cut", usage=Usage(5, 5), stop_reason="length"),
        price_of=free,
    )
    session = studio.session()
    async with session.stream("1 + 2?") as events:
        heard = [event async for event in events]
    end = heard[-1]
    assert isinstance(end, AgentEnd)
    assert sum(isinstance(event, AgentEnd) for event in heard) == 1
    assert end.to_dict() == {
        "type": "agent:end",
        "nodeId": end.node_id,
        "stopReason": "stop",
        "turns": 2,
        "inputTokens": 30,
        "outputTokens": 3,
        "costMicrocents": 3300,
        "priced": True,
        "estimated": False,
    }
    assert end.cost_usd == events.reply.cost_usd == Decimal("0.000033")
    bus: EventBus[AgentEvent] = EventBus("run-1")
    await session.send("And?", on_event=bus.emit)
    bus.close()
    last: Any = [came async for came in bus.subscribe(from_start=True)][-1]
    assert (last.event.stop_reason, last.event.turns) == ("length", 1)
    assert last.event.cost_microcents == 1000  # of this reply alone


async def test_a_reply_that_fails_ends_with_the_reason() -> None:
    studio = Studio(fail("auth"), say("back"))
    session = studio.session()
    events: list[AgentEvent] = []
    with pytest.raises(AgentTurnError):
        await session.send("Go.", on_event=events.append)
    assert isinstance(events[-1], AgentEnd)
    assert (events[-1].stop_reason, events[-1].error_code) == ("error", "provider_auth")
    assert events[-1].to_dict()["errorCode"] == "provider_auth"
    assert events[-1].priced is False
    assert (await session.retry()).text == "back"


async def test_a_reply_that_is_cancelled_ends_so() -> None:
    studio = Studio(hang())
    events: list[AgentEvent] = []
    async with anyio.create_task_group() as group:

        async def ask() -> None:
            await studio.session().send("Go.", on_event=events.append)

        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert isinstance(events[-1], AgentEnd)
    assert events[-1].error_code == "cancelled"


async def test_a_listener_that_fails_at_the_end_fails_the_reply() -> None:
    studio = Studio("one", "two")
    session = studio.session()

    def listen(event: AgentEvent) -> None:
        if isinstance(event, AgentEnd):
            raise RuntimeError("closed")

    with pytest.raises(AgentTurnError) as failed:
        await session.send("Go.", on_event=listen)
    assert failed.value.code == "internal"
    assert session.messages == ()
    assert (await session.retry()).text == "two"
