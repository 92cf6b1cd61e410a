"""What a server asks and reports while a call runs, passed on to the call's host.

A server asks by a request of its own, or by a result that says what it needs (2026-07-28). Only
kinds of questions that its signed item declares are offered to it.

Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.
"""

import json
import math
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import anyio
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_REQUEST,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
    InputResponses,
    ListRootsResult,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    Result,
)
from pydantic import BaseModel, ValidationError

from ryecore.errors import McpError
from ryecore.mcp_client.host_line import HostLine, Lines
from ryecore.mcp_client.wire import encode_json

__all__ = ["Questions", "answer_questions", "apply_defaults"]

_MAX_ROUNDS: Final = 10
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.25
_MAX_TEXT_CHARS: Final = 1000
_MAX_DATA_CHARS: Final = 64 * 1024

_line: Final[ContextVar[HostLine | None]] = ContextVar("line", default=None)

R = TypeVar("R", bound=BaseModel)
Retry = Callable[[InputResponses | None, str | None], Awaitable[Result]]


class Questions:
    """The callbacks of a session, which pass what a server wants on to the hosts of its calls.

    Args:
        lines: The calls whose hosts can be asked.
        may_ask: The kinds of questions that the server's signed item declares.
    """

    def __init__(self, lines: Lines | None, may_ask: Collection[str]) -> None:
        self._lines = lines
        self._may_ask = may_ask
        self._last = 0
        self._followed: dict[str | int, ProgressFnT] = {}

    async def callbacks(self) -> Mapping[str, Any]:
        """Return the callbacks for a session; one that nobody would answer isn't offered."""
        lines = self._lines
        if lines is None:
            return {}
        await lines.is_called.wait()  # a connector is started for a call, which is on its way
        offered = [kind for kind in self._may_ask if lines.find(kind) is not None]
        callbacks: dict[str, Any] = {"logging_callback": self.log, "log_level": "info"}
        if "elicit" in offered:
            callbacks["elicitation_callback"] = self.elicit
        if "sample" in offered:
            callbacks["sampling_callback"] = self.sample
        if "roots" in offered:
            callbacks["list_roots_callback"] = self.roots
        return callbacks

    async def elicit(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """Ask a person to fill in a form, or to visit a page."""
        answer = await self._ask("elicit", params, ElicitResult)
        schema = getattr(params, "requested_schema", None)
        if isinstance(answer, ElicitResult) and answer.action == "accept" and schema is not None:
            answer.content = apply_defaults(answer.content or {}, schema)
        return answer

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """Ask for the answer of a model."""
        if params.tools:
            return await self._ask("sample", params, CreateMessageResultWithTools)
        return await self._ask("sample", params, CreateMessageResult)

    async def roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        """Ask which folders the server may work in."""
        return await self._ask("roots", None, ListRootsResult)

    async def _ask(self, kind: str, params: BaseModel | None, result: type[R]) -> R | ErrorData:
        line = _line.get() or (self._lines.find(kind) if self._lines is not None else None)
        if line is None or kind not in line.can or kind not in self._may_ask:
            return ErrorData(code=INVALID_REQUEST, message="Nobody is there to answer.")
        self._last += 1
        asked = {} if params is None else params.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"meta"}
        )  # fmt: skip
        try:
            answer = await line.ask(kind, {"key": str(self._last), "params": asked})
            return result.model_validate(answer, by_name=False)
        except McpError as refusal:
            return ErrorData(code=INVALID_REQUEST, message=refusal.message)
        except ValidationError:
            return ErrorData(code=INVALID_REQUEST, message="The host's answer can't be used.")

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        """Pass on a log message."""
        try:
            text = json.dumps(params.data, allow_nan=False)
        except (ValueError, RecursionError):  # NaN, which is no JSON, or too deep
            return
        if len(text) > _MAX_DATA_CHARS:
            return
        line = _line.get() or (self._lines.find("reports") if self._lines is not None else None)
        await _report(
            line,
            {"level": params.level, "data": params.data, "logger": (params.logger or "")[:100]},
        )

    async def progress(self, progress: float, total: float | None, message: str) -> None:
        """Report how far the call of the running task is."""
        await _report(_line.get(), {"progress": progress, "total": total, "message": message})

    async def warn(self, text: str) -> None:
        """Report a warning of ryecore's own to the latest call whose caller gets reports."""
        line = self._lines.find("reports") if self._lines is not None else None
        await _report(line, {"level": "warning", "data": text, "logger": "ryecore"})

    async def note_progress(self, params: ProgressNotificationParams) -> None:
        """Pass on progress that came after the request whose token it has was answered."""
        follow = self._followed.get(params.progress_token)
        if follow is not None:
            await follow(params.progress, params.total, params.message)

    @contextmanager
    def followed(self, options: Mapping[str, Any]) -> Iterator[str | None]:
        """Yield a token by which the progress of a task comes; None where nobody wants it."""
        callback: ProgressFnT | None = options.get("progress_callback")
        if callback is None:
            yield None
            return
        token = secrets.token_hex(8)
        self._followed[token] = callback
        try:
            yield token
        finally:
            del self._followed[token]

    @contextmanager
    def of(self, line: HostLine | None) -> Iterator[Mapping[str, Any]]:
        """Note whose call the block makes, and yield the options with which it is sent."""
        token = _line.set(line)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if not all(math.isfinite(one) for one in (progress, total or 0)):
                return  # it is no JSON, and nobody could pass it on
            said = (message or "")[:_MAX_TEXT_CHARS]
            await _report(line, {"progress": progress, "total": total, "message": said})

        try:
            has_reports = line is not None and "reports" in line.can
            yield {"progress_callback": on_progress} if has_reports else {}
        finally:
            _line.reset(token)


async def _report(line: HostLine | None, report: Mapping[str, object]) -> None:
    if line is not None and "reports" in line.can:
        try:
            await line.send(b"N", encode_json(report))
        except OSError:  # the host has left
            return


async def answer_questions(
    client: ClientSession, first: InputRequiredResult, retry: Retry
) -> Result:
    """Answer what a call needs, and call again, until it has its result, or is a task.

    The state of a result goes back as it came, and only to this call.
    """
    current: Result = first
    pause_s = _FIRST_PAUSE_S
    for _ in range(_MAX_ROUNDS):
        if not isinstance(current, InputRequiredResult):
            return current
        responses: InputResponses | None = None
        if current.input_requests:
            responses = {}
            for key, request in current.input_requests.items():
                context = ClientRequestContext(session=client, request_id=key)
                answer = await client.dispatch_input_request(context, request)
                if isinstance(answer, ErrorData):
                    raise MCPError.from_error_data(answer)
                responses[key] = answer
        else:
            await anyio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        current = await retry(responses, current.request_state)
    if isinstance(current, InputRequiredResult):
        raise MCPError(INVALID_REQUEST, f"it asked more than {_MAX_ROUNDS} times")
    return current


def apply_defaults(content: Mapping[str, Any], schema: Any) -> dict[str, Any]:
    """Return a form's content with the schema's defaults for the fields that were left out.

    Source: https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation.
    """
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    defaults = {
        name: field["default"]
        for name, field in (properties or {}).items()
        if isinstance(field, Mapping) and "default" in field
    }
    return {**defaults, **content}
