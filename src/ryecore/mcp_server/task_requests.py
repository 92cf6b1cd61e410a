"""The requests of clients about tasks, in both eras of the protocol.

The SDK has neither: 2025-11-25 has tasks in its core, 2026 as an extension.
"""

from collections.abc import Mapping
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    ErrorData,
    PaginatedRequestParams,
    RequestParams,
    ServerCapabilities,
    ServerTasksCapability,
    ServerTasksRequestsCapability,
    TasksCallCapability,
    TasksCancelCapability,
    TasksListCapability,
    TasksToolsCapability,
)
from mcp_types.methods import validate_client_request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ryecore.mcp_server.task_documents import (
    EXTENSION,
    FIRST_WITH_TASKS,
    RELATED_TASK,
    TaskState,
    detailed_document,
    legacy_document,
)
from ryecore.mcp_server.tasks import Tasks
from ryecore.mcp_server.tools import Tools, declares_tasks, missing_capabilities

__all__ = ["TaskRequests"]


class _TaskParams(RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any]


class TaskRequests:
    """Serves the requests about tasks.

    Args:
        tasks: The tasks.
        tools: The tools, whose calls may become tasks.
    """

    def __init__(self, tasks: Tasks, tools: Tools) -> None:
        self._tasks = tasks
        self._tools = tools
        self._has_list = True

    def refuse_lists(self) -> None:
        """Refuse `tasks/list` from now on."""
        self._has_list = False

    def add_to(self, server: Server[Any]) -> None:
        """Have a server serve these requests."""
        server.extensions[EXTENSION] = {}
        server.middleware.append(self._call_as_task)
        server.add_request_handler("tasks/get", _TaskParams, self._get)
        server.add_request_handler("tasks/update", _UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", _TaskParams, self._cancel)
        server.add_request_handler("tasks/result", _TaskParams, self._result)
        server.add_request_handler("tasks/list", PaginatedRequestParams, self._list)

    def with_legacy_tasks(self, known: ServerCapabilities) -> ServerCapabilities:
        """Return the capabilities that `initialize` tells of a server: with the tasks of 2025."""
        tasks = ServerTasksCapability(
            list=TasksListCapability() if self._has_list else None,
            cancel=TasksCancelCapability(),
            requests=ServerTasksRequestsCapability(
                tools=TasksToolsCapability(call=TasksCallCapability())
            ),
        )
        return known.model_copy(update={"tasks": tasks, "extensions": None})

    async def _call_as_task(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Serve a call of 2025-11-25 that asks for a task.

        Not by the handler of calls, whose results the SDK takes to be those of tools.
        """
        params = ctx.params
        if (
            ctx.method != "tools/call"
            or ctx.protocol_version != FIRST_WITH_TASKS
            or ctx.session.client_params is None  # the SDK refuses calls before the handshake
            or not isinstance(params, Mapping)
            or params.get("task") is None
        ):
            return await call_next(ctx)
        validate_client_request(ctx.method, ctx.protocol_version, params)
        call = CallToolRequestParams.model_validate(params, by_name=False)
        done = await self._tools.call_as_task(ctx, call)
        if isinstance(done, TaskState):
            return {"task": legacy_document(done)}
        return done.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: _TaskParams) -> HandlerResult:
        is_modern = _check(ctx, params, "tasks/get")
        task = await self._tasks.get(params.task_id, ctx)
        return detailed_document(task) if is_modern else legacy_document(task)

    async def _update(
        self, ctx: ServerRequestContext[Any, Any], params: _UpdateParams
    ) -> HandlerResult:
        if not _check(ctx, params, "tasks/update"):
            raise _not_found("tasks/update")
        await self._tasks.update(params.task_id, params.input_responses, ctx)
        return {}

    async def _cancel(
        self, ctx: ServerRequestContext[Any, Any], params: _TaskParams
    ) -> HandlerResult:
        if _check(ctx, params, "tasks/cancel"):
            await self._tasks.cancel(params.task_id, ctx)
            return {}
        return legacy_document(await self._tasks.cancel_and_wait(params.task_id, ctx))

    async def _result(
        self, ctx: ServerRequestContext[Any, Any], params: _TaskParams
    ) -> HandlerResult:
        _check_legacy(ctx, "tasks/result")
        task = await self._tasks.result(params.task_id, ctx)
        if task.result is None:
            raise MCPError.from_error_data(task.error or ErrorData(code=INTERNAL_ERROR, message=""))
        document = task.result.model_dump(mode="json", by_alias=True, exclude_none=True)
        meta = {**(document.get("_meta") or {}), RELATED_TASK: {"taskId": task.task_id}}
        return {**document, "_meta": meta}

    async def _list(
        self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams
    ) -> HandlerResult:
        _check_legacy(ctx, "tasks/list")
        if not self._has_list:
            raise _not_found("tasks/list")
        found, cursor = await self._tasks.list(params.cursor, ctx)
        page: dict[str, Any] = {"tasks": [legacy_document(one) for one in found]}
        return page if cursor is None else {**page, "nextCursor": cursor}


def _check(ctx: ServerRequestContext[Any, Any], params: _TaskParams, method: str) -> bool:
    """Return whether a request about a task is one of 2026.

    Raises:
        MCPError: Its version has no tasks, its client doesn't declare them, or its header names
            another task.
    """
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        _check_legacy(ctx, method)
        return False
    if not declares_tasks(ctx):
        raise missing_capabilities(method, extensions=(EXTENSION,))
    request = ctx.request
    if request is not None:
        named = decode_header_value(request.headers.get(MCP_NAME_HEADER))
        if named != params.task_id:
            raise MCPError(
                code=HEADER_MISMATCH,
                message=f"{MCP_NAME_HEADER} header does not match the request body's 'taskId'",
            )
    return True


def _check_legacy(ctx: ServerRequestContext[Any, Any], method: str) -> None:
    if ctx.protocol_version != FIRST_WITH_TASKS:
        raise _not_found(method)


def _not_found(method: str) -> MCPError:
    return MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=method)
