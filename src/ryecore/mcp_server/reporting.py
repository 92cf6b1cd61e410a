"""What a client is told while its request is carried out: steps, progress and log messages."""

import logging
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeAlias

import anyio
import anyio.from_thread
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.context import ServerRequestContext

from ryecore.mcp_server.peers import Peers, send_log, wants_level
from ryecore.policy.context import EventSink
from ryecore.policy.reports import ToolProgress, ToolReport

__all__ = ["ProgressScale", "RequestReports", "reporting"]

_MAX_UNSENT: Final = 1000
"""How many reports wait for a client that reads slowly; further ones are dropped."""

_REPORTED_STEPS: Final = frozenset({"progress", "log"})
"""The events that are reports of a tool, which are sent as such."""

_Unsent: TypeAlias = str | ToolReport

_logger = logging.getLogger(__name__)


class ProgressScale:
    """Puts steps, and the progress of each tool in its own unit, on one scale that only rises.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._bases: dict[str, float] = {}

    def step(self) -> float:
        """Return the progress after one more step."""
        self._last = (self._last or 0) + 1
        return self._last

    def progress(self, report: ToolProgress) -> tuple[float, float | None] | None:
        """Return the progress after a tool's report, and the total; None where it doesn't rise."""
        if report.call_id not in self._bases:
            if len(self._bases) >= _MAX_UNSENT:
                return None
            self._bases[report.call_id] = self._last or 0
        base = self._bases[report.call_id]
        progress = base + report.progress
        if self._last is not None and progress <= self._last:
            return None
        self._last = progress
        return progress, None if report.total is None else base + report.total


class RequestReports:
    """The reports of one call, which go to the client of the request that waits for it now.

    Attributes:
        ctx: That request; None while none waits, so that reports are dropped.
    """

    def __init__(self, ctx: ServerRequestContext[Any, Any], peers: Peers, tasks: TaskGroup) -> None:
        self.ctx: ServerRequestContext[Any, Any] | None = ctx
        self._peers = peers
        self._tasks = tasks
        self._thread = threading.get_ident()
        self._scale = ProgressScale()
        self._unsent: MemoryObjectSendStream[_Unsent] | None = None
        self._sent = anyio.Event()
        self._sending = anyio.CancelScope()

    @property
    def event_sink(self) -> EventSink | None:
        """Return the sink of the call's events, for any thread; None if nobody wants them."""
        if self.ctx is None:
            return None
        is_wanted = _wants_progress(self.ctx) or wants_level(self.ctx, self._peers, "debug")
        return self._note_event if is_wanted else None

    def report_sink(self, report: ToolReport) -> None:
        """Send a tool's report, without waiting."""
        if self.ctx is not None:
            self._put(report)

    async def finish(self) -> None:
        """Send what waits, and nothing more."""
        if self._unsent is None:
            return
        self._unsent.close()
        try:
            await self._sent.wait()
        finally:
            self._sending.cancel()

    def _note_event(self, event: Mapping[str, object]) -> None:
        if event.get("step") in _REPORTED_STEPS:
            return
        # Only the step and the item: a client may not see the values of an event.
        message = f"{event.get('step', '')} {event.get('item_id', '')}".strip()
        if threading.get_ident() == self._thread:
            self._put(message)
        else:
            anyio.from_thread.run_sync(self._put, message)

    def _put(self, unsent: _Unsent) -> None:
        if self._unsent is None:  # a call without reports needs no task
            self._unsent, receive = anyio.create_memory_object_stream[_Unsent](_MAX_UNSENT)
            self._tasks.start_soon(self._send_all, receive)
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._unsent.send_nowait(unsent)

    async def _send_all(self, receive: MemoryObjectReceiveStream[_Unsent]) -> None:
        try:
            with self._sending, receive:
                async for unsent in receive:
                    if self.ctx is not None:
                        await self._send(self.ctx, unsent)
        except Exception:  # the server's other calls continue
            _logger.exception("The reports of a call can't be sent")
        finally:
            self._sent.set()

    async def _send(self, ctx: ServerRequestContext[Any, Any], unsent: _Unsent) -> None:
        if isinstance(unsent, str):
            if _wants_progress(ctx):
                await ctx.session.report_progress(self._scale.step(), message=unsent)
            await send_log(ctx, self._peers, "debug", unsent, "ryecore")
        elif isinstance(unsent, ToolProgress):
            found = self._scale.progress(unsent) if _wants_progress(ctx) else None
            if found is not None:
                await ctx.session.report_progress(*found, unsent.message or None)
        else:
            logger = f"{unsent.item_id} {unsent.logger}".strip()
            await send_log(ctx, self._peers, unsent.level, unsent.data, logger)


def _wants_progress(ctx: ServerRequestContext[Any, Any]) -> bool:
    return ctx.meta is not None and ctx.meta.get("progress_token") is not None


@asynccontextmanager
async def reporting(
    ctx: ServerRequestContext[Any, Any], peers: Peers
) -> AsyncIterator[RequestReports]:
    """Send the reports of a call to the client of a request, for the time of the block."""
    reports = RequestReports(ctx, peers, ctx.lifespan_context.tasks)
    try:
        yield reports
    finally:
        await reports.finish()
