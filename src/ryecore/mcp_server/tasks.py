"""Calls of signed tools as tasks: each is a managed run, which its client asks for until it ends.

A tool without a channel runs in a process of its own, and survives this server. One that reports or
asks runs here. Both have a row among the project's threads, by which a task is found again.

Source: docs/how-to/serve-mcp.md#long-calls-as-tasks; ADR 051.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio.abc
from attrs import evolve
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolRequestParams,
    ErrorData,
    InputRequiredResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ryecore.actions.thread_access import tool_runs_of
from ryecore.chain.spec import ElementSpec
from ryecore.errors import InputError, RyeError, ThreadNotFound
from ryecore.mcp_server.asking import parse_response
from ryecore.mcp_server.catalog import Catalog, Entry, ServedProject
from ryecore.mcp_server.content import error_result
from ryecore.mcp_server.outcomes import tool_result
from ryecore.mcp_server.task_documents import TaskState, TaskStatus
from ryecore.mcp_server.task_runs import LiveTask, PendingCalls
from ryecore.policy import CallContext

if TYPE_CHECKING:
    from ryecore.actions.reports import ThreadReport
    from ryecore.state.model import ThreadRecord
    from ryecore.threads.result import StartedThread

__all__ = ["Tasks"]

_OWNER: Final = "mcp_owner"
_KEY: Final = "mcp_task"
"""The labels of a task's row: whose it is, and the part of its id that can't be guessed."""

_MAX_OPEN: Final = 100
_STOP_S: Final = 5.0
_SCANNED: Final = 200
"""How many rows one page of a list reads."""


class Tasks:
    """The tasks of clients.

    Args:
        catalog: The tools that are offered.
        grants: The capabilities of a client.
    """

    def __init__(self, catalog: Catalog, grants: frozenset[str]) -> None:
        self._catalog = catalog
        self._grants = grants
        self._live: dict[str, LiveTask] = {}
        self._beginning: dict[str, tuple[ServedProject, str]] = {}
        self._pending = PendingCalls()

    async def create(
        self,
        entry: Entry,
        spec: ElementSpec,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
    ) -> TaskState:
        """Begin a call as a task. Once this returns, the task can be asked for.

        Raises:
            InputRequired: The client has to call again, with what the tool can't do without.
            InputError: The client has too many open tasks.
            RyeError: The tool can't be run so.
        """
        live = self._pending.take(ctx, params)
        if live is None:
            key = secrets.token_urlsafe(18)
            async with self._place(entry.project, self._owner(ctx), key) as call:
                if not spec.has_channel:
                    started = await entry.project.rye.execute(
                        entry.ref, params.arguments or {}, async_=True, ctx=call
                    )
                    thread_id = cast("StartedThread", started).thread_id
                    return await self._state(entry.project, f"{key}.{thread_id}", ctx)
                live = await self._begin(entry, key, call, ctx, params)
            asked = await self._first_questions(live, spec, ctx)
        else:
            asked = live.asked()
        if asked is not None:
            raise self._pending.wait(live, asked, ctx, params)
        return await self._state(entry.project, live.task_id, ctx)

    async def get(self, task_id: str, ctx: ServerRequestContext[Any, Any]) -> TaskState:
        """Return a task as it is now.

        Raises:
            MCPError: The client has no such task.
        """
        project, report = await self._find(task_id, ctx)
        return await self._described(project, task_id, report, ctx)

    async def result(self, task_id: str, ctx: ServerRequestContext[Any, Any]) -> TaskState:
        """Wait for a task's end on behalf of a request before 2026, whose client is asked.

        Raises:
            MCPError: The client has no such task.
        """
        project, report = await self._find(task_id, ctx)
        live = self._live.get(report.thread_id)
        if live is not None:
            await live.wait_and_ask(ctx)
        else:
            await project.rye.threads.wait(report.thread_id, last=True)
        return await self.get(task_id, ctx)

    async def update(
        self, task_id: str, responses: Mapping[str, object], ctx: ServerRequestContext[Any, Any]
    ) -> None:
        """Answer what a task asks. What answers nothing that is open is ignored.

        Raises:
            MCPError: The client has no such task, or a response isn't one to its request.
        """
        _, report = await self._find(task_id, ctx)
        live = self._live.get(report.thread_id)
        if live is None:
            return
        try:
            live.questions.answer(
                {
                    key: parse_response(request, responses[key])
                    for key, request in live.questions.waiting().items()
                    if key in responses
                }
            )
        except ValidationError:
            raise MCPError(
                code=INVALID_PARAMS, message="A response isn't one to its request."
            ) from None

    async def cancel(self, task_id: str, ctx: ServerRequestContext[Any, Any]) -> None:
        """Ask a task to stop; nothing happens to one that has ended.

        Raises:
            MCPError: The client has no such task.
        """
        project, report = await self._find(task_id, ctx)
        if not report.ended:
            await project.rye.threads.cancel(report.thread_id)

    async def cancel_and_wait(self, task_id: str, ctx: ServerRequestContext[Any, Any]) -> TaskState:
        """Stop a task, and return it once it has ended.

        Raises:
            MCPError: The client has no such task, or it has ended already.
        """
        project, report = await self._find(task_id, ctx)
        if report.ended:
            raise MCPError(
                code=INVALID_PARAMS,
                message=f"Cannot cancel task: it has ended already, as {report.status}.",
            )
        threads = project.rye.threads
        await threads.cancel(report.thread_id)
        waited = await threads.wait(report.thread_id, timeout_s=_STOP_S)
        if not waited.ended:
            await threads.kill(report.thread_id)
        return await self.get(task_id, ctx)

    async def list(
        self, cursor: str | None, ctx: ServerRequestContext[Any, Any]
    ) -> tuple[list[TaskState], str | None]:
        """List a client's own tasks, newest first, and say where the next page begins.

        Raises:
            MCPError: The cursor isn't one of this server.
        """
        projects = self._catalog.projects
        first, _, after = (cursor or "0:").partition(":")
        index = int(first) if re.fullmatch("[0-9]{1,4}", first) else len(projects)
        if index >= len(projects):
            raise _bad_cursor()
        owner, found = self._owner(ctx), []
        project = projects[index]
        try:
            rows = await project.rye.threads.list(all=True, limit=_SCANNED, after=after or None)
        except ThreadNotFound:
            raise _bad_cursor() from None
        for record in rows:
            if _is_task_of(record, owner):
                task_id = f"{record.labels[_KEY]}.{record.thread_id}"
                with suppress(ThreadNotFound):  # removed since
                    found.append(await self._state(project, task_id, ctx))
        if rows.is_cut:
            return found, f"{index}:{rows.next_after}"
        return found, f"{index + 1}:" if index + 1 < len(projects) else None

    async def _begin(
        self,
        entry: Entry,
        key: str,
        call: CallContext,
        ctx: ServerRequestContext[Any, Any],
        params: CallToolRequestParams,
    ) -> LiveTask:
        """Begin a tool that reports or asks, in a task of the server."""
        live = LiveTask(ctx.session.client_capabilities)
        call = evolve(call, ask=live.ask, report_sink=live.report)
        run = tool_runs_of(entry.project.rye.threads).run

        async def work(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            def begun(thread_id: str) -> None:
                live.task_id = f"{key}.{thread_id}"
                self._live[thread_id] = live
                task_status.started()

            try:
                await live.run(partial(run, str(entry.ref), params.arguments or {}, call, begun))
            finally:
                self._live.pop(live.task_id.partition(".")[2], None)

        await ctx.lifespan_context.tasks.start(work)
        return live

    async def _first_questions(
        self, live: LiveTask, spec: ElementSpec, ctx: ServerRequestContext[Any, Any]
    ) -> InputRequiredResult | None:
        if not spec.must_ask or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return None
        try:
            return await live.first_questions()
        except BaseException:  # nobody waits for it any more
            live.end_after(0)
            raise

    @asynccontextmanager
    async def _place(
        self, project: ServedProject, owner: str, key: str
    ) -> AsyncIterator[CallContext]:
        """Hold a place among an owner's open tasks while one is begun, and yield its context.

        Those whose rows aren't there yet count too: calls of one moment would all find room.
        """
        whose = project, owner
        beginning = {one for one, other in self._beginning.items() if other == whose}
        self._beginning[key] = whose
        try:
            if await self._has_too_many(project, owner, beginning):
                raise InputError(
                    f"{_MAX_OPEN} tasks are open already.",
                    next_step="Wait until some have ended, or cancel them.",
                )
            labels = {_OWNER: owner, _KEY: key}
            yield CallContext(capabilities=self._grants, caller="mcp", labels=labels)
        finally:
            del self._beginning[key]

    async def _has_too_many(self, project: ServedProject, owner: str, beginning: set[str]) -> bool:
        tools, labels = tool_runs_of(project.rye.threads), {_OWNER: owner}
        if await tools.count_open(labels) + len(beginning) < _MAX_OPEN:
            return False
        # Some may be dead, and some that are beginning have rows already: now each is looked at.
        rows = await tools.list_open(labels)
        return len(beginning | {one.labels.get(_KEY, "") for one in rows}) >= _MAX_OPEN

    def _owner(self, ctx: ServerRequestContext[Any, Any]) -> str:
        """Return whose a request's tasks are: the client's credential, and what it may do."""
        request = ctx.request
        told = json.dumps(
            [
                "stdio" if request is None else "http",
                "" if request is None else request.headers.get("authorization", ""),
                sorted(self._grants),
            ]
        )
        return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()[:32]

    async def _find(
        self, task_id: str, ctx: ServerRequestContext[Any, Any]
    ) -> "tuple[ServedProject, ThreadReport]":
        key, _, thread_id = task_id.partition(".")
        owner = self._owner(ctx)
        for project in self._catalog.projects if key and thread_id else ():
            try:
                report = await project.rye.threads.show(thread_id)
            except ThreadNotFound:
                continue
            except RyeError as error:
                raise MCPError(code=INTERNAL_ERROR, message=error.message) from None
            known, is_whole = report.record.labels.get(_KEY, ""), report.thread_id == thread_id
            if (
                is_whole
                and _is_task_of(report.record, owner)
                and hmac.compare_digest(known.encode(), key.encode())
            ):
                return project, report
        raise MCPError(code=INVALID_PARAMS, message="Failed to retrieve task: Task not found")

    async def _state(
        self, project: ServedProject, task_id: str, ctx: ServerRequestContext[Any, Any]
    ) -> TaskState:
        report = await project.rye.threads.show(task_id.partition(".")[2])
        return await self._described(project, task_id, report, ctx)

    async def _described(
        self,
        project: ServedProject,
        task_id: str,
        report: "ThreadReport",
        ctx: ServerRequestContext[Any, Any],
    ) -> TaskState:
        first = report.record
        if first.status == "continued":
            report = await project.rye.threads.show(report.chain[-1])
        record, live = report.record, self._live.get(report.thread_id)
        requests = {} if live is None else live.questions.waiting()
        status: TaskStatus = "input_required" if requests else "working"
        age = datetime.now(UTC) - datetime.fromisoformat(first.created_at)
        state = TaskState(
            task_id, status, first.created_at, record.updated_at, age_s=age.total_seconds()
        )
        if not record.ended:
            return evolve(state, requests=requests, message="" if live is None else live.message)
        why = report.error or record.status
        if record.status in ("cancelled", "killed"):
            error = ErrorData(code=INVALID_REQUEST, message=f"The task was cancelled: {why}")
            return evolve(state, status="cancelled", message=why, error=error)
        if isinstance(report.result, Mapping) and report.result.get("died") is True:
            error = ErrorData(code=INTERNAL_ERROR, message=why)
            return evolve(state, status="failed", message=why, error=error)
        if record.status == "error":
            result = error_result(_failure(report.result, why), report.data)
        else:
            result = await tool_result(
                record.item_id,
                report.data,
                _output_schema(report.result),
                protocol_version=ctx.protocol_version,
                both=self._catalog.sends_both,
            )
        return evolve(state, status="completed", result=result)


def _is_task_of(record: "ThreadRecord", owner: str) -> bool:
    """Return whether a row is that of a task, and not of what it has started, for a client."""
    labels = record.labels
    return labels.get(_OWNER) == owner and _KEY in labels and record.parent_id is None


def _output_schema(result: object) -> Mapping[str, object] | None:
    """Return the schema of what a tool returned, by the file that ran; None where it had none."""
    schema = result.get("output_schema") if isinstance(result, Mapping) else None
    return schema if isinstance(schema, Mapping) else None


def _failure(result: object, why: str) -> str:
    step = result.get("next_step") if isinstance(result, Mapping) else None
    return f"{why}\nNext: {step}" if step else why


def _bad_cursor() -> MCPError:
    return MCPError(code=INVALID_PARAMS, message="The cursor is unknown.")
