"""The help desk with ryecore."""

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from ryecore import Agent, AgentRunnerDeps, AgentSession, AgentToken, tool
from ryecore.errors import InputError
from ryecore.tools import ToolContext
from tests.benchmarks.services.ryecore_model import MODEL


@dataclass(frozen=True)
class Tenant:
    name: str
    key: str
    orders: dict[int, str]


class Message(BaseModel):
    text: str


class Answer(BaseModel):
    id: str
    approve: bool
    reason: str = ""


class Ticket(BaseModel):
    order: int
    mood: Literal["calm", "angry"]


TENANTS = {
    "acme": Tenant("acme", "key-a", {7: "on its way"}),
    "globex": Tenant("globex", "key-g", {7: "delivered"}),
}


@tool
async def order_status(order: int, ctx: ToolContext[Tenant]) -> str:
    """Say where an order is."""
    return ctx.deps.orders[order]


@tool(needs_approval=True)
async def refund(order: int, usd: float, ctx: ToolContext[Tenant]) -> str:
    """Refund an order."""
    return f"{usd} USD paid back for order {order} of {ctx.deps.name}"


deps = AgentRunnerDeps(
    resolve_provider=lambda provider_id: MODEL,
    key_for=lambda provider_id, call: TENANTS[call.labels["tenant"]].key,
)
desk = Agent(name="desk", provider="fake", model="fake", tools=[order_status, refund])
clerk = Agent(name="clerk", provider="fake", model="fake", output_type=Ticket)
app = FastAPI()
database = sqlite3.connect("chats.db", isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE IF NOT EXISTS chats (tenant, id, saved, PRIMARY KEY (tenant, id))")


def find_tenant(x_tenant: Annotated[str, Header()]) -> Tenant:
    if x_tenant not in TENANTS:
        raise HTTPException(403)
    return TENANTS[x_tenant]


AsTenant = Annotated[Tenant, Depends(find_tenant)]


def load(chat_id: str, tenant: Tenant) -> AgentSession:
    query = "SELECT saved FROM chats WHERE (tenant, id) = (?, ?)"
    given = {"labels": {"tenant": tenant.name}, "tool_deps": tenant}
    for (saved,) in database.execute(query, (tenant.name, chat_id)):
        return AgentSession.from_json(desk, deps, saved, **given)
    return AgentSession(desk, deps, session_id=chat_id, **given)


async def told(
    chat_id: str, tenant: Tenant, session: AgentSession, *text: str
) -> AsyncIterator[str]:
    async with session.stream(*text) as events:
        async for event in events:
            if isinstance(event, AgentToken):
                yield f"data: {json.dumps({'text': event.token})}\n\n"
    for one in session.pending:
        asked = {"id": one.id, "tool": one.tool_name, "arguments": one.arguments}
        yield f"data: {json.dumps({'approve': asked})}\n\n"
    row = (tenant.name, chat_id, session.to_json())
    database.execute("REPLACE INTO chats VALUES (?, ?, ?)", row)
    yield "data: {}\n\n"


@app.post("/chats/{chat_id}")
async def send(chat_id: str, message: Message, tenant: AsTenant) -> StreamingResponse:
    events = told(chat_id, tenant, load(chat_id, tenant), message.text)
    return StreamingResponse(events, media_type="text/event-stream")


@app.post("/chats/{chat_id}/answer")
async def answer(chat_id: str, given: Answer, tenant: AsTenant) -> StreamingResponse:
    session = load(chat_id, tenant)
    try:
        session.resolve(given.id, given.approve, given.reason)
    except InputError as error:
        raise HTTPException(409, error.message) from error
    events = told(chat_id, tenant, session)
    return StreamingResponse(events, media_type="text/event-stream")


@app.post("/chats/{chat_id}/ticket")
async def ticket(chat_id: str, tenant: AsTenant) -> Ticket:
    messages = load(chat_id, tenant).messages
    session = AgentSession(clerk, deps, messages=messages, labels={"tenant": tenant.name})
    return (await session.send("Write a ticket.")).output
