"""Local model servers: they may count no tokens, and may insist on alternating roles."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ryecore import Agent, AgentRunnerDeps
from ryecore.agent.session import AgentSession
from ryecore.errors import AgentTurnError
from ryecore.llm import Message, Price, TextPart, ToolCallPart
from ryecore.testing.conformance import HttpResponse, Script, SeenRequest, WireServer
from ryecore.tools import ToolRegistry
from tests.adapters import make_openai
from tests.conformance.openai_wire import ChatWire
from tests.scripted_host import KEY, ScriptedHost, add

if TYPE_CHECKING:
    from ryecore.providers.openai import OpenAIProvider

pytestmark = pytest.mark.anyio
NEXT = {
    "": {"user"},
    "user": {"assistant"},
    "assistant": {"user", "tool"},
    "tool": {"assistant", "tool"},
}
BROKEN = ChatWire().error("server_error", "Out of memory.")


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer(ChatWire()) as one:
        yield one


@pytest.fixture
async def provider(server: WireServer, anyio_backend: str) -> "AsyncIterator[OpenAIProvider]":
    async with make_openai(base_url=f"{server.base_url}/v1", api="chat") as one:
        yield one


def dollar_a_token(provider: str, model: str) -> Price:
    return Price("1", "2")


def session(provider: "OpenAIProvider", *tools: str, system: str = "") -> AgentSession:
    agent = Agent(
        name="helper",
        provider="local",
        model="m-1",
        system_prompt=system,
        tools=tools,
    )
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: provider,
        key_for=lambda _: KEY,
        registry=ToolRegistry([add]),
        price_of=dollar_a_token,
    )
    return AgentSession(agent, deps)


class StrictServer:
    """What a chat template answers that raises unless the roles alternate.

    Attributes:
        server: Where it is served.
        roles: Those of each request that it accepted.
    """

    def __init__(self, server: WireServer) -> None:
        self.server = server
        self.roles: list[str] = []

    def then(self, *answers: Script | HttpResponse) -> None:
        """What the next requests get, if their roles alternate."""
        self.server.answer(*(self._judged(one) for one in answers))

    def _judged(self, answer: Script | HttpResponse):
        def judge(seen: SeenRequest) -> Script | HttpResponse:
            roles = [one["role"] for one in json.loads(self.server.raw[-1].body)["messages"]]
            roles = roles[1:] if roles[0] == "system" else roles
            pairs = zip(["", *roles], roles, strict=False)
            if roles[-1] == "assistant" or any(role not in NEXT[last] for last, role in pairs):
                text = "Conversation roles must alternate user/assistant/user/assistant/..."
                return ChatWire().error("bad_request", text)
            self.roles.append(" ".join(one[0] for one in roles))
            return answer

        return judge


def said(text: str) -> Script:
    return Script((TextPart(text),))


CALL = Script((ToolCallPart("c1", "add", '{"a": 1, "b": 2}'),), "tool_use")


async def test_an_answer_that_nobody_counted_is_one_marked_estimate_everywhere(
    server: WireServer, provider: "OpenAIProvider", tmp_path: Path
) -> None:
    server.answer(Script((TextPart("It is about seven tokens."),), usage=None, deltas=3))
    host = ScriptedHost(tmp_path, model=provider, price_of=dollar_a_token)
    ref = host.write("acme/ask", permissions="")
    async with host.open() as rye:
        thread = await rye.execute(ref, thread="fork")
        kept = await (await rye.threads.thread(thread.thread_id)).result()
        (row,) = await rye.threads.list(all=True)
        replayed = await rye.threads.replay(thread.thread_id)
    asked = server.seen[0]
    one = session(provider, system=asked.system)
    reply = await one.send(asked.messages[0].text)

    again = server.seen[1]
    assert (again.system, again.messages, again.tools) == (asked.system, asked.messages, ())
    used, cost = reply.spent.tokens_used, thread.cost
    assert (cost.input_tokens, cost.output_tokens) == (used.input, used.output)
    assert cost.input_tokens > cost.output_tokens == 7  # 25 bytes, at 4 a token
    assert cost.spend_microcents == reply.spent.cost_microcents > 0
    assert (used.estimated, cost.estimated) == (True, True)
    assert thread.to_dict()["cost"]["estimated"] is True
    assert "about" in str(thread.render())
    assert kept.cost == row.cost == cost
    assert row.to_dict()["estimated"] is True
    assert replayed.differences == ()


async def test_a_counted_answer_has_no_mark(
    server: WireServer, provider: "OpenAIProvider", tmp_path: Path
) -> None:
    server.answer(said("Fine."))
    host = ScriptedHost(tmp_path, model=provider, price_of=dollar_a_token)
    thread = await host.run(host.write("acme/ask", permissions=""))
    assert not thread.cost.estimated
    assert "estimated" not in thread.to_dict()["cost"]
    assert "about" not in str(thread.render())


@pytest.mark.parametrize("tools", [(), (CALL,)], ids=["plain", "after a tool"])
async def test_a_session_recovers_at_a_server_that_wants_alternating_roles(
    server: WireServer, provider: "OpenAIProvider", tools: tuple[Script, ...]
) -> None:
    strict = StrictServer(server)
    one = session(provider, "add")

    async def fails(*answers: Script | HttpResponse, text: str = "") -> None:
        strict.then(*answers, BROKEN)
        with pytest.raises(AgentTurnError) as caught:
            await (one.send(text) if text else one.retry())
        assert caught.value.code != "validation"

    await fails(*tools, text="1 + 2?")
    strict.then(said("3"))
    assert (await one.send("1 + 2?")).text == "3"

    await fails(*tools, text="And now?")
    await fails()
    strict.then(said("Still 3."))
    assert (await one.retry()).text == "Still 3."

    await fails(*tools, text="Again?")
    strict.then(said("Bye."))
    assert (await one.send("Never mind.")).text == "Bye."

    questions = [m.text for m in one.messages if m == Message.user(m.text)]
    assert questions.count("And now?") == 1
    assert questions[-1] == "Never mind."
    assert strict.roles[-1].endswith("a u")
