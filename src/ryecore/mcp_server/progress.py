"""A call's trace events as MCP progress, in their order."""

import math
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.from_thread
from mcp.server.context import ServerRequestContext

from ryecore.policy.context import EventSink

__all__ = ["reporting"]


@asynccontextmanager
async def reporting(ctx: ServerRequestContext[Any, Any]) -> AsyncIterator[EventSink | None]:
    """Report the events of a call to a client that wished for progress.

    Yields:
        What is told each event, on any thread; None where the client wished for none.
    """
    if ctx.meta is None or ctx.meta.get("progress_token") is None:
        yield None
        return
    here = threading.get_ident()
    send, receive = anyio.create_memory_object_stream[str](math.inf)

    def tell(event: Mapping[str, object]) -> None:
        # The step and the item alone: no value of an event is for a client to see.
        said = f"{event.get('step', '')} {event.get('item_id', '')}".strip()
        if threading.get_ident() == here:
            send.send_nowait(said)
        else:
            anyio.from_thread.run_sync(send.send_nowait, said)

    async def report() -> None:
        async with receive:
            count = 0
            async for said in receive:
                count += 1
                await ctx.session.report_progress(count, message=said)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        async with send:
            yield tell
