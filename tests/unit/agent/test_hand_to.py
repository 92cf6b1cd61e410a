"""A conversation that one agent hands to another."""

from decimal import Decimal
from typing import Any

import pytest

from ryecore import Agent, AgentRunnerDeps, AgentSession, Limits
from ryecore.errors import AgentTurnError, InputError
from ryecore.llm import Media, Price, ReasoningPart, TextPart, Usage
from ryecore.testing import ScriptedProvider, call, fail, say, think
from ryecore.tools import ToolContext, tool

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def host(**scripts: Any) -> AgentRunnerDeps:
    known = {name: ScriptedProvider(one, provider_id=name) for name, one in scripts.items()}
    return AgentRunnerDeps(
        resolve_provider=known.get,
        key_for=lambda _: "k",
        price_of=lambda *_: Price("10000", "10000"),  # a cent for each token
    )


def agent(provider: str, **more: Any) -> Agent[Any]:
    return Agent(name=provider, provider=provider, model=f"{provider}-1", **more)


def requests(deps: AgentRunnerDeps, provider: str) -> Any:
    return deps.resolve_provider(provider).requests  # type: ignore[call-arg, union-attr]


async def test_another_agent_continues_with_its_own_prompt_tools_and_model() -> None:
    @tool
    async def look_up(ctx: ToolContext) -> str:
        """Look it up."""
        return f"{ctx.deps}, {dict(ctx.call.labels)}"

    @tool
    async def refund() -> str:
        """Refund it."""
        return "refunded"

    deps = host(desk=[call("look_up"), "It is A-17."], billing=[call("refund"), "You get it back."])
    events: list[str] = []
    desk = AgentSession(
        agent("desk", system_prompt="You are the desk.", tools=[look_up]),
        deps,
        session_id="chat-1",
        on_event=lambda event: events.append(f"{event.type} {event.node_id}"),
        labels={"tenant": "acme"},
        tool_deps="the shop",
    )
    await desk.send("Which invoice is mine?")
    billing = desk.hand_to(agent("billing", system_prompt="You bill.", tools=[refund]))
    reply = await billing.send("I want my money back.")

    assert str(reply) == "You get it back."
    [first, _] = requests(deps, "billing")
    assert (first.model, first.system) == ("billing-1", "You bill.")
    assert [one.name for one in first.tools] == ["refund"]
    assert [one.role for one in first.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert "the shop, {'tenant': 'acme'}" in str(first.messages[2])
    assert len(billing.messages) == 8
    assert events[-1] == "agent:end chat-1"
    assert events.count("agent:end chat-1") == 2


async def test_it_goes_on_counting_within_the_same_limits() -> None:
    deps = host(
        desk=[say("Hello.", usage=Usage(5, 5))], billing=[say("Hi.", usage=Usage(5, 5))] * 2
    )
    desk = AgentSession(agent("desk"), deps, limits=Limits(turns=2))
    await desk.send("Hi")
    billing = desk.hand_to(agent("billing"))
    assert billing.cost_usd == Decimal("0.10")
    await billing.send("Hi")
    assert billing.cost_usd == Decimal("0.20")
    with pytest.raises(AgentTurnError, match="The limit of turns is met"):
        await billing.send("Hi")


async def test_the_session_that_handed_it_over_takes_no_more_messages() -> None:
    deps = host(desk=["Hello."], billing=["Hi."])
    desk = AgentSession(agent("desk"), deps)
    await desk.send("Hi")
    billing = desk.hand_to(agent("billing"))
    for use in (desk.send("Hi"), desk.retry()):
        with pytest.raises(InputError, match=r"handed to the agent billing\. Use the session"):
            await use
    with pytest.raises(InputError, match="handed to the agent billing"):
        desk.hand_to(agent("billing"))
    assert len(desk.messages) == 2
    await billing.send("Hi")
    assert len(desk.messages) == 2


async def test_an_agent_that_the_host_cannot_serve_changes_nothing() -> None:
    deps = host(desk=["Hello.", "And again."])
    desk = AgentSession(agent("desk"), deps)
    await desk.send("Hi")
    with pytest.raises(AgentTurnError, match="no provider 'nobody'"):
        desk.hand_to(agent("nobody"))
    with pytest.raises(InputError, match="needs an Agent"):
        desk.hand_to("billing")  # type: ignore[arg-type]
    assert str(await desk.send("Hi")) == "And again."


async def test_calls_that_wait_are_answered_first() -> None:
    @tool(needs_approval=True)
    async def order() -> str:
        """Order."""
        return "ordered"

    desk = AgentSession(agent("desk", tools=[order]), host(desk=[call("order")], billing=["Hi."]))
    await desk.send("Hi")
    with pytest.raises(InputError, match="wait for an approval: order"):
        desk.hand_to(agent("billing"))


async def test_a_message_without_an_answer_is_answered_by_the_other_agent() -> None:
    desk = AgentSession(agent("desk"), host(desk=[fail("auth")], billing=["Here I am."]))
    with pytest.raises(AgentTurnError):
        await desk.send("Is anybody there?")
    billing = desk.hand_to(agent("billing"))
    assert str(await billing.retry()) == "Here I am."


async def test_reasoning_of_another_provider_is_not_sent_and_is_kept() -> None:
    deps = host(desk=[think("Hm.") + say("Hello.")], billing=["Hi."])
    desk = AgentSession(agent("desk"), deps)
    await desk.send("Hi")
    billing = desk.hand_to(agent("billing"))
    await billing.send("Hi")
    assert requests(deps, "billing")[0].messages[1].parts == (TextPart("Hello."),)
    assert ReasoningPart in map(type, billing.messages[1].parts)


async def test_files_that_were_sent_are_there_for_the_other_agent() -> None:
    deps = host(desk=["A picture."], billing=["The same."])
    desk = AgentSession(agent("desk"), deps)
    await desk.send("What is this?", Media(b"\x89PNG\r\n\x1a\n", "image/png"))
    billing = desk.hand_to(agent("billing"))
    assert str(await billing.send("And this?")) == "The same."
    again = billing.hand_to(agent("desk"))
    assert len(again.messages) == 4


async def test_what_was_handed_over_is_saved_as_the_other_agents() -> None:
    deps = host(desk=["Hello."], billing=["Hi.", "Hi again."])
    desk = AgentSession(agent("desk"), deps)
    await desk.send("Hi")
    billing = desk.hand_to(agent("billing"))
    await billing.send("Hi")
    again = AgentSession.from_json(agent("billing"), deps, billing.to_json())
    assert str(await again.send("Hi")) == "Hi again."
    assert len(again.messages) == 6
