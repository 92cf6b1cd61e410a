"""What a host gives to its tools, and the context variables of the caller."""

from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import Agent, AgentRunnerDeps, AgentSession
from ryecore.errors import AgentTurnError
from ryecore.testing import FunctionProvider, ScriptedProvider, call, fail, say
from ryecore.tools import ToolContext, ToolRegistry, tool
from tests.scripted_host import ScriptedHost

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")


@dataclass(frozen=True)
class Shop:
    """What the tools of these tests need."""

    name: str


@tool
async def door(ctx: ToolContext[Shop]) -> str:
    """Name the shop."""
    return ctx.deps.name


@tool
def till(ctx: "ToolContext[Shop]") -> str:
    """Name the shop, on a worker thread."""
    return ctx.deps.name


@tool
def given(ctx: ToolContext) -> str:
    """Say what the host gives."""
    return repr(ctx.deps)


def host(*script: Any, **fields: Any) -> AgentRunnerDeps:
    model = ScriptedProvider(script)
    return AgentRunnerDeps(
        **{"resolve_provider": lambda _: model, "key_for": lambda _: "k"} | fields
    )


def agent(*tools: Any) -> Agent[object]:
    return Agent(name="clerk", provider="scripted", model="m", tools=tools)


def results(session: AgentSession[Any]) -> list[str]:
    """What the tools returned so far."""
    answers: list[Any] = [one.parts[0] for one in session.messages if one.role == "tool"]
    return [one.text for one in answers]


def test_a_context_with_dependencies_is_no_argument_for_models() -> None:
    for one in (door, till, given):
        assert one.spec.parameters["properties"] == {}


def test_dependencies_are_not_shown() -> None:
    ctx = ToolContext(deps=Shop("secret"))
    assert "secret" not in repr(ctx)
    assert "secret" not in repr(host(tool_deps=Shop("secret")))
    assert ctx.as_call("c-1").deps is ctx.deps


async def test_a_reply_has_its_own_dependencies_else_the_sessions_else_the_hosts() -> None:
    def turns(count: int) -> list[Any]:
        return [call("door"), call("till"), say("ok")] * count

    deps = host(*turns(2), tool_deps=Shop("host"))
    session = AgentSession(agent(door, till), deps)
    await session.send("Where?")
    async with session.stream("Where?", deps=Shop("reply")) as events:
        async for _ in events:
            pass
    assert results(session) == ["host"] * 2 + ["reply"] * 2

    session = AgentSession(agent(door, till), host(*turns(3)), tool_deps=Shop("session"))
    await session.send("Where?", deps=Shop("reply"))
    await session.send("Where?")
    assert results(session) == ["reply"] * 2 + ["session"] * 2


async def test_a_host_that_gives_nothing_gives_none() -> None:
    session = AgentSession.open("scripted/m", tools=[given], deps=host(call("given"), say("ok")))
    await session.send("What?")
    assert results(session) == ["None"]


async def test_resume_and_retry_take_dependencies() -> None:
    @tool(needs_approval=True)
    async def pay(ctx: ToolContext[Shop]) -> str:
        """Pay."""
        return ctx.deps.name

    deps = host(call("pay"), fail("unavailable"), call("door"), say("ok"))
    session = AgentSession(agent(pay, door), deps, tool_deps=Shop("session"))
    await session.send("Pay.", deps=Shop("first"))
    saved = session.to_json()
    assert "first" not in saved
    session = AgentSession.from_json(agent(pay, door), deps, saved, tool_deps=Shop("session"))
    session.resolve(session.pending[0].id, approve=True)
    with pytest.raises(AgentTurnError):
        await session.resume(deps=Shop("second"))
    await session.retry(deps=Shop("third"))
    assert results(session) == ["second", "third"]


async def test_concurrent_conversations_do_not_mix_their_dependencies() -> None:
    met = anyio.Event()
    first: list[str] = []

    @tool
    async def meet(ctx: ToolContext[Shop]) -> str:
        """Wait for the other conversation, and name the shop."""
        first.append(ctx.deps.name)
        if len(first) == 2:
            met.set()
        await met.wait()
        return ctx.deps.name

    model = FunctionProvider(
        lambda request: call("meet") if len(request.messages) == 1 else say("ok"),
        provider_id="scripted",
    )
    deps = host(resolve_provider=lambda _: model, registry=ToolRegistry([meet]))
    sessions = [AgentSession(agent("meet"), deps) for _ in range(2)]
    async with anyio.create_task_group() as group:
        for number, session in enumerate(sessions):
            group.start_soon(partial(session.send, "Meet.", deps=Shop(f"s{number}")))
    assert [results(one) for one in sessions] == [["s0"], ["s1"]]


async def test_the_callers_context_variables_reach_tools() -> None:
    @tool
    async def on_loop() -> str:
        """Read the variable."""
        return TENANT.get()

    @tool
    def on_thread() -> str:
        """Read the variable on a worker thread."""
        return TENANT.get()

    @tool(inline=True, parallel_safe=True)
    def inline() -> str:
        """Read the variable at once."""
        return TENANT.get()

    @tool(parallel_safe=True)
    async def beside() -> str:
        """Read the variable in a task beside others."""
        return TENANT.get()

    tools = (on_loop, on_thread, inline, beside)
    turns = [call(one.name) for one in tools]
    session = AgentSession(agent(*tools), host(*turns, say("ok"), *turns, say("ok")))
    token = TENANT.set("acme")
    try:
        await session.send("Who?")
        TENANT.set("globex")
        async with session.stream("Who?") as events:
            async for _ in events:
                pass
    finally:
        TENANT.reset(token)
    assert results(session) == ["acme"] * 4 + ["globex"] * 4


async def test_tools_of_threads_get_what_the_host_gives(tmp_path: Path) -> None:
    met: list[tuple[str, str]] = []

    @tool
    async def who(ctx: ToolContext[Shop]) -> str:
        """Note the shop and the tenant."""
        met.append((ctx.deps.name, TENANT.get()))
        return "noted"

    script = (call("who"), say("done"))
    threads = ScriptedHost(tmp_path, *script, tools=[who], tool_deps=Shop("host"))
    ref = threads.write("acme/ask")
    token = TENANT.set("acme")
    try:
        await threads.run(ref)
    finally:
        TENANT.reset(token)
    assert met == [("host", "acme")]
