"""Tasks whose tools run in this server, because they report, or ask their client.

What a tool can't do without (`must_ask`) is asked first, by the results of its call, while a person
still waits for it; then the call becomes a task.

Source: https://modelcontextprotocol.io/seps/2663-tasks-extension; ADR 050.
"""

import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    ClientCapabilities,
    InputRequiredResult,
)

from ryecore.errors import InputError, RyeClosed, StateError
from ryecore.mcp_server.approvals import InputRequired
from ryecore.mcp_server.asking import send_to_client
from ryecore.mcp_server.open_questions import OpenQuestions
from ryecore.mcp_server.parking import SETTLE_S, identity_of
from ryecore.mcp_server.task_documents import RELATED_TASK
from ryecore.policy.reports import ToolProgress, ToolQuestion, ToolReport

__all__ = ["LiveTask", "PendingCalls"]

_MAX_WAITING: Final = 100
_WAITING_S: Final = 300.0
"""The seconds for which a call waits for its client before it is a task."""

_logger = logging.getLogger(__name__)


class LiveTask:
    """A task whose tool runs in this server.

    Args:
        offered: The capabilities of its client.

    Attributes:
        questions: What its client has not answered yet.
        message: What its tool last said of its progress.
        task_id: Its id; empty until its row is there.
    """

    def __init__(self, offered: ClientCapabilities | None) -> None:
        self._offered = offered
        self.questions = OpenQuestions(are_keys_used_once=True)
        self.message = ""
        self.task_id = ""
        self._scope = anyio.CancelScope()
        self.ended = anyio.Event()

    async def ask(self, question: ToolQuestion, /) -> Mapping[str, object]:
        """Have its client answer a question."""
        return await self.questions.ask(question, self._offered)

    def report(self, report: ToolReport) -> None:
        """Note what its tool says of its progress."""
        if isinstance(report, ToolProgress) and report.message:
            self.message = report.message

    async def run(self, call: Callable[[], Awaitable[None]]) -> None:
        """Run its tool, in a task of the server; the call sets `task_id` once its row is there.

        Raises:
            RyeError: There is no row, so nobody else can hear of it.
        """
        try:
            with self._scope:
                await call()
        except Exception as problem:
            if not self.task_id:
                raise
            self._log(problem)
        finally:
            self.ended.set()
            self.questions.notify()

    def _log(self, problem: Exception) -> None:
        thread_id = self.task_id.partition(".")[2]
        if isinstance(problem, StateError):
            _logger.warning("The end of the task %s can't be written: %s", thread_id, problem)
        elif isinstance(problem, RyeClosed):
            _logger.info("The task %s ended with this server", thread_id)
        else:
            _logger.error("The task %s failed", thread_id, exc_info=problem)

    def end_after(self, time_s: float) -> None:
        """End it after a while."""
        self._scope.deadline = anyio.current_time() + time_s

    async def first_questions(self) -> InputRequiredResult | None:
        """Wait for its first questions, or its end."""
        while not self.ended.is_set():
            changed = self.questions.changed
            if self.questions.waiting():
                await anyio.sleep(SETTLE_S)
                return self.asked()
            await changed.wait()
        return None

    def asked(self) -> InputRequiredResult | None:
        """Return what its client has to respond to, as the result of a call."""
        waiting = self.questions.waiting()
        return InputRequiredResult(input_requests=waiting) if waiting else None

    async def wait_and_ask(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Wait for its end, and ask the client of a request before 2026 what it needs meanwhile."""
        while not self.ended.is_set():
            changed = self.questions.changed
            for key, request in self.questions.waiting().items():
                params = request.params
                if params is not None:
                    meta = {**(params.meta or {}), RELATED_TASK: {"taskId": self.task_id}}
                    request = request.model_copy(  # noqa: PLW2901 - with the task's id
                        update={"params": params.model_copy(update={"meta": meta})}
                    )
                try:
                    response: object = await send_to_client(ctx, request)
                except InputError as refusal:
                    response = refusal
                self.questions.answer({key: response})
            if not self.questions.waiting():
                await changed.wait()


class PendingCalls:
    """Calls that wait for their clients' first answers, before they become tasks."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, tuple[str, LiveTask]] = OrderedDict()

    def take(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> LiveTask | None:
        """Return the call that a request continues, with its responses; None for a new call.

        Raises:
            MCPError: The state is that of another request, or of none.
        """
        if not params.request_state:
            return None
        identity, live = self._waiting.get(params.request_state, ("", None))
        if live is None or identity != identity_of(ctx, params):
            raise MCPError(
                code=INVALID_PARAMS,
                message="request_state is unknown: it was changed, used already, or is too old.",
            )
        del self._waiting[params.request_state]
        live.end_after(math.inf)
        live.questions.answer(dict(params.input_responses or {}))
        return live

    def wait(
        self,
        live: LiveTask,
        asked: InputRequiredResult,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
    ) -> InputRequired:
        """Return the request for responses to the questions of a call, which waits for them."""
        state = secrets.token_urlsafe(24)
        self._waiting[state] = identity_of(ctx, params), live
        live.end_after(_WAITING_S)
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popitem(last=False)[1][1].end_after(0)
        return InputRequired(asked.model_copy(update={"request_state": state}))
