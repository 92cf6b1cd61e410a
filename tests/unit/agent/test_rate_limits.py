"""Rate limits that sessions, nodes and threads of one host share."""

import anyio
import pytest
from attrs import evolve

from ryecore.agent.events import CostUpdated
from ryecore.errors import AgentTurnError
from ryecore.llm import MemoryMediaStore, Price, RateLimit, Usage
from ryecore.testing import call, say
from tests.unit.agent.studio import Studio
from tests.unit.agent.test_media import Painter
from tests.unit.agent.test_telemetry import Told
from tests.unit.llm.providers import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def limited(*script, limit, **deps):
    clock = Clock()
    return clock, Studio(
        *script,
        **{"rate_limits": {"scripted": limit}, "sleep": clock.sleep, "now": clock.now} | deps,
    )


async def test_sessions_of_copied_dependencies_share_a_limit_and_hear_of_the_wait():
    clock, studio = limited(say("1"), say("2"), say("3"), limit=RateLimit(requests_per_minute=2))
    events = []
    for fields in ({}, {"tool_deps": "other"}, {"host_capabilities": ("net",)}):
        session = evolve_session(studio, fields)
        await session.send("Hi", on_event=events.append)

    costs = [event for event in events if isinstance(event, CostUpdated)]
    assert [cost.waited_ms for cost in costs] == [0, 0, 60_000]
    assert ["waitedMs" in cost.to_dict() for cost in costs] == [False, False, True]
    assert clock.at == 1060


def evolve_session(studio, fields):
    copy = evolve(studio.deps, **fields)
    return type(studio.session())(studio.agent(), copy)


async def test_each_turn_of_a_conversation_counts():
    clock, studio = limited(
        call("add", {"a": 1, "b": 2}), say("3"), limit=RateLimit(requests_per_minute=1)
    )

    reply = await studio.session().send("1 + 2?")

    assert (reply.text, clock.at) == ("3", 1060)


async def test_a_node_and_a_session_share_a_limit():
    clock, studio = limited(say("1"), say("2"), limit=RateLimit(requests_per_minute=1))

    await studio.session().send("Hi")
    made = await studio.run("Hi")

    assert (made.output, clock.at) == ("2", 1060)


async def test_a_reply_that_would_wait_beyond_its_time_fails_as_rate_limited():
    _, studio = limited(say("1"), say("2"), limit=RateLimit(requests_per_minute=1))
    await studio.session().send("Hi")

    with pytest.raises(AgentTurnError, match="beyond the deadline") as failed:
        with anyio.fail_after(5):
            await studio.session().send("Hi")

    assert (failed.value.code, failed.value.retryable) == ("provider_rate_limit", True)
    assert "raise the RateLimit" in str(failed.value)


async def test_the_usage_that_a_provider_reports_counts():
    limit = RateLimit(tokens_per_minute=10_000)
    clock, studio = limited(say("1", usage=Usage(7_000, 1_000)), say("2"), limit=limit)

    await studio.session().send("Hi")
    await studio.session().send("Hi")

    assert clock.at == 1060


async def test_pictures_count_as_requests():
    painter, clock = Painter(), Clock()
    studio = Studio(
        providers={"scripted": painter},
        resolve_media_surface=lambda model: "generative",
        media=MemoryMediaStore(),
        price_of=lambda provider, model: Price(input="0", output="0", per_medium="0.04"),
        rate_limits={"painter": RateLimit(requests_per_minute=1, requests_at_once=1)},
        sleep=clock.sleep,
        now=clock.now,
    )

    made = [await studio.run("A tide") for _ in range(2)]

    waits = [event.waited_ms for event in studio.events if isinstance(event, CostUpdated)]
    assert (waits, clock.at, len(painter.asked)) == ([0, 60_000], 1060, 2), made


async def test_a_span_says_how_long_its_try_has_waited():
    told = Told()
    _, studio = limited(
        say("1"), say("2"), limit=RateLimit(requests_per_minute=1), observer=told.observer
    )

    await studio.session().send("Hi")
    await studio.session().send("Hi")

    waits = [
        (span.attributes or {}).get("ryecore.waited_ms")
        for span in told.spans
        if span.name == "chat m-1"
    ]
    assert waits == [None, 60_000]
