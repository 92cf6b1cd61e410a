"""The same requests without a library: what FastAPI, the stream and the database take alone."""

import json
import sqlite3
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from tests.benchmarks.services.answers import WORDS

app = FastAPI()
database = sqlite3.connect("chats.db", isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE IF NOT EXISTS chats (tenant, id, saved, PRIMARY KEY (tenant, id))")


class Message(BaseModel):
    text: str


async def told(chat_id: str, tenant: str, text: str) -> AsyncIterator[str]:
    for word in WORDS:
        yield f"data: {json.dumps({'text': word})}\n\n"
    row = (tenant, chat_id, json.dumps({"messages": [text, "".join(WORDS)]}))
    database.execute("REPLACE INTO chats VALUES (?, ?, ?)", row)
    yield "data: {}\n\n"


@app.post("/chats/{chat_id}")
async def send(
    chat_id: str, message: Message, x_tenant: Annotated[str, Header()]
) -> StreamingResponse:
    events = told(chat_id, x_tenant, message.text)
    return StreamingResponse(events, media_type="text/event-stream")
