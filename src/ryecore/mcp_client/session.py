"""A session with an MCP server: its tools, checked against their pins, and their calls.

Source: decision 82.
"""

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
from mcp.client.session import ClientSession, IncomingMessage
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types import (
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    CallToolResult,
    CreateTaskResult,
    Implementation,
    InputRequiredResult,
    InputResponses,
    PaginatedRequestParams,
    ProgressNotification,
    Result,
    TextContent,
    Tool,
    ToolListChangedNotification,
)

from ryecore import __version__
from ryecore.display.sanitize import shorten
from ryecore.errors import McpError, RyeError
from ryecore.mcp_client.exchange import (
    MALFORMED_RESPONSE,
    agree_on_version,
    await_response,
    reason_of,
)
from ryecore.mcp_client.followed import FollowedTask, TaskInterrupted
from ryecore.mcp_client.output_check import check_output
from ryecore.mcp_client.peer import Output, Peer, PendingRequest
from ryecore.mcp_client.pins import PinnedTool, ToolDeclaration, check_pin
from ryecore.mcp_client.questions import Questions, answer_questions
from ryecore.mcp_client.stdio import connect_process
from ryecore.mcp_client.tasks import CREATED_TASK, EXTENSION, CreatedTask, TaskCalls, TaskLost

if TYPE_CHECKING:
    from subprocess import Popen

    from ryecore.mcp_client.host_line import HostLine, Lines
    from ryecore.mcp_client.servers import HttpServer, Server
    from ryecore.mcp_client.task_files import OpenTasks
    from ryecore.mcp_client.tokens import TokenFile

__all__ = ["ServerSession", "open_session"]

_MAX_PAGES: Final = 100
_MAX_TOOLS: Final = 10_000
_PING_TIMEOUT_S: Final = 2.0
_TTL_MARGIN_MS: Final = 60_000
_UNKNOWN_EFFECT: Final = "the call was sent, and may have had its effect"


class _Client(ClientSession):
    """The SDK's session without its own check of results, which can't be interrupted."""

    async def validate_tool_result(self, name: str, result: CallToolResult) -> None:
        """Leave the check to `check_output`."""

    async def call_as_task(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout_s: float | None,
        progress_token: str | None,
    ) -> CallToolResult | CreateTaskResult:
        """Call a tool of a server of 2025-11-25 as a task.

        Not by `call_tool`, which takes the result to be the tool's.
        """
        meta = {} if progress_token is None else {"_meta": {"progressToken": progress_token}}
        # For as long as the call may take, and some time in which the result is got.
        ttl = {} if timeout_s is None else {"ttl": math.ceil(1000 * timeout_s) + _TTL_MARGIN_MS}
        params = {"name": name, "arguments": dict(arguments), "task": ttl, **meta}
        message: dict[str, Any] = {"method": "tools/call", "params": params}
        options: CallOptions = {} if timeout_s is None else {"timeout": timeout_s}
        self._stamp(message, options)
        raw = await self._dispatcher.send_raw_request("tools/call", message["params"], options)
        if "task" in raw:
            return CreateTaskResult.model_validate(raw, by_name=False)
        return CallToolResult.model_validate(raw, by_name=False)


class ServerSession:
    """A session with a server, once both have agreed on a version.

    `timeout_s` bounds a call; None leaves it to the caller. `may_hang` is set when a call took too
    long.
    """

    def __init__(
        self,
        client: "_Client",
        peer: Peer,
        timeout_s: float | None,
        questions: Questions,
        tasks: TaskCalls,
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._questions = questions
        self._peer = peer
        self._timeout_s = timeout_s
        self._known: dict[str, Tool] | None = None
        self._lock = anyio.Lock()
        self.may_hang = False

    def forget_tools(self) -> None:
        """Forget the tools, so that they are listed again before the next call."""
        self._known = None

    async def tools(self) -> Mapping[str, Tool]:
        """Return the server's tools by name, as it lists them now.

        A server that announces changes is asked again after an announcement; any other one each
        time.
        """
        async with self._lock:
            if self._known is not None and self._announces_changes:
                return self._known
            try:
                self._known = found = await await_response(self._peer, self._list_tools)
            except MCPError as error:
                raise self._peer.error(f"doesn't list its tools: {error.error.message}") from None
            except MALFORMED_RESPONSE as problem:
                raise self._peer.error(f"answered badly: {reason_of(problem)}") from None
            return found

    @property
    def _announces_changes(self) -> bool:
        known = self._client.server_capabilities
        return bool(
            self._client.initialize_result is not None
            and known is not None
            and known.tools is not None
            and known.tools.list_changed
        )

    async def _list_tools(self) -> dict[str, Tool]:
        found: dict[str, Tool] = {}
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self._client.list_tools(
                params=PaginatedRequestParams(cursor=cursor) if cursor is not None else None
            )
            found |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                return found
            if len(found) > _MAX_TOOLS:
                break
        raise self._peer.error("lists tools without an end")

    async def call(
        self,
        tool: PinnedTool,
        arguments: Mapping[str, Any],
        begin: Callable[[], Awaitable[None]],
        line: "HostLine | None" = None,
    ) -> dict[str, object]:
        """Call a tool whose declaration is the pinned one, and return the tool's document.

        It has `success`, `content`, and `structured_content` or `error` where there is one. `begin`
        is awaited right before the call is sent; from then on it may have effects. `line` leads
        to the call's host.

        Raises:
            McpError: The call didn't run.
            TaskInterrupted: It became a task, and this session has broken off; see `resume`.
        """
        listed = await self.tools()
        check_pin(tool, {name: declaration_of(one) for name, one in listed.items()})
        offered = listed[tool.declaration.name]
        await begin()
        followed: list[FollowedTask] = []

        async def work(options: Mapping[str, Any]) -> CallToolResult:
            return await self._call(offered, arguments, options, followed)

        with self._peer.pending.track() as request:
            return await self._document_of(work, offered.output_schema, request, line, followed)

    async def resume(self, task: FollowedTask, line: "HostLine | None" = None) -> dict[str, object]:
        """Return the document of a call whose task was followed in a session that has broken off.

        Raises:
            TaskInterrupted: This session has broken off, too.
        """

        async def work(_: Mapping[str, Any]) -> CallToolResult:
            return await self._tasks.finish(task)

        sent = PendingRequest(is_sent=True)
        return await self._document_of(work, task.output_schema, sent, line, [task])

    async def _document_of(
        self,
        work: Callable[[Mapping[str, Any]], Awaitable[CallToolResult]],
        output_schema: Mapping[str, Any] | None,
        request: PendingRequest,
        line: "HostLine | None",
        followed: list[FollowedTask],
    ) -> dict[str, object]:
        """Return the document of the result of `work`, which adds a task to `followed`, if any."""
        with self._peer.collecting() as output:
            try:
                with self._questions.of(line) as options:
                    result = await await_response(self._peer, lambda: work(options))
                await check_output(output_schema, result)
            except McpError:
                if not request.may_have_run:
                    raise
                if followed and followed[0].is_open:
                    raise TaskInterrupted(followed[0]) from None
                spoilt = self._peer.error(f"{self._peer.problem}; {_UNKNOWN_EFFECT}")
                return _broken_off(str(spoilt))
            except MCPError as error:
                return self._failed(error, request, output)
            except MALFORMED_RESPONSE as problem:
                spoilt = self._peer.error(f"answered badly: {reason_of(problem)}")
                return _broken_off(str(spoilt))
            except BaseException:  # nobody waits any more
                for task in followed:
                    task.close()
                raise
            return _document(result, output)

    async def _call(
        self,
        tool: Tool,
        arguments: Mapping[str, Any],
        options: Mapping[str, Any],
        followed: list[FollowedTask],
    ) -> CallToolResult:
        name = tool.name

        async def follow(created: CreatedTask | CreateTaskResult) -> CallToolResult:
            followed.append(self._tasks.begin(created, tool, self._timeout_s))
            return await self._tasks.finish(followed[0])

        if self._tasks.must_ask_for(tool):
            with self._questions.followed(options) as token:
                first = await self._client.call_as_task(name, arguments, self._timeout_s, token)
                return first if isinstance(first, CallToolResult) else await follow(first)

        async def send(responses: InputResponses | None, state: str | None) -> Result:
            answer: Any = await self._client.call_tool(
                name, dict(arguments), self._timeout_s, input_responses=responses,
                request_state=state, allow_input_required=True, allow_claimed=True, **options,
            )  # fmt: skip
            taken: Result = answer  # so allow_input_required has it
            return taken

        result = await send(None, None)
        if isinstance(result, InputRequiredResult):
            result = await answer_questions(self._client, result, send)
        if isinstance(result, CreatedTask):
            return await follow(result)
        return cast("CallToolResult", result)

    def _failed(
        self, error: MCPError, request: PendingRequest, output: Output
    ) -> dict[str, object]:
        """Return the document of a call that was answered with an error.

        An McpError means that the server refused it without reading it.
        """
        if request.status:
            raise self._peer.error(f"refused the call with HTTP {request.status}")
        message = shorten(self._peer.without_secrets(error.error.message))
        self.may_hang |= error.error.code == REQUEST_TIMEOUT
        if error.error.code == REQUEST_TIMEOUT or isinstance(error, TaskLost):
            return _broken_off(f"{message}: {_UNKNOWN_EFFECT}.") | _stderr(output)
        return {"success": False, "error": message} | _stderr(output)

    async def answers_ping(self) -> bool:
        """Return whether the server answers a ping within 2 s."""
        with anyio.move_on_after(_PING_TIMEOUT_S):
            try:
                await self._client.send_ping()
            except MCPError as error:
                return error.error.code == METHOD_NOT_FOUND  # an answer, too
            except MALFORMED_RESPONSE:
                pass  # an answer it is
            return True
        return False

    @property
    def open_tasks(self) -> frozenset[FollowedTask]:
        """The tasks that calls wait for, and that outlive this session."""
        return self._tasks.open

    def give_up(self, problem: str) -> None:
        """Mark the server as unusable."""
        self._peer.fail(problem)

    @property
    def is_broken(self) -> bool:
        """Whether the server can't be used any more."""
        return self._peer.broken.is_set()

    async def until_broken(self) -> None:
        """Wait until the server can't be used any more."""
        await self._peer.broken.wait()


def declaration_of(tool: Tool) -> ToolDeclaration:
    """Return the part of a tool's declaration that a pin covers."""
    return ToolDeclaration(tool.name, tool.description or "", tool.input_schema)


def _broken_off(error: str) -> dict[str, object]:
    """Return the document of a call that the server may have executed."""
    return {"success": False, "error": error, "effect_unknown": True}


def _stderr(output: Output) -> dict[str, object]:
    """Return what a server wrote to its standard error during a call that failed, if anything."""
    text = output.last_lines()
    return {"stderr": text} if text else {}


def _document(result: CallToolResult, output: Output) -> dict[str, object]:
    content = [part.model_dump(mode="json", by_alias=True, exclude_none=True)
               for part in result.content]  # fmt: skip
    document: dict[str, object] = {"success": not result.is_error}
    if result.is_error:
        texts = [part.text for part in result.content if isinstance(part, TextContent)]
        document["error"] = (
            shorten("\n".join(texts)) or "The tool reported a failure without a reason."
        )
        document |= _stderr(output)
    if result.structured_content is not None:
        document["structured_content"] = result.structured_content
    return _as_json({**document, "content": content})


def _as_json(document: dict[str, object]) -> dict[str, object]:
    """Return the document with null for values that JSON has no form for, such as NaN."""
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        plain: dict[str, object] = json.loads(json.dumps(document), parse_constant=lambda _: None)
        return plain
    return document


@asynccontextmanager
async def open_session(
    server: "Server",
    peer: Peer,
    process: "Popen[bytes] | None",
    *,
    leads_group: bool = False,
    file: "TokenFile | None" = None,
    lines: "Lines | None" = None,
    may_ask: Collection[str] = (),
    open_tasks: "OpenTasks | None" = None,
) -> AsyncIterator[ServerSession]:
    """Connect to a server, and agree with it on a version.

    Args:
        server: The server.
        peer: The server, as it answers.
        process: Its process, where it was started here.
        leads_group: Whether this process leads a process group of its own.
        file: Where the tokens of a server elsewhere are kept.
        lines: The calls whose hosts can be asked.
        may_ask: The kinds of questions that the server's item declares.
        open_tasks: Where the tasks of a server elsewhere are kept that calls wait for.
    """
    starting = anyio.CancelScope(deadline=anyio.current_time() + server.startup_timeout_s)
    try:
        with starting:
            if process is not None:
                streams: AbstractAsyncContextManager[Any] = connect_process(
                    process, peer, leads_group=leads_group
                )
            else:
                elsewhere = cast("HttpServer", server)
                streams = _connection(elsewhere, peer, file, lines, starting)
            async with streams as (read, write):
                session: ServerSession | None = None

                async def on_message(message: IncomingMessage) -> None:
                    if isinstance(message, ToolListChangedNotification) and session is not None:
                        session.forget_tools()
                    elif isinstance(message, ProgressNotification):
                        await questions.note_progress(message.params)

                questions = Questions(lines, may_ask)
                me = Implementation(name="ryecore", version=__version__)
                async with _Client(
                    read, write, message_handler=on_message, client_info=me,
                    extensions={EXTENSION: {}}, result_claims={EXTENSION: [CREATED_TASK]},
                    **await questions.callbacks(),
                ) as client:  # fmt: skip
                    tasks = TaskCalls(client, peer, questions, open_tasks)
                    session = ServerSession(client, peer, server.timeout_s, questions, tasks)
                    await agree_on_version(client, peer, newest_first=server.transport == "http")
                    await tasks.settle_left()
                    starting.deadline = math.inf
                    yield session
        if starting.cancelled_caught:
            raise peer.error(
                f"was not ready within {server.startup_timeout_s:g} s",
                "Raise config.startup_timeout if it needs longer.",
            )
    except BaseException as problem:
        found = _error_in(problem, peer)
        if found is None or found is problem:
            raise
        raise found from None


def _connection(
    server: "HttpServer",
    peer: Peer,
    file: "TokenFile | None",
    lines: "Lines | None",
    starting: anyio.CancelScope,
) -> AbstractAsyncContextManager[Any]:
    from ryecore.mcp_client.http import open_connection  # noqa: PLC0415 - imports an HTTP client

    if file is None or any(name.lower() == "authorization" for name in server.headers):
        return open_connection(server, peer)
    from ryecore.mcp_client.oauth import Person, make_auth  # noqa: PLC0415 - as above

    def on_pause() -> None:  # a person takes their time
        starting.deadline = math.inf

    return open_connection(
        server, peer, make_auth(server, peer, file, Person(peer, lines, on_pause))
    )


def _error_in(problem: BaseException, peer: Peer) -> RyeError | None:
    """Return the error for an exception of a task group; None for a cancellation."""
    leaves = list(_leaves(problem))
    for leaf in leaves:
        if isinstance(leaf, RyeError):
            return leaf
    for leaf in leaves:
        if isinstance(leaf, Exception):
            reason = leaf.error.message if isinstance(leaf, MCPError) else str(leaf)
            return peer.error(peer.problem or f"can't be used: {reason or type(leaf).__name__}")
    return None


def _leaves(problem: BaseException) -> Iterator[BaseException]:
    if isinstance(problem, BaseExceptionGroup):
        for one in problem.exceptions:
            yield from _leaves(one)
    else:
        yield problem
