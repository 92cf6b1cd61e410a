"""A session keeps within its limits by the rules of threads, with the agents that tools call."""

import json
from decimal import Decimal
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from ryecore import Agent, AgentRunnerDeps, AgentSession, CallContext, Limits
from ryecore.errors import AgentTurnError, InputError
from ryecore.llm import Price, Usage
from ryecore.llm.request import LlmRequest
from ryecore.testing import FunctionProvider, ScriptedProvider, call, fail, say
from ryecore.tools import ToolContext, ToolDef, ToolRegistry, tool
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio

CENT_A_TOKEN = Price("10000", "10000")
"""The price of models here: a cent for each token."""


def host(*models: Any, tools: tuple[ToolDef, ...] = ()) -> AgentRunnerDeps:
    """A host whose providers `m0`, `m1` and so on answer by these models."""
    known = {
        f"m{number}": FunctionProvider(one, provider_id=f"m{number}") if callable(one) else one
        for number, one in enumerate(models)
    }
    return AgentRunnerDeps(
        resolve_provider=known.get,
        key_for=lambda _: "k",
        registry=ToolRegistry(tools),
        price_of=lambda provider, _: None if provider == "free" else CENT_A_TOKEN,
    )


def chatty(*, read: int = 10, written: int = 10) -> Any:
    """A model that says the same each time, for a known number of tokens."""
    return lambda _: say("yes", usage=Usage(read, written))


def agent(provider: str = "m0", **more: Any) -> Agent[object]:
    return Agent(name=provider, provider=provider, model="m", max_output_tokens=20, **more)


@pytest.mark.both_loops
async def test_a_session_stops_before_a_request_that_it_could_not_pay() -> None:
    asked: list[LlmRequest] = []

    def model(request: LlmRequest) -> Any:
        asked.append(request)
        return say("yes", usage=Usage(10, 10))

    session = AgentSession(agent(), host(model), limits=Limits(spend_usd="0.50"))
    for _ in range(2):
        await session.send("Hi")
    with pytest.raises(AgentTurnError) as refused:
        await session.send("Hi")
    assert refused.value.code == "budget_exceeded"
    assert "Insufficient budget" in refused.value.message
    assert "limits=Limits(spend_usd=" in refused.value.message
    assert "--limit" not in str(refused.value)
    assert session.cost_usd == Decimal("0.40")
    assert len(asked) == 2
    assert len(session.messages) == 4


async def test_answers_are_shortened_to_what_is_left() -> None:
    bounds: list[int | None] = []

    def model(request: LlmRequest) -> Any:
        bounds.append(request.max_output_tokens)
        return say("yes", usage=Usage(1, request.max_output_tokens or 0))

    long_winded = Agent(name="m0", provider="m0", model="m")
    session = AgentSession(long_winded, host(model), limits=Limits(tokens=200))
    await session.send("Hi")
    assert bounds[0] is not None
    assert 100 < bounds[0] < 200
    with pytest.raises(AgentTurnError, match="tokens"):
        await session.send("Hi")


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(turns=2), "The limit of turns is met: 2 of 2. Open the session with a higher one"),
        (Limits(tokens=40), "Insufficient budget|The limit of tokens is met"),
        (Limits(spend_usd="0.40"), "Insufficient budget|The limit of spend is met"),
    ],
)
async def test_each_limit_counts_over_the_whole_conversation(limits: Limits, why: str) -> None:
    session = AgentSession(agent(), host(chatty(read=5, written=5)), limits=limits)

    async def talk() -> None:
        for _ in range(5):
            await session.send("Hi")

    with pytest.raises(AgentTurnError, match=why) as met:
        await talk()
    assert met.value.code == "budget_exceeded"
    assert not met.value.retryable


async def test_a_request_that_cost_more_than_was_held_stops_the_session() -> None:
    greedy = chatty(read=10_000, written=10)
    session = AgentSession(agent(), host(greedy), limits=Limits(spend_usd=1000))
    await session.send("Hi")
    assert session.cost_usd == Decimal("100.10")
    with pytest.raises(AgentTurnError, match=r"this session is stopped. See session.spent") as met:
        await session.send("Hi")
    assert met.value.code == "budget_exceeded"


async def test_a_model_without_a_price_is_refused_where_spend_is_limited() -> None:
    deps = host(chatty())
    free = FunctionProvider(chatty(), provider_id="free")
    deps = AgentRunnerDeps(
        resolve_provider={"free": free}.get, key_for=deps.key_for, price_of=deps.price_of
    )
    await AgentSession(agent("free"), deps, limits=Limits(tokens=1000)).send("Hi")
    with pytest.raises(AgentTurnError, match="free/m has no price"):
        await AgentSession(agent("free"), deps, limits=Limits(spend_usd=1)).send("Hi")


@pytest.mark.both_loops
async def test_the_time_of_replies_is_limited_and_not_that_between_them() -> None:
    async def never(_: LlmRequest) -> Any:
        await anyio.sleep_forever()

    session = AgentSession(agent(), host(never), limits=Limits(duration_s="0.02"))
    with pytest.raises(AgentTurnError, match="The limit of duration is met") as met:
        await session.send("Hi")
    assert met.value.code == "budget_exceeded"
    with pytest.raises(AgentTurnError, match=r"Limits\(duration_s="):
        await session.retry()
    assert len(session.messages) == 0


async def test_a_saved_conversation_continues_with_what_it_has_used() -> None:
    deps, limits = host(chatty()), Limits(spend_usd="0.50")
    session = AgentSession(agent(), deps, limits=limits)
    await session.send("Hi")
    again = AgentSession.from_json(agent(), deps, session.to_json(), limits=limits)
    await again.send("Hi")
    with pytest.raises(AgentTurnError, match="Insufficient budget"):
        await again.send("Hi")


async def test_a_try_whose_cost_nobody_reported_counts_on_after_a_restart() -> None:
    limits = Limits(tokens=50)
    deps = host(ScriptedProvider([fail("unavailable")], provider_id="m0"))
    session = AgentSession(agent(), deps, limits=limits)
    with pytest.raises(AgentTurnError):
        await session.send("x" * 60)  # 20 tokens, as they are estimated
    again = AgentSession.from_json(agent(), host(chatty()), session.to_json(), limits=limits)
    with pytest.raises(AgentTurnError, match="needs 36 tokens, and the session has 30"):
        await again.retry()


@pytest.mark.both_loops
async def test_turns_and_the_time_of_replies_count_on_after_a_restart() -> None:
    deps, turns = host(chatty()), Limits(turns=2)
    session = AgentSession(agent(), deps, limits=turns)
    await session.send("Hi")
    saved = json.loads(session.to_json())
    assert (saved["spent"]["turns"], saved["spent"]["duration_ms"] > 0) == (1, True)

    again = AgentSession.from_json(agent(), deps, saved, limits=turns)
    await again.send("Hi")
    with pytest.raises(AgentTurnError, match=r"Limits\(turns="):
        await again.send("Hi")

    saved["spent"]["duration_ms"] = 60_000
    spent = AgentSession.from_json(agent(), deps, saved, limits=Limits(duration_s=60))
    with pytest.raises(AgentTurnError, match=r"Limits\(duration_s="):
        await spent.send("Hi")
    assert json.loads(spent.to_json())["spent"]["duration_ms"] >= 60_000


async def test_what_a_session_cannot_limit_is_refused() -> None:
    deps = host(chatty())
    with pytest.raises(InputError, match="starts no threads"):
        AgentSession(agent(), deps, limits=Limits(spawns=3))
    with pytest.raises(InputError, match="needs Limits"):
        AgentSession(agent(), deps, limits={"spend": 1})  # type: ignore[arg-type]


# An agent that a tool calls


def team(*, inner: Limits | None = None) -> tuple[AgentRunnerDeps, list[Any], list[LlmRequest]]:
    """A host whose agent `m0` calls the agent `m1` by a tool; what the tool met, and requests."""
    met: list[Any] = []
    asked: list[LlmRequest] = []

    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask the other agent."""
        met.append(dict(ctx.call.labels))
        called = AgentSession(agent("m1"), deps, call=ctx.call, limits=inner)
        reply = await called.send("Hello")
        met.append(called.cost_usd)
        return str(reply.text)

    def boss(request: LlmRequest) -> Any:
        if request.messages[-1].role == "tool":
            return say("done", usage=Usage(10, 10))
        return call("ask", {}, usage=Usage(10, 10))

    def helper(request: LlmRequest) -> Any:
        asked.append(request)
        return say("yes", usage=Usage(2, 10))

    deps = host(boss, helper, tools=(ask,))
    return deps, met, asked


async def test_a_called_agent_counts_in_its_callers_spent_without_any_limit() -> None:
    deps, met, _ = team()
    session = AgentSession(agent(tools=("ask",)), deps, labels={"tenant": "acme"})
    reply = await session.send("Hi")
    assert met == [{"tenant": "acme"}, Decimal("0.12")]
    assert reply.spent.cost_usd == session.cost_usd == Decimal("0.52")
    assert session.tokens_used.input == 22


async def test_a_called_agent_is_bound_by_its_callers_limits() -> None:
    deps, _, asked = team()
    session = AgentSession(agent(tools=("ask",)), deps, limits=Limits(spend_usd="0.37"))
    with pytest.raises(AgentTurnError) as failed:
        await session.send("Hi")
    assert failed.value.code == "budget_exceeded"
    assert asked == []  # 0.20 were spent, and the rest wouldn't do for another agent's answer
    assert session.cost_usd <= Decimal("0.37")


@pytest.mark.both_loops
async def test_agents_that_are_called_at_once_wait_for_what_the_others_hold() -> None:
    at_once = most = 0

    async def helper(request: LlmRequest) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await anyio.wait_all_tasks_blocked()  # the other calls hold, or wait
        at_once -= 1
        return say("yes", usage=Usage(2, 1))

    def boss(request: LlmRequest) -> Any:
        if request.messages[-1].role == "tool":
            return say("done", usage=Usage(1, 1))
        return reduce(
            add, [call("m1", {"task": f"Page {number}."}, usage=Usage(1, 1)) for number in range(6)]
        )

    finder = evolve(agent("m1"), max_output_tokens=60).as_tool(parallel_safe=True)
    limits = Limits(spend_usd=3)  # of which each call of six holds over 0.60
    session = AgentSession(agent(tools=[finder]), host(boss, helper), limits=limits)
    reply = await session.send("Hi")
    results = [part for one in session.messages if one.role == "tool" for part in one.parts]
    assert [str(part.text) for part in results] == ["yes"] * 6
    assert 1 <= most < 6
    assert reply.text == "done"
    assert session.cost_usd <= 3


async def test_the_last_of_several_called_agents_is_refused_where_nothing_comes_back() -> None:
    def boss(request: LlmRequest) -> Any:
        return reduce(
            add, [call("m1", {"task": f"Page {number}."}, usage=Usage(1, 1)) for number in range(3)]
        )

    finder = agent("m1").as_tool(parallel_safe=True)
    deps = host(boss, chatty(read=2, written=20))
    session = AgentSession(agent(tools=[finder]), deps, limits=Limits(spend_usd="0.75"))
    with anyio.fail_after(5), pytest.raises(AgentTurnError) as failed:
        await session.send("Hi")
    assert failed.value.code == "budget_exceeded"
    assert session.cost_usd <= Decimal("0.75")


async def test_a_called_agent_has_its_own_limits_too() -> None:
    deps, _, asked = team(inner=Limits(spend_usd="0.10"))
    session = AgentSession(agent(tools=("ask",)), deps, limits=Limits(spend_usd=100))
    await session.send("Hi")
    assert asked == []
    result = session.messages[2].parts[0]
    assert "Insufficient budget" in str(result)
    assert session.cost_usd == Decimal("0.40")


async def test_a_threads_tool_charges_the_agent_that_it_calls_to_the_thread(
    tmp_path: Path,
) -> None:
    @tool
    async def ask(ctx: ToolContext) -> str:
        """Ask another agent."""
        inner = AgentSession(agent("scripted"), made.deps, call=ctx.call)
        return str((await inner.send("Hello")).text)

    made = ScriptedHost(
        tmp_path,
        model=ScriptedProvider(
            [
                call("ask", {}, usage=Usage(10, 10)),
                say("yes", usage=Usage(2, 10)),
                say("done", usage=Usage(10, 10)),
            ]
        ),
        tools=[ask],
        price_of=lambda *_: CENT_A_TOKEN,
        unpriced_models=(),
    )
    ref = made.write("acme/boss", limits='spend="500"')
    async with made.open() as rye:
        done = await rye.execute(ref, thread="fork")
        assert done.success, done.error
        account = await rye.threads.account(done.thread_id)
        shown = await rye.threads.show(done.thread_id)
        assert account.own.spend_usd == Decimal("0.52")
        assert account.held.tokens == 0
        assert shown.record.cost.spend_usd == Decimal("0.52")
        assert shown.record.cost.turns == 2
        assert (await rye.threads.verify(done.thread_id)).ok
        assert (await rye.threads.replay(done.thread_id)).to_dict()["differences"] == []


async def test_a_labelled_session_keeps_the_callers_labels() -> None:
    deps, met, _ = team()
    call_ctx = CallContext(labels={"tenant": "acme"})
    more = {"tenant": "other", "user": "u"}
    await AgentSession(agent(tools=("ask",)), deps, call=call_ctx, labels=more).send("Hi")
    assert met[0] == {"tenant": "acme", "user": "u"}
