"""Long calls over HTTP: the stream of the response is closed, and the client polls for the rest.

Proxies cut connections that last too long. A client of 2025-11-25 reconnects, and is sent what came
meanwhile.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext

__all__ = ["polled"]


@asynccontextmanager
async def polled(ctx: ServerRequestContext[Any, Any], after_s: float | None) -> AsyncIterator[None]:
    """Have the client poll for what the block takes longer than so many seconds to do.

    Nothing happens with None, on other transports, and with clients that can't resume a stream.
    """
    close = ctx.close_sse_stream
    if after_s is None or close is None:
        yield
        return

    async def close_later() -> None:
        await anyio.sleep(after_s)
        await close()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(close_later)
        yield
        tasks.cancel_scope.cancel()
