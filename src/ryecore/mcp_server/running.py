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
from mcp_types import InputResponseRequestParams

from ryecore.errors import RyeError
from ryecore.mcp_server.approvals import Approvals, InputRequired
from ryecore.mcp_server.peers import Peers, send_log, wants_level
from ryecore.policy import CallContext
from ryecore.policy.context import EventSink

__all__ = ["CallRunner", "report_steps"]

T = TypeVar("T")


class CallRunner:
    """Runs the requests of clients.

    Args:
        grants: The capabilities of a client.
        approvals: Asks the person at the client; None where nothing may be asked.
        peers: The clients, with the levels of log messages that they want.
    """

    def __init__(self, grants: frozenset[str], approvals: Approvals | None, peers: Peers) -> None:
        self.grants = grants
        self._approvals = approvals
        self._peers = peers

    async def run(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: InputResponseRequestParams,
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
        async with report_steps(ctx, self._peers) as sink:
            call = CallContext(capabilities=self.grants | more, event_sink=sink, caller="mcp")
            with self._asking(call.call_id, ctx, params):
                try:
                    return await work(call)
                except (InputRequired, RyeError, MCPError) as raised:
                    failure = raised  # which a task group would wrap
        raise failure

    def _asking(
        self, call_id: str, ctx: ServerRequestContext[Any, Any], params: InputResponseRequestParams
    ) -> AbstractContextManager[None]:
        if self._approvals is None:
            return nullcontext()
        return self._approvals.during(call_id, ctx, params)


@asynccontextmanager
async def report_steps(
    ctx: ServerRequestContext[Any, Any], peers: Peers
) -> AsyncIterator[EventSink | None]:
    """Yield the sink of a call's events, for any thread; None where the client wants none.

    A client that asked for progress is notified of each step, and one that wants messages of the
    level `debug` gets one for each.
    """
    wants_progress = ctx.meta is not None and ctx.meta.get("progress_token") is not None
    wants_log = wants_level(ctx, peers, "debug")
    if not wants_progress and not wants_log:
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
                if wants_progress:
                    await ctx.session.report_progress(count, message=message)
                if wants_log:
                    await send_log(ctx, peers, "debug", message, "ryecore")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report)
        async with send:
            yield sink
