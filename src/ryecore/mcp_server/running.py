"""One request of a client as a call of ryecore: its capabilities, its progress, its questions."""

import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeVar

import anyio
import anyio.from_thread
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams

from ryecore.errors import RyeError
from ryecore.mcp_server.approvals import Approvals, InputRequired
from ryecore.policy import CallContext
from ryecore.policy.context import EventSink

__all__ = ["CallRunner", "report_progress"]

T = TypeVar("T")


class CallRunner:
    """Runs the requests of clients.

    Args:
        grants: The capabilities of a client.
        approvals: Asks the person at the client; None where nothing may be asked.
    """

    def __init__(self, grants: frozenset[str], approvals: Approvals | None) -> None:
        self.grants = grants
        self._approvals = approvals

    async def run(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
        work: Callable[[CallContext], Awaitable[T]],
        more: frozenset[str] = frozenset(),
    ) -> T:
        """Do the work of a request on behalf of its client, which is told of each step.

        Args:
            ctx: The request.
            params: Its parameters.
            work: What to do.
            more: Capabilities besides the client's.

        Raises:
            InputRequired: The client has to call again, with an answer.
            RyeError: From the work.
            MCPError: From the work.
        """
        failure: Exception | None = None
        async with report_progress(ctx) as sink:
            call = CallContext(capabilities=self.grants | more, event_sink=sink, caller="mcp")
            with self._asking(call.call_id, ctx, params):
                try:
                    return await work(call)
                except (InputRequired, RyeError, MCPError) as raised:
                    failure = raised  # which a task group would wrap
        raise failure

    def _asking(
        self, call_id: str, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> AbstractContextManager[None]:
        if self._approvals is None:
            return nullcontext()
        return self._approvals.during(call_id, ctx, params)


@asynccontextmanager
async def report_progress(ctx: ServerRequestContext[Any, Any]) -> AsyncIterator[EventSink | None]:
    """Yield the sink of a call's events, for any thread; None where no progress was requested."""
    if ctx.meta is None or ctx.meta.get("progress_token") is None:
        yield None
        return
    here = threading.get_ident()
    send, receive = anyio.create_memory_object_stream[str](math.inf)

    def sink(event: Mapping[str, object]) -> None:
        # The step and the item alone: a client may not see the values of an event.
        message = f"{event.get('step', '')} {event.get('item_id', '')}".strip()
        if threading.get_ident() == here:
            send.send_nowait(message)
        else:
            anyio.from_thread.run_sync(send.send_nowait, message)

    async def report() -> None:
        async with receive:
            count = 0
            async for message in receive:
                count += 1
                await ctx.session.report_progress(count, message=message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        async with send:
            yield sink
