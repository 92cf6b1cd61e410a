"""One request of a client as a call of ryecore: its capabilities, its reports, its questions."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar

from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, InputResponseRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ryecore.frozen import frozen
from ryecore.mcp_server.approvals import Approvals
from ryecore.mcp_server.asking import ask_client
from ryecore.mcp_server.parking import ParkedCall, Parking
from ryecore.mcp_server.peers import Peers
from ryecore.mcp_server.reporting import RequestReports, reporting
from ryecore.policy import CallContext
from ryecore.policy.reports import Ask

__all__ = ["CallRunner", "Transport"]

T = TypeVar("T")

_ASKABLE: Final = ("elicitation", "sampling", "roots")


@frozen(eq=False)
class Transport:
    """A transport that is served; its calls that wait for their clients end with it."""

    tasks: TaskGroup


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
        self._parking = Parking()

    async def run(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: InputResponseRequestParams,
        work: Callable[[CallContext], Awaitable[T]],
        more: frozenset[str] = frozenset(),
        *,
        parks: bool = True,
    ) -> T:
        """Do the work of a request on behalf of its client, which is told of each step.

        A client since 2026 that can be asked gets a tool's questions as the result, and calls again
        to continue the same call.

        Args:
            ctx: The request.
            params: Its parameters.
            work: What to do.
            more: Capabilities besides the client's.
            parks: Whether the call may wait for a further request of its client; not where one
                request makes several calls. Without it a client since 2026 isn't asked.

        Raises:
            InputRequired: The client has to call again, with an answer.
            RyeError: From the work.
            MCPError: From the work, or the request continues none.
        """
        parked: ParkedCall[T] | None = self._parking.take(ctx, params) if parks else None
        if parked is None:
            self._check_state(params)
            if not parks or not _outlives_request(ctx):
                return await self._run(
                    ctx, params, work, more, partial(ask_client, ctx), lambda _: None
                )

            async def run(parked: ParkedCall[T]) -> T:
                def note(reports: RequestReports) -> None:
                    parked.reports = reports

                return await self._run(ctx, params, work, more, parked.ask, note)

            parked = self._parking.begin(ctx, params, ctx.lifespan_context.tasks, run)
        return await self._parking.serve(parked, ctx, params)

    async def _run(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: InputResponseRequestParams,
        work: Callable[[CallContext], Awaitable[T]],
        more: frozenset[str],
        ask: Ask,
        note: Callable[[RequestReports], None],
    ) -> T:
        async with reporting(ctx, self._peers) as reports:
            note(reports)
            call = CallContext(
                capabilities=self.grants | more,
                event_sink=reports.event_sink,
                caller="mcp",
                report_sink=reports.report_sink,
                ask=ask,
            )
            with self._asking(call.call_id, ctx, params):
                return await work(call)

    def _check_state(self, params: InputResponseRequestParams) -> None:
        state = params.request_state
        if not state or (self._approvals is not None and self._approvals.knows(state)):
            return
        raise MCPError(
            code=INVALID_PARAMS,
            message="request_state is unknown: it was changed, was used already, or is too old.",
        )

    def _asking(
        self, call_id: str, ctx: ServerRequestContext[Any, Any], params: InputResponseRequestParams
    ) -> AbstractContextManager[None]:
        if self._approvals is None:
            return nullcontext()
        return self._approvals.during(call_id, ctx, params)


def _outlives_request(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Return whether a call may have to wait for a further request of the client."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    offered = ctx.session.client_capabilities
    return offered is not None and any(getattr(offered, name) is not None for name in _ASKABLE)
