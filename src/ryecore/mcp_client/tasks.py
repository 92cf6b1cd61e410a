"""Calls that a server answers as tasks: polled, answered, and cancelled where nobody waits.

In 2025-11-25 the client asks for a task, of a tool that says so; in 2026 the server decides, where
the client declares the extension. The SDK has neither.

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks;
https://modelcontextprotocol.io/seps/2663-tasks-extension.
"""

from typing import Any, Final, Literal, TypeAlias

import anyio
from attrs import define, field
from mcp.client.extension import ClaimContext, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    REQUEST_TIMEOUT,
    CallToolResult,
    CreateMessageRequest,
    CreateTaskResult,
    ElicitRequest,
    EmptyResult,
    ErrorData,
    InputResponses,
    ListRootsRequest,
    Request,
    RequestParams,
    Result,
    Tool,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from ryecore.mcp_client.exchange import is_closed
from ryecore.mcp_client.followed import MAX_OUTAGE_S, FollowedTask
from ryecore.mcp_client.peer import Peer
from ryecore.mcp_client.questions import Questions
from ryecore.mcp_client.task_files import OpenTasks

__all__ = ["CREATED_TASK", "EXTENSION", "CreatedTask", "TaskCalls", "TaskLost"]

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_LEGACY: Final = "2025-11-25"
_LEAST_PAUSE_S: Final = 0.05
_MOST_PAUSE_S: Final = 60.0
_DEFAULT_PAUSE_S: Final = 1.0
_CANCELLING_S: Final = 2.0
_MAX_MESSAGE_CHARS: Final = 1000
_MAX_ID_CHARS: Final = 1024

_MAX_FAULTS: Final = 5
_FINAL: Final = frozenset({INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY})
"""The errors that say that there is no such task, or none for this client."""

_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_InputRequests: TypeAlias = dict[str, ElicitRequest | CreateMessageRequest | ListRootsRequest]
_REQUESTS: Final[TypeAdapter[_InputRequests]] = TypeAdapter(_InputRequests)


class CreatedTask(Result):
    """The result of a call of 2026 that became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str = "working"
    status_message: str | None = None
    ttl_ms: float | None = None
    poll_interval_ms: float | None = None


async def _no_resolution(_: CreatedTask, __: ClaimContext) -> CallToolResult:
    raise AssertionError("a session takes created tasks as they come")


CREATED_TASK: Final = ResultClaim(result_type="task", model=CreatedTask, resolve=_no_resolution)


class _TaskParams(RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: InputResponses


class _TaskRequest(Request[_TaskParams, str]):
    name_param = "taskId"


class _UpdateRequest(Request[_UpdateParams, str]):
    name_param = "taskId"


class _Task(Result):
    """A task, as the server describes it; the names of 2025 and of 2026 differ."""

    status: str = ""
    status_message: str | None = None
    ttl: float | None = None
    ttl_ms: float | None = None
    poll_interval: float | None = None
    poll_interval_ms: float | None = None
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its status is final."""
        return self.status in _ENDED

    @property
    def message(self) -> str:
        """What it does, or why it ended so."""
        return (self.status_message or "")[:_MAX_MESSAGE_CHARS]

    @property
    def pause_s(self) -> float:
        """The seconds until it is asked for again, as the server wants it."""
        wanted = self.poll_interval_ms if self.poll_interval is None else self.poll_interval
        if wanted is None:
            return _DEFAULT_PAUSE_S
        return min(max(wanted / 1000, _LEAST_PAUSE_S), _MOST_PAUSE_S)

    @property
    def ttl_s(self) -> float | None:
        """The seconds for which the server keeps it; None for no bound."""
        ttl = self.ttl_ms if self.ttl is None else self.ttl
        return None if ttl is None else ttl / 1000


class TaskCalls:
    """The calls of one session that are tasks.

    Args:
        client: The session.
        peer: The server.
        questions: Passes on what the server reports and asks.
        files: Where open tasks are kept; None where they end with this process.
    """

    def __init__(
        self, client: ClientSession, peer: Peer, questions: Questions, files: OpenTasks | None
    ) -> None:
        self._client = client
        self._peer = peer
        self._questions = questions
        self._files = files
        self._open: set[FollowedTask] = set()

    @property
    def _is_modern(self) -> bool:
        return self._client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def must_ask_for(self, tool: Tool) -> bool:
        """Return whether a call of a tool asks for a task, as only a client of 2025-11-25 does."""
        if self._client.protocol_version != _LEGACY:
            return False
        known = self._client.server_capabilities
        requests = None if known is None or known.tasks is None else known.tasks.requests
        if requests is None or requests.tools is None or requests.tools.call is None:
            return False
        return tool.execution is not None and tool.execution.task_support in (
            "optional", "required",
        )  # fmt: skip

    @property
    def open(self) -> frozenset[FollowedTask]:
        """The tasks that calls wait for, and that outlive this session."""
        self._open = {one for one in self._open if one.is_open}
        return frozenset() if self._files is None else frozenset(self._open)

    def begin(
        self, created: CreatedTask | CreateTaskResult, tool: Tool, timeout_s: float | None
    ) -> FollowedTask:
        """Take a task that a call became, to be followed until it is closed.

        Raises:
            RuntimeError: Its id is too long.
        """
        first = created.task if isinstance(created, CreateTaskResult) else created
        if len(first.task_id) > _MAX_ID_CHARS:
            raise RuntimeError(f"the id of its task has {len(first.task_id)} characters")
        state = _Task.model_validate(first.model_dump(mode="json", by_alias=True), by_name=False)
        if state.has_ended and self._is_modern:  # only tasks/get has its result
            state = state.model_copy(update={"status": "working"})
        kept = None if self._files is None else self._files.keep(first.task_id, tool.name)
        schema = tool.output_schema
        return FollowedTask(first.task_id, schema, state, kept, timeout_s, _Answers())

    async def finish(self, task: FollowedTask) -> CallToolResult:
        """Wait for the result of a task. Where nobody waits any more, the task is cancelled.

        Where the session has broken off, it stays open, so that another one can follow it.

        Raises:
            TaskLost: It took too long, or can't be followed, answered, or asked for its result.
            MCPError: It failed, or was cancelled by the server.
        """
        is_settled = False
        self._open.add(task)
        try:
            with anyio.fail_after(task.deadline - anyio.current_time()):
                with self._peer.pending.track():
                    result = await self._follow(task)
            is_settled = True
        except TimeoutError:
            raise TaskLost(
                REQUEST_TIMEOUT, f"the task {task.task_id} did not end within {task.timeout_s:g} s"
            ) from None
        except _TaskEnded:
            is_settled = True
            raise
        except MCPError as error:
            if is_closed(error):
                self._peer.fail(f"broke off: {error.error.message}")
            raise TaskLost.from_error_data(error.error) from None
        finally:
            if is_settled or not self._peer.broken.is_set() or self._files is None:
                task.close(is_settled=is_settled or await self._cancel(task.task_id))
        return result

    async def settle_left(self) -> None:
        """Cancel the tasks whose process was killed while it waited, and report each.

        Where the server takes long to answer, a later session goes on: calls wait for this one.
        """
        until = anyio.current_time() + _CANCELLING_S
        for kept in self._files.left() if self._files is not None else ():
            with kept:
                if await self._cancel(kept.task_id):
                    kept.forget()
                    await self._questions.warn(
                        f"A call of {kept.tool} was left as the task {kept.task_id} by a process "
                        "that was killed. It is cancelled; see what it has done before a new call."
                    )
            if anyio.current_time() >= until:
                return

    async def _follow(self, followed: FollowedTask) -> CallToolResult:
        task: _Task = followed.state
        polls, results = _Faults(), _Faults()
        while not task.has_ended:
            if task.message and task.message != followed.last_message:
                followed.last_message, followed.messages = task.message, followed.messages + 1
                await self._questions.progress(followed.messages, None, task.message)
            if task.status == "input_required":
                if self._is_modern:
                    await self._answer(task, followed.task_id, followed.answers)
                elif result := await self._legacy_result(followed.task_id, results):
                    return result  # it asked by the request for it, and then ended
            if task.ttl_s is not None and anyio.current_time() - followed.began > task.ttl_s:
                raise MCPError(
                    INVALID_REQUEST,
                    f"the server keeps the task {followed.task_id} for only {task.ttl_s:g} s",
                )
            await anyio.sleep(task.pause_s)
            try:
                followed.state = task = await self._get(followed.task_id)
            except MCPError as error:
                polls.note(error, is_unavailable=self._peer.is_unavailable)
            else:
                polls = _Faults()
        return await self._outcome(task, followed.task_id, results)

    async def _outcome(self, task: _Task, task_id: str, faults: "_Faults") -> CallToolResult:
        if not self._is_modern:
            while task.status == "completed":
                if result := await self._legacy_result(task_id, faults):
                    return result
                await anyio.sleep(task.pause_s)
            return await self._legacy_failure(task_id)
        if task.status == "completed":
            return CallToolResult.model_validate(task.result, by_name=False)
        if task.status == "failed" and task.error is not None:
            raise _TaskEnded.from_error_data(ErrorData.model_validate(task.error, by_name=False))
        how = "failed" if task.status == "failed" else "was cancelled"
        raise _TaskEnded(INTERNAL_ERROR, f"the task {how}: {task.message or 'no reason'}")

    async def _legacy_result(self, task_id: str, faults: "_Faults") -> CallToolResult | None:
        """Return a result; None where it was lost on its way."""
        try:
            return await self._result(task_id)
        except MCPError as error:
            faults.note(error, is_unavailable=self._peer.is_unavailable)
            return None

    async def _legacy_failure(self, task_id: str) -> CallToolResult:
        """Return the result of a tool that failed; any other failure is an error."""
        try:
            return await self._result(task_id)
        except MCPError as error:
            raise _TaskEnded.from_error_data(error.error) from None

    async def _result(self, task_id: str) -> CallToolResult:
        return await self._client.send_request(_request("tasks/result", task_id), CallToolResult)

    async def _answer(self, task: _Task, task_id: str, answers: "_Answers") -> None:
        """Answer the requests of a task, each once.

        An answer that doesn't arrive is sent again after the next poll, which says whether its
        request is still open.
        """
        requests = _REQUESTS.validate_python(task.input_requests or {}, by_name=False)
        for key, wanted in requests.items():
            if key in answers.taken:
                continue
            if key not in answers.given:
                context = ClientRequestContext(session=self._client, request_id=key)
                answer = await self._client.dispatch_input_request(context, wanted)
                if isinstance(answer, ErrorData):
                    raise MCPError.from_error_data(answer)
                answers.given[key] = answer
            params = _UpdateParams(task_id=task_id, input_responses={key: answers.given[key]})
            request = _UpdateRequest(method="tasks/update", params=params)
            try:
                await self._client.send_request(request, EmptyResult)
            except MCPError as error:
                answers.faults.count(error)  # it may have ended meanwhile: the next poll says
                return
            answers.taken.add(key)
            answers.faults = _Faults()

    async def _get(self, task_id: str) -> _Task:
        return await self._client.send_request(_request("tasks/get", task_id), _Task)

    async def _cancel(self, task_id: str) -> bool:
        """Cancel a task; return whether the server knows that nobody waits for it."""
        with anyio.CancelScope(shield=True), anyio.move_on_after(_CANCELLING_S):
            try:
                with self._peer.pending.track():
                    request = _request("tasks/cancel", task_id)
                    await self._client.send_request(request, EmptyResult)
            except MCPError as error:
                return error.error.code in _FINAL  # it has ended, or is forgotten
            except (RuntimeError, ValueError):
                return True  # an answer, if not a readable one
            return True
        return False


class TaskLost(MCPError):
    """The wait for a task was broken off: the server has begun it, and may have finished it."""


class _TaskEnded(MCPError):
    """The error with which a task ended at the server."""


class _Faults:
    """Errors that end no task while they are few: a gateway is busy."""

    def __init__(self) -> None:
        self._count = 0
        self._began = anyio.current_time()

    def note(self, error: MCPError, *, is_unavailable: bool = False) -> None:
        """Count an error, and raise it where it is one too many, or says that there is no task.

        With `is_unavailable`, it doesn't count for as long as a server may be started again.
        """
        if error.error.code in _FINAL:
            raise error
        if not is_unavailable or anyio.current_time() - self._began > MAX_OUTAGE_S:
            self.count(error)

    def count(self, error: MCPError) -> None:
        """Count an error, and raise it where it is one too many."""
        self._count += 1
        if self._count > _MAX_FAULTS:
            raise error


@define(eq=False)
class _Answers:
    """The answers to what a task asks, by key, and those that the server has taken."""

    given: InputResponses = field(factory=dict)
    taken: set[str] = field(factory=set)
    faults: _Faults = field(factory=_Faults)


def _request(method: str, task_id: str) -> _TaskRequest:
    return _TaskRequest(method=method, params=_TaskParams(task_id=task_id))
