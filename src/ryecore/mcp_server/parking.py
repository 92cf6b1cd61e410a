"""Calls that wait for a client since 2026: it gets their questions, and calls again with responses.

The call's process stays alive meanwhile, in a task of the server. The client's next request finds
it by a state that can't be guessed, counts once, and holds only for the same request.

Source: https://modelcontextprotocol.io/specification/draft/basic/utilities/mrtr; ADR 050.
"""

import hashlib
import json
import math
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, InputRequiredResult, InputResponseRequestParams

from ryecore.mcp_server.approvals import InputRequired
from ryecore.mcp_server.open_questions import OpenQuestions
from ryecore.mcp_server.reporting import RequestReports
from ryecore.policy.reports import ToolQuestion

__all__ = ["SETTLE_S", "ParkedCall", "Parking", "identity_of"]

_MAX_PARKED: Final = 100
_PARKED_S: Final = 300.0
"""The seconds for which a call waits for its client."""

SETTLE_S: Final = 0.02
"""The time for which further questions are waited for, so that a client gets them together."""

T = TypeVar("T")


class ParkedCall(Generic[T]):
    """A call that may outlive the request that began it."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.reports: RequestReports | None = None
        self._ctx: ServerRequestContext[Any, Any] | None = None
        self._questions = OpenQuestions()
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._outcome: Callable[[], T] = self._never

    async def run(self, work: Callable[[], Awaitable[T]]) -> None:
        """Do the call's work, in a task of the server."""
        try:
            with self._scope:
                try:
                    value = await work()
                except Exception as problem:
                    self._outcome = partial(_raise, problem)
                else:
                    self._outcome = lambda: value
        finally:
            self._ended.set()
            self._questions.notify()

    async def ask(self, question: ToolQuestion, /) -> Mapping[str, object]:
        """Have the client answer a question, now or by its next request."""
        offered = None if self._ctx is None else self._ctx.session.client_capabilities
        return await self._questions.ask(question, offered)

    async def served(
        self, ctx: ServerRequestContext[Any, Any], responses: Mapping[str, object]
    ) -> T | InputRequiredResult:
        """Wait, on behalf of a request, for the call's end or for its next questions.

        A cancelled request ends the call.
        """
        self._scope.deadline = math.inf
        questions, self._ctx = self._questions, ctx
        if self.reports is not None:
            self.reports.ctx = ctx
        questions.early = dict(responses)
        questions.answer(questions.early)
        try:
            while not self._ended.is_set():
                changed = questions.changed
                if questions.waiting():
                    await anyio.sleep(SETTLE_S)
                    if not self._ended.is_set() and (waiting := questions.waiting()):
                        return InputRequiredResult(input_requests=waiting)
                    continue
                await changed.wait()
        except BaseException:
            await self.end()
            raise
        finally:
            if self.reports is not None:
                self.reports.ctx = None
        return self._outcome()

    def park(self) -> None:
        """End the call after a while, unless a request continues it."""
        self._scope.deadline = anyio.current_time() + _PARKED_S

    def cancel(self) -> None:
        """End the call."""
        self._scope.cancel()

    async def end(self) -> None:
        """End the call, and wait until it has ended."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()

    @property
    def has_ended(self) -> bool:
        """Return whether the call has ended."""
        return self._ended.is_set()

    def _never(self) -> T:
        raise MCPError(code=INVALID_PARAMS, message="The call was ended: nobody answered in time.")


def _raise(problem: Exception) -> Any:
    raise problem


class Parking:
    """The calls that wait for their clients, by the state that the clients send back."""

    def __init__(self) -> None:
        self._parked: OrderedDict[str, ParkedCall[Any]] = OrderedDict()

    def take(
        self, ctx: ServerRequestContext[Any, Any], params: InputResponseRequestParams
    ) -> ParkedCall[Any] | None:
        """Return the call that a request continues; None where its state isn't one of here.

        Raises:
            MCPError: It is a state of another request.
        """
        parked = self._parked.get(params.request_state or "")
        if parked is None:
            return None
        if parked.identity != identity_of(ctx, params):
            raise MCPError(code=INVALID_PARAMS, message="request_state is that of another request.")
        del self._parked[params.request_state or ""]
        return None if parked.has_ended else parked

    def begin(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: InputResponseRequestParams,
        tasks: TaskGroup,
        work: Callable[[ParkedCall[T]], Awaitable[T]],
    ) -> ParkedCall[T]:
        """Begin a call in a task of the server."""
        parked: ParkedCall[T] = ParkedCall(identity_of(ctx, params))
        tasks.start_soon(parked.run, partial(work, parked))
        return parked

    async def serve(
        self,
        parked: ParkedCall[T],
        ctx: ServerRequestContext[Any, Any],
        params: InputResponseRequestParams,
    ) -> T:
        """Wait for the end of a call on behalf of a request.

        Raises:
            InputRequired: It asks; the client has to call again with the responses.
        """
        found = await parked.served(ctx, params.input_responses or {})
        if not isinstance(found, InputRequiredResult):
            return found
        state = secrets.token_urlsafe(24)
        self._parked[state] = parked
        parked.park()
        self._forget_ended()
        while len(self._parked) > _MAX_PARKED:
            self._parked.popitem(last=False)[1].cancel()
        raise InputRequired(found.model_copy(update={"request_state": state}))

    def _forget_ended(self) -> None:
        for state in [key for key, one in self._parked.items() if one.has_ended]:
            del self._parked[state]


def identity_of(ctx: ServerRequestContext[Any, Any], params: InputResponseRequestParams) -> str:
    """Return what a request and the one that continues it have in common: all but the answer."""
    rest = params.model_dump(
        mode="json", by_alias=True, exclude={"meta", "input_responses", "request_state"}
    )
    credential = "" if ctx.request is None else ctx.request.headers.get("authorization", "")
    told = json.dumps([id(ctx.lifespan_context), ctx.method, credential, rest], sort_keys=True)
    return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()
