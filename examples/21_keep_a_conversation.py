"""A conversation in a database: each message is answered by a process of its own.

A scripted model answers; with ANTHROPIC_API_KEY and ryecore[anthropic,prices], the real one does.
"""

import os
import sqlite3
import tempfile
from contextlib import chdir
from multiprocessing import get_context

import anyio

from ryecore import Agent, AgentRunnerDeps, AgentSession, ToolRegistry, tool
from ryecore.llm import LlmRequest, Price, Usage
from ryecore.testing import FunctionProvider, Spoken, call

if KEY := os.environ.get("ANTHROPIC_API_KEY", ""):
    from ryecore.providers.anthropic import AnthropicProvider


@tool
async def tide(port: str) -> dict[str, float]:
    """The height of the tide in metres, now and in an hour."""
    return {"now": 3.2, "in_an_hour": 2.4}


def answer(request: LlmRequest) -> Spoken:
    if len(request.messages) == 1:
        return call("tide", {"port": "Dover"})
    return "It is falling." if len(request.messages) == 3 else "By 0.8 metres."


async def say(message: str) -> None:
    model = AnthropicProvider() if KEY else FunctionProvider(answer, usage=Usage(200, 10))
    deps = AgentRunnerDeps(
        resolve_provider=lambda _: model,
        key_for=lambda _: KEY,
        registry=ToolRegistry([tide]),
        price_of=lambda *_: None if KEY else Price(input="3", output="15"),
    )
    pilot = Agent(name="pilot", provider="p", model="claude-sonnet-4-5", tools=["tide"])
    chats = sqlite3.connect("chats.db", isolation_level=None)
    chats.execute("CREATE TABLE IF NOT EXISTS chats (id PRIMARY KEY, session)")
    saved = chats.execute("SELECT session FROM chats WHERE id = 'ada'").fetchone()
    session = AgentSession.from_json(pilot, deps, *saved) if saved else AgentSession(pilot, deps)
    print(
        f"{os.getpid()}: {message} {await session.send(message)} (${session.cost_usd:.6f} so far)"
    )
    chats.execute("REPLACE INTO chats VALUES ('ada', ?)", (session.to_json(),))


Process = get_context("fork").Process
with tempfile.TemporaryDirectory() as folder, chdir(folder):
    for message in ("How is the tide at Dover?", "By how much?"):
        process = Process(target=anyio.run, args=(say, message))
        process.start()
        process.join()
