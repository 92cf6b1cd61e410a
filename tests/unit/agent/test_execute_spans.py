"""Spans of executes: how they nest, what they say, and what they cost."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from ryecore import Agent, AgentSession, CallContext, RyeError, ToolDef
from ryecore.testing import call, say
from tests.audited import SECRET, AuditedHost
from tests.unit.agent.test_telemetry import Told, of

pytestmark = pytest.mark.anyio

SPENT = 1_000 * 1e-6 + 100 * 5e-6
"""What a turn of the host's model costs, in US dollars."""


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def host(tmp_path: Path) -> AuditedHost:
    return AuditedHost(tmp_path)


def tree(told: Told) -> list[tuple[str, str | None]]:
    """Each span's name, and that of its parent, in the order in which they began."""
    names = {span.context.span_id: span.name for span in told.spans if span.context}
    return [(span.name, names[span.parent.span_id] if span.parent else None) for span in told.spans]


def facts(span: ReadableSpan, *names: str) -> tuple[Any, ...]:
    return tuple(of(span).get(f"ryecore.{name}") for name in names)


async def test_an_execute_is_a_span_with_what_ran_and_how_it_ended(
    host: AuditedHost, told: Told
) -> None:
    async with host.open(audit=None, observer=told.observer) as rye:
        await rye.execute(host.tool, {"text": SECRET}, labels={"tenant": "acme"})
        item = rye.verify(host.tool)
    (span,) = told.spans
    assert span.name == f"execute {host.tool}"
    assert of(span) == {
        "ryecore.ref": host.tool,
        "ryecore.hash": item.integrity,
        "ryecore.key": item.fingerprint,
        "ryecore.caller": "host",
        "ryecore.target": "local",
        "ryecore.outcome": "success",
        "ryecore.label.tenant": "acme",
    }
    assert span.status.status_code is StatusCode.UNSET
    assert SECRET not in told.everything()
    assert not host.log.exists()


@pytest.mark.both_loops
async def test_a_threads_execute_is_below_its_tool_call_and_costs_stand_on_each_level(
    host: AuditedHost, told: Told
) -> None:
    async with host.open(observer=told.observer) as rye:
        done = await rye.execute(host.ask, thread="fork")
    assert tree(told) == [
        (f"execute {host.ask}", None),
        ("invoke_agent acme/ask", f"execute {host.ask}"),
        ("chat m-1", "invoke_agent acme/ask"),
        ("execute_tool rye_execute", "invoke_agent acme/ask"),
        (f"execute {host.tool}", "execute_tool rye_execute"),
        ("chat m-1", "invoke_agent acme/ask"),
    ]
    whole, run, first, _, inner, second = told.spans
    assert facts(whole, "thread_id", "outcome") == (done.thread_id, "success")
    assert facts(inner, "caller", "cost_usd") == ("thread", None)
    assert facts(first, "cost_usd") == facts(second, "cost_usd") == (pytest.approx(SPENT),)
    assert facts(run, "cost_usd") == facts(whole, "cost_usd") == (pytest.approx(2 * SPENT),)
    assert float(done.cost.amount.spend_usd) == pytest.approx(2 * SPENT)
    assert SECRET not in told.everything()


@pytest.mark.both_loops
async def test_a_started_thread_goes_on_below_the_span_of_its_start(
    host: AuditedHost, told: Told
) -> None:
    async with host.open(observer=told.observer) as rye:
        with told.tracers.get_tracer("the host").start_as_current_span("request"):
            thread = await rye.start(host.ask)
        await thread.result()
    assert tree(told)[:4] == [
        ("request", None),
        (f"start {host.ask}", "request"),
        (f"execute {host.ask}", f"start {host.ask}"),
        ("invoke_agent acme/ask", f"execute {host.ask}"),
    ]
    _, start, run, *_ = told.spans
    assert facts(start, "outcome") == ("started",)
    assert facts(run, "outcome") == ("success",)


async def test_a_graphs_nodes_are_below_its_run(host: AuditedHost, told: Told) -> None:
    async with host.open(observer=told.observer) as rye:
        await rye.graphs.run(host.graph)
        run = await rye.graphs.start(host.graph)
        await run.result()
    inner = (f"execute {host.tool}", f"execute {host.graph}")
    assert tree(told) == [
        (f"execute {host.graph}", None),
        inner,
        (f"start {host.graph}", None),
        (f"execute {host.graph}", f"start {host.graph}"),
        inner,
    ]


async def test_what_is_refused_or_fails_has_its_code_and_no_text(
    host: AuditedHost, told: Told
) -> None:
    false = host.workspace.shell("acme/false", f"echo {SECRET} >&2; exit 3")
    denied = CallContext(capabilities=frozenset())
    async with host.open(observer=told.observer) as rye:
        await rye.execute(false)
        with pytest.raises(RyeError):
            await rye.execute("acme/echo", {"text": SECRET}, ctx=denied)
        with pytest.raises(RyeError):
            await rye.start("acme/nowhere")
    failed, refused, missing = told.spans
    assert refused.name == f"execute {host.tool}"  # the ref in full
    for span, outcome, code in (
        (failed, "error", "tool_failed"),
        (refused, "refused", "denied"),
        (missing, "refused", "not_found"),
    ):
        assert facts(span, "outcome") == (outcome,)
        assert of(span)["error.type"] == code
        assert span.status.status_code is StatusCode.ERROR
        assert not span.events
    assert SECRET not in told.everything()


async def test_an_item_that_an_agent_calls_is_its_execute(tmp_path: Path, told: Told) -> None:
    host = AuditedHost(
        tmp_path, call("echo", {"text": SECRET}), say("done"), observer=told.observer
    )
    async with host.open(observer=told.observer) as rye:
        echo = await ToolDef.from_item(rye, host.tool, name="echo")
        agent = Agent(name="pilot", provider="scripted", model="m-1", tools=[echo])
        await AgentSession(agent, host.deps).send("Echo.")
    assert tree(told)[2:4] == [
        ("execute_tool echo", "invoke_agent pilot"),
        (f"execute {host.tool}", "execute_tool echo"),
    ]
    assert facts(told.spans[3], "caller") == ("agent:pilot",)
    assert host.ends()[-1]["caller"] == "agent:pilot"


async def test_agents_with_an_observer_of_their_own_keep_it(tmp_path: Path, told: Told) -> None:
    own = Told()
    host = AuditedHost(tmp_path, observer=own.observer)
    async with host.open(observer=told.observer) as rye:
        await rye.execute(host.ask, thread="fork")
    assert {span.name.partition(" ")[0] for span in told.spans} == {"execute"}
    assert {span.name.partition(" ")[0] for span in own.spans} == {
        "invoke_agent", "chat", "execute_tool",
    }  # fmt: skip
