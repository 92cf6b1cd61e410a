"""Signed tools as MCP tools of their own, and the dispatch of calls to them or to the verbs.

Source: docs/how-to/serve-mcp.md#tools-of-their-own.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

import anyio.to_thread
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    InputRequiredResult,
    ListToolsResult,
    MissingRequiredClientCapabilityErrorData,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
    ToolExecution,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ryecore.chain.model import ExecutionResult, ValidChain
from ryecore.chain.spec import ElementSpec
from ryecore.errors import InputError, RyeError
from ryecore.frozen import frozen
from ryecore.items.description import describe
from ryecore.items.refs import ItemRef
from ryecore.mcp_server.approvals import InputRequired
from ryecore.mcp_server.catalog import Catalog, Entry
from ryecore.mcp_server.content import error_result, reads_structure
from ryecore.mcp_server.outcomes import tool_result
from ryecore.mcp_server.paging import page_of
from ryecore.mcp_server.polling import polled
from ryecore.mcp_server.running import CallRunner
from ryecore.mcp_server.task_documents import (
    EXTENSION,
    FIRST_WITH_TASKS,
    TaskState,
    created_document,
)
from ryecore.mcp_server.tasks import Tasks
from ryecore.mcp_server.verbs import VERB_NAMES, Verbs
from ryecore.policy import CallContext
from ryecore.tools.items import shape_of

__all__ = ["Tools", "declares_tasks", "missing_capabilities"]

_HINTS: Final = {
    "read_only": "read_only_hint",
    "destructive": "destructive_hint",
    "idempotent": "idempotent_hint",
    "open_world": "open_world_hint",
}

_CAPABILITIES: Final = {"elicit": "elicitation", "sample": "sampling", "roots": "roots"}
"""What a tool asks, and the capability of a client that can answer."""

_EXECUTIONS: Final[Mapping[str, ToolExecution | None]] = {
    "forbidden": None,
    "optional": ToolExecution(task_support="optional"),
    "required": ToolExecution(task_support="required"),
}

_logger = logging.getLogger(__name__)


@frozen
class CreatedTask:
    """A call of 2026 that became a task."""

    state: TaskState


class Tools:
    """The tools of the server: the verbs, and the signed tools that are offered."""

    def __init__(self, catalog: Catalog, verbs: Verbs, runner: CallRunner, tasks: Tasks) -> None:
        self._catalog = catalog
        self._tasks = tasks
        self._verbs = verbs
        self._runner = runner
        self._seen: object = None
        self._declared: dict[str, tuple[Entry, Tool | None]] = {}

    async def list(
        self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """List a page of the tools, the verbs first. What doesn't verify is left out."""
        cursor = params.cursor if params is not None else None
        entries = await self._catalog.entries("tool", VERB_NAMES)
        page, more = page_of(entries, cursor, self._catalog.page_size)
        tools = [*self._verbs.tools] if cursor is None and self._catalog.has_verbs else []
        await self._forget_changed()
        for entry in page.values():
            tool = await self._tool(entry)
            if tool is not None:
                tools.append(_for_protocol(tool, ctx.protocol_version))
        return ListToolsResult(tools=tools, next_cursor=more)

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool that was listed or called before.

        The SDK asks for it before each call over HTTP, to compare headers with arguments.
        """
        tool = self._declared.get(name, (None, None))[1]
        return None if tool is None else tool.input_schema

    async def call(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> HandlerResult:
        """Call a tool."""
        async with polled(ctx, self._catalog.poll_after_s):
            done = await self._call(ctx, params)
        if isinstance(done, MCPError):
            raise done
        return created_document(done.state) if isinstance(done, CreatedTask) else done

    async def _call(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult | CreatedTask | MCPError:
        both = self._catalog.sends_both
        try:
            if params.name in self._verbs.names and self._catalog.has_verbs:
                return await self._verbs.call(ctx, params, both=both)
            entry = (await self._catalog.entries("tool", VERB_NAMES)).get(params.name)
            if entry is None:
                return MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name}")
            return await self._execute(entry, ctx, params, both=both)
        except InputRequired as question:
            return question.result
        except MCPError as error:
            return error
        except RyeError as error:
            return error_result(error)
        except Exception:
            _logger.exception("A call of %.200r failed", params.name)
            return error_result("The server failed with an internal error; see its log.")

    async def call_as_task(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | TaskState:
        """Begin a call of 2025-11-25 as a task; what is wrong with it is an error result.

        Raises:
            MCPError: There is no such tool, or it can't be called as a task.
        """
        try:
            entry = (await self._catalog.entries("tool", VERB_NAMES)).get(params.name)
            if entry is None:
                raise _no_task(params.name, "can't be called as a task")
            spec = (await entry.project.rye.trace(entry.ref)).chain.head.spec
            if spec.task_support == "forbidden":
                raise _no_task(params.name, "can't be called as a task")
            check_client(entry.ref, spec, ctx)
            return await self._tasks.create(entry, spec, ctx, params)
        except RyeError as error:
            return error_result(error)

    async def _execute(
        self,
        entry: Entry,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
        *,
        both: bool,
    ) -> CallToolResult | CreatedTask:
        spec = (await entry.project.rye.trace(entry.ref)).chain.head.spec  # as it is now
        check_client(entry.ref, spec, ctx)
        if spec.task_support != "forbidden" and declares_tasks(ctx):
            return CreatedTask(await self._tasks.create(entry, spec, ctx, params))
        _check_without_task(entry.ref, spec, ctx)

        async def work(call: CallContext) -> ExecutionResult:
            return await entry.project.rye.execute(entry.ref, params.arguments or {}, ctx=call)

        done = await self._runner.run(ctx, params, work)
        if not done.success:
            return error_result(done.error or "The tool failed.", done.data)
        schema = done.chain.head.spec.output_schema if done.chain.elements else None
        return await tool_result(
            entry.ref, done.data, schema, protocol_version=ctx.protocol_version, both=both
        )

    async def _forget_changed(self) -> None:
        seen = await anyio.to_thread.run_sync(self._catalog.fingerprint, "tool")
        if seen is None or seen != self._seen:
            self._declared.clear()
            self._seen = seen

    async def _tool(self, entry: Entry) -> Tool | None:
        """Return what a tool declares; None where it doesn't verify, or can't be offered."""
        known = self._declared.get(entry.name)
        if known is not None and known[0].ref == entry.ref:
            return known[1]
        tool: Tool | None = None
        try:
            chain = (await entry.project.rye.trace(entry.ref)).chain
            tool = tool_of(entry.name, entry.ref, chain)
        except RyeError as error:
            self._catalog.leave_out(str(entry.ref), error)
        self._declared[entry.name] = (entry, tool)
        return tool


def tool_of(name: str, ref: ItemRef, chain: ValidChain) -> Tool:
    """Return the declaration of a signed tool by its verified chain.

    Raises:
        InputError: It can't be offered to a model: an MCP tool without a pin.
    """
    shape = shape_of(ref, chain)
    head = chain.head
    title = None
    if head.item is not None:
        said = describe("tool", head.item.source.relative, head.item.content)
        title = said.title if said.title != said.name else None
    hints: dict[str, Any] = {_HINTS[hint]: value for hint, value in head.spec.hints.items()}
    schema = head.spec.output_schema
    return Tool(
        name=name,
        title=title,
        description=shape.description,
        input_schema={"type": "object", **shape.parameters},
        output_schema=None if schema is None else dict(schema),
        annotations=ToolAnnotations(**hints) if hints else None,
        execution=_EXECUTIONS[head.spec.task_support],
    )


def check_client(ref: ItemRef, spec: ElementSpec, ctx: ServerRequestContext[Any, Any]) -> None:
    """Refuse a client that can't answer what a tool has to ask.

    Raises:
        MCPError: It lacks a capability, and its protocol has an error for that.
        InputError: It lacks a capability.
    """
    lacked = lacked_capabilities(spec.must_ask, ctx.session.client_capabilities)
    if not lacked:
        return
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        raise missing_capabilities(str(ref), lacked)
    raise InputError(
        f"{ref} needs a client with {' and '.join(lacked)}.",
        next_step="Use a client that has it.",
    )


def declares_tasks(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Return whether a request is one of 2026 whose client can poll for the result."""
    offered = ctx.session.client_capabilities
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or offered is None:
        return False
    return EXTENSION in (offered.extensions or {})


def missing_capabilities(
    what: str, names: Iterable[str] = (), extensions: Iterable[str] = ()
) -> MCPError:
    """Return the error of 2026 that a client lacks capabilities."""
    required = ClientCapabilities.model_validate(
        {
            **{name: {} for name in names},
            **({"extensions": {name: {} for name in extensions}} if extensions else {}),
        }
    )
    data = MissingRequiredClientCapabilityErrorData(required_capabilities=required)
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY,
        message=f"{what} needs a client with {' and '.join([*names, *extensions])}.",
        data=data.model_dump(mode="json", by_alias=True, exclude_none=True),
    )


def _check_without_task(
    ref: ItemRef, spec: ElementSpec, ctx: ServerRequestContext[Any, Any]
) -> None:
    """Refuse a plain call of a tool that has to be called as a task."""
    if spec.task_support != "required":
        return
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        raise missing_capabilities(str(ref), extensions=(EXTENSION,))
    if ctx.protocol_version == FIRST_WITH_TASKS:
        raise _no_task(str(ref), "has to be called as a task")
    raise InputError(
        f"{ref} has to be called as a task.",
        next_step=f"Use a client of MCP {FIRST_WITH_TASKS} or newer, with tasks.",
    )


def _no_task(name: str, why: str) -> MCPError:
    return MCPError(code=METHOD_NOT_FOUND, message=f"{name} {why}.")


def lacked_capabilities(
    asked: tuple[str, ...], offered: ClientCapabilities | None
) -> tuple[str, ...]:
    """Return the capabilities that a client lacks to answer what a tool has to ask."""
    return tuple(
        name
        for kind, name in _CAPABILITIES.items()
        if kind in asked and getattr(offered, name, None) is None
    )


def _for_protocol(tool: Tool, protocol_version: str) -> Tool:
    """Return a tool as a version of the protocol takes it: before 2026, results are objects."""
    schema = tool.output_schema
    if schema is None or protocol_version in MODERN_PROTOCOL_VERSIONS:
        return tool
    if reads_structure(protocol_version) and schema.get("type") == "object":
        return tool
    return tool.model_copy(update={"output_schema": None})
