"""Rate limits that the runs and sessions of one Rye share, by code or by configuration."""

from pathlib import Path
from typing import Any

import pytest

from ryecore import Agent, AgentSession
from ryecore.errors import ConfigError
from ryecore.llm import RateLimit
from ryecore.testing import fail, say
from tests.scripted_host import ScriptedHost
from tests.unit.graph.asking import Asking, asks, gives
from tests.unit.llm.providers import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

ONE = RateLimit(requests_per_minute=1)


def clocked(**deps: Any) -> tuple[Clock, dict[str, Any]]:
    clock = Clock()
    return clock, {"sleep": clock.sleep, "now": clock.now} | deps


async def test_a_thread_a_graph_and_a_session_share_the_hosts_limit(tmp_path: Path) -> None:
    clock, deps = clocked(rate_limits={"scripted": ONE})
    host = Asking(tmp_path, say("1"), say("2"), say("3"), **deps)
    graph = host.graph({"first": asks("Hi."), "done": gives()})
    ref = host.write("acme/one", permissions="")
    shared = host.deps
    async with host.open(agent=shared) as rye:
        assert not (await rye.execute(ref, thread="fork")).error
        assert (await rye.graphs.run(graph)).success
        await AgentSession(Agent(name="a", provider="scripted", model="m-1"), shared).send("Hi.")

    assert clock.at == 1120
    assert len(host.model.requests) == 3


async def test_a_signed_file_sets_limits_for_all_runs_of_a_rye(tmp_path: Path) -> None:
    clock, deps = clocked()
    host = Asking(tmp_path, say("1"), say("2"), say("3"), **deps)
    graph = host.graph({"first": asks("Hi."), "done": gives()})
    ref = host.write("acme/one", permissions="")
    host.workspace.write(
        "config/agent/resilience.yaml", "rate_limits: {scripted/m-1: {requests_per_minute: 1}}\n"
    )
    async with host.open() as rye:
        assert not (await rye.execute(ref, thread="fork")).error
        assert (await rye.graphs.run(graph)).success
        assert not (await rye.execute(ref, thread="fork")).error

    assert clock.at == 1120


async def test_the_hosts_own_limits_replace_those_of_files(tmp_path: Path) -> None:
    clock, deps = clocked(rate_limits={"other": ONE})
    host = ScriptedHost(tmp_path, say("1"), say("2"), **deps)
    ref = host.write("acme/one", permissions="")
    host.workspace.write(
        "config/agent/resilience.yaml", "rate_limits: {scripted: {requests_per_minute: 1}}\n"
    )
    async with host.open() as rye:
        for _ in range(2):
            assert not (await rye.execute(ref, thread="fork")).error

    assert clock.at == 1000


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("{scripted: {requests_per_minute: 0}}", "from 1 to"),
        ("{scripted: {request_per_minute: 5}}", "Did you mean 'requests_per_minute'"),
        ("{scripted: {}}", "limits nothing"),
        ("{scripted/*: {requests_at_once: 5}}", "neither a provider nor a model"),
        ("{scripted: 5}", "scripted"),
        ("[scripted]", "rate_limits"),
    ],
)
async def test_a_file_with_a_wrong_limit_is_refused_with_its_place(
    tmp_path: Path, written: str, what: str
) -> None:
    host = ScriptedHost(tmp_path, say("1"))
    ref = host.write("acme/one", permissions="")
    host.workspace.write("config/agent/resilience.yaml", f"rate_limits: {written}\n")

    with pytest.raises(ConfigError, match=r"resilience\.yaml, line 2.*" + what):
        await host.run(ref)


async def test_a_thread_fails_at_once_where_its_time_ends_before_its_turn(tmp_path: Path) -> None:
    clock, deps = clocked(rate_limits={"scripted": ONE})
    host = ScriptedHost(tmp_path, say("1"), say("2"), **deps)
    ref = host.write("acme/one", permissions="", limits='duration_seconds="30"')
    async with host.open() as rye:
        await rye.execute(ref, thread="fork")
        done = await rye.execute(ref, thread="fork")

    assert (done.ended, done.code, clock.slept) == ("error", "provider_rate_limit", [])


async def test_a_thread_does_not_wait_for_a_retry_beyond_its_time(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path, fail("rate_limit", retry_after_s=100.0), say("1"))

    done = await host.run(host.write("acme/one", permissions="", limits='duration_seconds="30"'))

    assert (done.ended, done.code, host.slept_s) == ("error", "provider_rate_limit", [])


async def test_a_thread_whose_first_message_never_fits_is_refused_before_it_is_sent(
    tmp_path: Path,
) -> None:
    host = ScriptedHost(
        tmp_path, say("1"), rate_limits={"scripted": RateLimit(tokens_per_minute=2_000)}
    )

    done = await host.run(host.write("acme/one", "Read: " + "word " * 2_000, permissions=""))

    assert "rate limit of 'scripted' allows 2000 in a minute" in str(done.error)
    assert host.model.requests == []
