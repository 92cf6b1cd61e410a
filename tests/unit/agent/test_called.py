"""Agents as tools of other agents: what holds for the caller holds for them."""

import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import evolve

from ryecore import Agent, AgentRunnerDeps, AgentSession, CallContext, CancelToken, Limits
from ryecore.agent.compaction import Compact
from ryecore.errors import AgentTurnError, ConfigError
from ryecore.llm import Price, Usage
from ryecore.llm.request import LlmRequest
from ryecore.testing import FunctionProvider, ScriptedProvider, Spoken, call, fail, say
from ryecore.tools import ToolApprovalRequest, ToolContext, ToolDef, ToolRegistry, tool
from tests.scripted_host import ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def host(*models: Any, **fields: Any) -> AgentRunnerDeps:
    """A host whose providers `m0`, `m1` and so on answer by scripts or functions."""
    known = {
        f"m{number}": FunctionProvider(one, provider_id=f"m{number}")
        if callable(one)
        else ScriptedProvider(one, provider_id=f"m{number}")
        for number, one in enumerate(models)
    }
    return AgentRunnerDeps(
        **{
            "resolve_provider": known.get,
            "key_for": lambda _: "k",
            "price_of": lambda *_: Price("10000", "10000"),  # a cent for each token
        }
        | fields
    )


def agent(provider: str = "m0", **more: Any) -> Agent[Any]:
    return Agent(**{"name": provider, "provider": provider, "model": "m"} | more)


def asks(tool_name: str = "m1", task: str = "Find it.") -> Any:
    return call(tool_name, {"task": task}, usage=Usage(10, 10))


def result(session: AgentSession[Any]) -> tuple[str, bool]:
    """The last result of a tool, and whether it failed."""
    [part] = [one for one in session.messages if one.role == "tool"][-1].parts
    return part.text, part.is_error  # type: ignore[union-attr]


async def test_the_model_of_one_agent_asks_another_which_sees_its_task_alone() -> None:
    asked: list[LlmRequest] = []

    def helper(request: LlmRequest) -> Spoken:
        asked.append(request)
        return "It is 42."

    finder = agent("m1", system_prompt="You find things.", description="Finds things.")
    deps = host([asks(), "So it is 42."], helper)
    session = AgentSession(agent(tools=[finder.as_tool()]), deps)
    reply = await session.send("Which number?")

    assert str(reply) == "So it is 42."
    assert result(session) == ("It is 42.", False)
    assert [one.text for one in asked[0].messages] == ["Find it."]
    assert asked[0].system == "You find things."
    assert len(session.messages) == 4


async def test_the_tool_has_the_agents_name_and_description_or_others() -> None:
    finder = agent("m1", description="Finds things.")
    assert (finder.as_tool().name, finder.as_tool().description) == ("m1", "Finds things.")
    named = finder.as_tool(name="find", description="Find.", parallel_safe=True, timeout_s=5)
    assert (named.name, named.description, named.parallel_safe) == ("find", "Find.", True)
    assert named.timeout_s == 5
    assert agent("m1").as_tool().description == "Ask the agent m1."
    with pytest.raises(ValueError, match="isn't a name for a tool"):
        agent("m1", name="the finder").as_tool()
    with pytest.raises(ConfigError, match="needs AgentRunnerDeps"):
        finder.as_tool("m1")  # type: ignore[arg-type]


async def test_what_it_costs_counts_in_its_caller_and_within_its_callers_limits() -> None:
    helper = [say("42", usage=Usage(2, 10))]
    boss = [asks(), say("done", usage=Usage(10, 10))]
    finder = agent("m1", max_output_tokens=20)
    session = AgentSession(agent(tools=[finder.as_tool()]), host(boss, helper))
    reply = await session.send("Go.")
    assert reply.cost_usd == session.cost_usd == Decimal("0.52")

    asked: list[LlmRequest] = []

    def dear(request: LlmRequest) -> Spoken:
        asked.append(request)
        return "42"

    poor = AgentSession(
        agent(tools=[finder.as_tool()], max_output_tokens=10),
        host([asks(), "done"], dear),
        limits=Limits(spend_usd="0.35"),
    )
    with pytest.raises(AgentTurnError) as failed:
        await poor.send("Go.")
    assert failed.value.code == "budget_exceeded"
    assert asked == []


async def test_each_call_has_limits_of_its_own_too() -> None:
    tight = agent("m1").as_tool(limits=Limits(tokens=5))
    session = AgentSession(agent(tools=[tight]), host([asks(), "done"], ["42"]))
    await session.send("Go.")
    text, is_error = result(session)
    assert is_error
    assert text.startswith("The agent m1 failed (budget_exceeded): ")


async def test_labels_deadline_and_dependencies_of_tools_are_the_callers() -> None:
    seen: list[object] = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look at what is given."""
        seen.extend([dict(ctx.call.labels), ctx.call.deadline, ctx.deps, ctx.call.depth])
        return "seen"

    ends = time.monotonic() + 60
    finder = agent("m1", tools=[look])
    deps = host([asks(), "done"], [call("look"), "42"])
    session = AgentSession(
        agent(tools=[finder.as_tool()]),
        deps,
        call=CallContext(deadline=ends, depth=2),
        labels={"tenant": "acme"},
        tool_deps="the shop",
    )
    await session.send("Go.")
    assert seen == [{"tenant": "acme"}, ends, "the shop", 3]
    await AgentSession(
        agent(tools=[finder.as_tool()]), host([asks(), "done"], [call("look"), "42"])
    ).send("Go.", deps="another")
    assert seen[6] == "another"


async def test_it_ends_with_its_callers_cancellation() -> None:
    began = anyio.Event()
    ended: list[str] = []

    async def never(_: LlmRequest) -> Spoken:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("closed")
        return ""

    token = CancelToken()
    session = AgentSession(
        agent(tools=[agent("m1").as_tool()]),
        host([asks(), "done"], never),
        call=CallContext(cancellation=token),
    )
    async with anyio.create_task_group() as group:

        async def cancel() -> None:
            await began.wait()
            token.cancel()

        group.start_soon(cancel)
        with pytest.raises(AgentTurnError) as cancelled:
            await session.send("Go.")
    assert cancelled.value.code == "cancelled"
    assert ended == ["closed"]


async def test_its_failure_is_told_to_the_model_that_called_it() -> None:
    session = AgentSession(
        agent(tools=[agent("m1").as_tool()]), host([asks(), "No luck."], [fail("unavailable")])
    )
    assert str(await session.send("Go.")) == "No luck."
    text, is_error = result(session)
    assert is_error
    assert text.startswith("The agent m1 failed (provider_unavailable): ")


async def test_agents_that_call_each_other_end_at_a_depth() -> None:
    depths: list[int] = []

    @tool
    async def note(ctx: ToolContext) -> str:
        """Note the depth."""
        depths.append(ctx.call.depth)
        return "noted"

    def model(request: LlmRequest) -> Spoken:
        if request.messages[-1].role == "tool":
            return request.messages[-1].parts[0].text  # type: ignore[union-attr]
        return asks("again") + call("note")

    looping = agent(tools=["again", note])
    deps = host(model, registry=ToolRegistry([looping.as_tool(name="again")]))
    reply = await AgentSession(looping, deps).send("Go.")
    assert "Agents may call each other 10 deep" in reply.text
    assert sorted(depths) == list(range(11))


async def test_a_typed_output_reaches_the_caller_as_json() -> None:
    @dataclass
    class Quote:
        amount: Decimal

    teller = agent("m1", output_type=Quote)
    session = AgentSession(
        agent(tools=[teller.as_tool()]), host([asks(), "ok"], ['{"amount": "1.50"}'])
    )
    await session.send("Go.")
    assert result(session) == ('{"amount": "1.50"}', False)


# Approvals


@tool(needs_approval=True)
async def order(item: str) -> str:
    """Order something."""
    return f"{item} ordered"


async def test_a_call_within_it_is_denied_where_nobody_can_be_asked_at_once() -> None:
    buyer = agent("m1", tools=[order])
    deps = host([asks(), "done"], [call("order", {"item": "tea"}), "I wasn't allowed."])
    session = AgentSession(agent(tools=[buyer.as_tool()]), deps)
    reply = await session.send("Go.")
    assert reply.stop_reason == "stop"
    assert result(session) == ("I wasn't allowed.", False)
    told = deps.provider_for("m1", CallContext()).requests[1].messages[-1]  # type: ignore[union-attr]
    assert "nobody can be asked while this agent is called" in told.parts[0].text


async def test_the_hosts_approve_is_asked_within_it() -> None:
    asked: list[str] = []

    async def approve(request: ToolApprovalRequest) -> bool:
        asked.append(request.tool_name)
        return True

    buyer = agent("m1", tools=[order])
    inside = [call("order", {"item": "tea"}), "Done."]
    session = AgentSession(
        agent(tools=[buyer.as_tool()]), host([asks(), "done"], inside, approve=approve)
    )
    await session.send("Go.")
    assert asked == ["order"]
    own = host(inside)  # without an approve of its own, its caller's is asked
    buyer = agent("m0", name="m1", tools=[order])
    session = AgentSession(
        agent(tools=[buyer.as_tool(own)]), host([asks(), "done"], approve=approve)
    )
    await session.send("Go.")
    assert asked == ["order", "order"]


async def test_the_whole_call_can_wait_for_an_approval_of_exactly_this_agent() -> None:
    inside = ["42"]
    careful = agent("m1").as_tool(needs_approval=True)
    deps = host([asks(), "done"], inside)
    session = AgentSession(agent(tools=[careful]), deps)
    assert (await session.send("Go.")).stop_reason == "approval"
    [pending] = session.pending
    assert dict(pending.arguments) == {"task": "Find it."}
    session.resolve(pending.id, approve=True)

    other = agent("m1", system_prompt="You are another.").as_tool(needs_approval=True)
    changed = AgentSession.from_json(agent(tools=[other]), deps, session.to_json())
    assert (await changed.resume()).stop_reason == "approval"

    assert str(await session.resume()) == "done"
    assert result(session) == ("42", False)


def seller(price: int = 1, **more: Any) -> ToolDef:
    """A tool that is made anew, whose code differs by its price."""
    if price == 1:

        async def sell() -> str:
            return "sold for 1"
    else:

        async def sell() -> str:
            return "sold for 2"

    return tool(name="sell", description="Sell it.", **more)(sell)


def checked(word: str = "") -> Any:
    if word:
        return lambda output: output + " checked"
    return lambda output: output


def summary(word: str = "") -> Any:
    return (lambda _: "other") if word else (lambda _: "summary")


def careful(
    price: int = 1, sells: Any = None, compact: Any = None, limits: Any = None, **more: Any
) -> tuple[Agent[Any], AgentRunnerDeps]:
    """An agent that asks `m1`, which may sell, and its host; all is made anew."""
    tools = [sells or seller(price), "named", agent("m2", tools=[seller()]).as_tool()]
    more = {"tools": tools, "output_check": checked()} | more
    asked = agent("m1", **more).as_tool(needs_approval=True, limits=limits)
    deps = host([asks(), "done"], ["42"], ["42"], registry=ToolRegistry([NAMED]))
    return agent(tools=[asked]), evolve(
        deps, compact=compact or Compact(by=summary(), window_tokens=99_000)
    )


NAMED = tool(name="named")(order.run.function)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "changed",
    [
        {"price": 2},
        {"sells": seller(needs_approval=True)},
        {"tools": [seller(), "named", agent("m2", tools=[seller(2)]).as_tool()]},
        {"model": "m-2"},
        {"fallback_chain": [{"provider": "m2", "model": "m"}]},
        {"retry": {"max": 2}},
        {"temperature": 0.5},
        {"max_output_tokens": 99},
        {"reasoning": "high"},
        {"output_check": checked("other")},
        {"output_schema": {"type": "object"}},
        {"compact": Compact(by=summary("other"), window_tokens=99_000)},
        {"compact": Compact(by=agent("m2"), window_tokens=99_000)},
        {"compact": Compact(at=0.5, by=summary(), window_tokens=99_000)},
        {"limits": Limits(tokens=9_000)},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_an_approval_holds_only_while_what_the_agent_does_is_the_same(
    changed: dict[str, Any],
) -> None:
    saved = await approved(*careful())
    boss, deps = careful(**changed)
    again = AgentSession.from_json(boss, replaying(deps), saved)
    assert (await again.resume()).stop_reason == "approval"


async def test_an_approval_holds_only_while_the_tools_that_it_names_are_the_same() -> None:
    boss, deps = careful()
    saved = await approved(boss, deps)

    async def named(item: str) -> str:
        """Order something."""
        return f"much {item}"

    other = evolve(replaying(deps), registry=ToolRegistry([tool(name="named")(named)]))
    assert (await AgentSession.from_json(boss, other, saved).resume()).stop_reason == "approval"


async def test_an_approval_of_an_agent_that_is_made_anew_alike_holds() -> None:
    saved = await approved(*careful())
    boss, deps = careful()
    again = AgentSession.from_json(boss, replaying(deps), saved)
    assert str(await again.resume()) == "done"
    assert result(again) == ("42", False)


async def test_agents_that_call_each_other_can_be_approved() -> None:
    def looping(price: int) -> tuple[Agent[Any], AgentRunnerDeps]:
        one = agent("m1", tools=["again", seller(price)])
        again = one.as_tool(name="again", needs_approval=True)
        deps = host([asks("again"), "done"], ["42"], registry=ToolRegistry([again]))
        return agent(tools=["again"]), deps

    saved = await approved(*looping(1))
    boss, deps = looping(2)
    other = AgentSession.from_json(boss, replaying(deps), saved)
    assert (await other.resume()).stop_reason == "approval"
    boss, deps = looping(1)
    same = AgentSession.from_json(boss, replaying(deps), saved)
    assert str(await same.resume()) == "done"


async def approved(boss: Agent[Any], deps: AgentRunnerDeps) -> str:
    """The saved conversation whose only call waits, and was approved."""
    session = AgentSession(boss, deps)
    assert (await session.send("Go.")).stop_reason == "approval"
    session.resolve(session.pending[0].id, approve=True)
    return session.to_json()


def replaying(deps: AgentRunnerDeps) -> AgentRunnerDeps:
    """The host after the first answer of its first model."""
    after = host(["done"], ["42"], ["42"]).resolve_provider
    return evolve(deps, resolve_provider=after)


async def test_a_thread_pays_for_an_agent_that_its_model_calls(tmp_path: Path) -> None:
    finder = agent("scripted", name="finder", max_output_tokens=20)
    made = ScriptedHost(
        tmp_path,
        model=ScriptedProvider(
            [
                call("finder", {"task": "Find it."}, usage=Usage(10, 10)),
                say("yes", usage=Usage(2, 10)),
                say("done", usage=Usage(10, 10)),
            ]
        ),
        tools=[finder.as_tool()],
        price_of=lambda *_: Price("10000", "10000"),
        unpriced_models=(),
    )
    ref = made.write("acme/boss", limits='spend="500"')
    async with made.open() as rye:
        done = await rye.execute(ref, thread="fork")
        assert done.success, done.error
        account = await rye.threads.account(done.thread_id)
        assert account.own.spend_usd == Decimal("0.52")
