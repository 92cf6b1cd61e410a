"""The MCP server: its tools, each of which is one documented call on a project that is open."""

import json
import logging
import math
import os
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final, cast

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from ryecore import __version__
from ryecore.calls import answer
from ryecore.errors import InputError, RyeError
from ryecore.items.signing import find_files
from ryecore.mcp_server.approvals import Approvals, InputRequired
from ryecore.mcp_server.schemas import DESCRIPTIONS, INPUT_SCHEMAS, INSTRUCTIONS
from ryecore.policy import CallContext, capability_of
from ryecore.policy.context import EventSink
from ryecore.rye import Rye

__all__ = ["DEFAULT_GRANTS", "create_server", "report_progress", "tool_result"]

DEFAULT_GRANTS: Final = frozenset({"rye.execute.*", "rye.fetch.*"})
"""The capabilities of a client by default."""

_KEY_IN_META: Final = "ryecore/idempotency_key"
"""Where the `_meta` of an `rye_execute` holds its idempotency key, which isn't a parameter.

Source: docs/design/execute.md#parameters.
"""

_logger = logging.getLogger(__name__)


def create_server(
    projects: Iterable[Rye],
    *,
    grants: Iterable[str] = DEFAULT_GRANTS,
    approvals: Approvals | None = None,
) -> Server[Any]:
    """Make the MCP server of some projects.

    Args:
        projects: The open projects, which stay open while the server runs.
        grants: The capabilities of a client, as patterns.
        approvals: Asks the person at the client, where the projects were opened with it as
            `approve`; with it there is `rye_sign`. A client may then ask for any signature, unless
            the grants name some.

    Returns:
        The server, of the official SDK: `serve_stdio` or `serve_http` runs it.
    """
    tools = _Tools(projects, frozenset(grants), approvals)
    return Server(
        "ryecore",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=tools.list,
        on_call_tool=tools.call,
    )


class _Tools:
    """The tools of the server."""

    def __init__(
        self, projects: Iterable[Rye], grants: frozenset[str], approvals: Approvals | None
    ) -> None:
        self._projects = {os.path.realpath(rye.project): rye for rye in projects}
        self._grants = grants
        self._approvals = approvals
        self._tools = [
            Tool(name=name, description=DESCRIPTIONS[name], input_schema=dict(schema))
            for name, schema in INPUT_SCHEMAS.items()
            if name != "rye_sign" or approvals is not None
        ]
        self._names = frozenset(tool.name for tool in self._tools)

    async def list(
        self, _ctx: ServerRequestContext[Any, Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=self._tools)

    async def call(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.name not in self._names:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name}")
        arguments = {
            key: value for key, value in (params.arguments or {}).items() if value is not None
        }
        meta: Mapping[str, Any] = params.meta or {}
        if params.name == "rye_execute" and _KEY_IN_META in meta:
            arguments["idempotency_key"] = meta[_KEY_IN_META]
        try:
            return tool_result(await self._answer(ctx, params, arguments))
        except InputRequired as question:
            return question.result
        except RyeError as error:
            if isinstance(arguments.get("item_id"), str):
                error.during(arguments["item_id"])
            return tool_result(error.to_dict())
        except Exception:
            _logger.exception("A call of %.200r failed", params.name)
            message = "The server failed with an internal error; see its log."
            return tool_result({"status": "error", "error": message, "error_type": "internal"})

    async def _answer(
        self,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
        arguments: dict[str, Any],
    ) -> dict[str, object]:
        rye = self._project(arguments.pop("project_path", None))
        capabilities = self._grants
        if params.name == "rye_sign":
            capabilities |= await self._signable(rye, arguments)
        question: InputRequired | None = None
        document: dict[str, object] = {}
        async with report_progress(ctx) as sink:
            call_ctx = CallContext(capabilities=capabilities, event_sink=sink, caller="mcp")
            with self._asking(call_ctx.call_id, ctx, params):
                try:
                    document = await answer(params.name, rye, arguments, call_ctx)
                except InputRequired as raised:  # which a task group would wrap
                    question = raised
        if question is not None:
            raise question
        return document

    def _asking(
        self, call_id: str, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> AbstractContextManager[None]:
        if self._approvals is None:
            return nullcontext()
        return self._approvals.during(call_id, ctx, params)

    def _project(self, path: object) -> Rye:
        served = ", ".join(self._projects)
        if not isinstance(path, str) or not path:
            raise InputError("project_path is required.", next_step=f"Pass one of: {served}.")
        if os.path.isabs(path) and "\0" not in path:
            rye = self._projects.get(os.path.realpath(path))
            if rye is not None:
                return rye
        raise InputError(
            f"The project {path!r} is not served here.", next_step=f"Pass one of: {served}."
        )

    async def _signable(self, rye: Rye, arguments: Mapping[str, Any]) -> frozenset[str]:
        """Return the capabilities to sign what the client names; the person approves each file.

        Where the grants name signatures, only these count.
        """
        if any(grant.startswith("rye.sign.") for grant in self._grants):
            return frozenset()
        space = rye.spaces.user if arguments.get("source") == "user" else rye.spaces.project
        pattern = arguments.get("item_id")
        if not isinstance(pattern, str):
            return frozenset()
        files = await anyio.to_thread.run_sync(partial(find_files, space, pattern))
        return frozenset(
            capability_of("sign", kind, relative.rpartition(".")[0] or relative)
            for kind, _, relative in files
        )


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


def tool_result(document: Mapping[str, object]) -> CallToolResult:
    """Return the result of a tool: a document as structured content and as JSON text.

    Values that JSON has no form for, such as NaN or a lone surrogate, are replaced.
    """
    plain = cast("dict[str, object]", json.loads(_dumped(document), parse_constant=lambda _: None))
    return CallToolResult(
        content=[TextContent(type="text", text=_dumped(plain))],
        structured_content=plain,
        is_error=plain.get("status") == "error",
    )


def _dumped(document: Mapping[str, object]) -> str:
    text = json.dumps(document, ensure_ascii=False, default=str)
    return text.encode("utf-8", errors="replace").decode()
