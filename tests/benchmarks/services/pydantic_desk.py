"""The help desk with pydantic-ai: `Conversation`, deferred tools, and its stream of events."""

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    AgentRunResultEvent,
    DeferredToolRequests,
    PartDeltaEvent,
    PartStartEvent,
    RunContext,
    TextPart,
    TextPartDelta,
    ToolDenied,
)
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter

from tests.benchmarks.services.pydantic_model import model_with


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

desk = Agent(deps_type=Tenant, output_type=[str, DeferredToolRequests])
clerk = Agent(output_type=Ticket)
app = FastAPI()
database = sqlite3.connect("chats.db", isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE IF NOT EXISTS chats (tenant, id, saved, PRIMARY KEY (tenant, id))")


@desk.tool
async def order_status(ctx: RunContext[Tenant], order: int) -> str:
    """Say where an order is."""
    return ctx.deps.orders[order]


@desk.tool(requires_approval=True)
async def refund(ctx: RunContext[Tenant], order: int, usd: float) -> str:
    """Refund an order."""
    return f"{usd} USD paid back for order {order} of {ctx.deps.name}"


def find_tenant(x_tenant: Annotated[str, Header()]) -> Tenant:
    if x_tenant not in TENANTS:
        raise HTTPException(403)
    return TENANTS[x_tenant]


AsTenant = Annotated[Tenant, Depends(find_tenant)]


def load(chat_id: str, tenant: Tenant) -> Conversation:
    query = "SELECT saved FROM chats WHERE (tenant, id) = (?, ?)"
    for (saved,) in database.execute(query, (tenant.name, chat_id)):
        return ConversationTypeAdapter.validate_json(saved)
    return Conversation(conversation_id=chat_id)


async def told(chat_id: str, tenant: Tenant, text: str | None, **given: Any) -> AsyncIterator[str]:
    model = model_with(tenant.key)
    async with desk.run_stream_events(text, model=model, deps=tenant, **given) as events:
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=piece)):
                    yield f"data: {json.dumps({'text': piece})}\n\n"
                case PartDeltaEvent(delta=TextPartDelta(content_delta=piece)):
                    yield f"data: {json.dumps({'text': piece})}\n\n"
                case AgentRunResultEvent(result=result):
                    conversation = result.conversation
    waiting = conversation.deferred_tool_requests
    for one in waiting.approvals if waiting else ():
        asked = {"id": one.tool_call_id, "tool": one.tool_name, "arguments": one.args_as_dict()}
        yield f"data: {json.dumps({'approve': asked})}\n\n"
    row = (tenant.name, chat_id, ConversationTypeAdapter.dump_json(conversation))
    database.execute("REPLACE INTO chats VALUES (?, ?, ?)", row)
    yield "data: {}\n\n"


@app.post("/chats/{chat_id}")
async def send(chat_id: str, message: Message, tenant: AsTenant) -> StreamingResponse:
    events = told(chat_id, tenant, message.text, conversation=load(chat_id, tenant))
    return StreamingResponse(events, media_type="text/event-stream")


@app.post("/chats/{chat_id}/answer")
async def answer(chat_id: str, given: Answer, tenant: AsTenant) -> StreamingResponse:
    conversation = load(chat_id, tenant)
    if conversation.deferred_tool_requests is None:
        raise HTTPException(409)
    said = True if given.approve else ToolDenied(given.reason)
    results = conversation.deferred_tool_requests.build_results(approvals={given.id: said})
    events = told(chat_id, tenant, None, conversation=conversation, deferred_tool_results=results)
    return StreamingResponse(events, media_type="text/event-stream")


@app.post("/chats/{chat_id}/ticket")
async def ticket(chat_id: str, tenant: AsTenant) -> Ticket:
    messages = load(chat_id, tenant).messages
    model = model_with(tenant.key)
    return (await clerk.run("Write a ticket.", model=model, message_history=messages)).output
