"""The calls of a kept connector, and the session with the server that serves them.

A session that breaks off ends the connector; its host starts another one for the next call. But
while calls wait for tasks, a server elsewhere may only be started again: then another session is
opened here, in which the tasks are followed.

Source: docs/design/runtimes.md#mcp; ADR 056.
"""

import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup

from ryecore.errors import McpError, RyeError
from ryecore.mcp_client.followed import FollowedTask, ReconnectBackoff, TaskInterrupted
from ryecore.mcp_client.host_line import HostLine, Lines
from ryecore.mcp_client.servers import Server
from ryecore.mcp_client.wire import Kind, encode_json, error_document, receive_frame

if TYPE_CHECKING:
    from ryecore.mcp_client.session import ServerSession

__all__ = ["ConnectorService"]

_REFUSING_S: Final = 5.0

_Open = Callable[[], tuple[Server, "AbstractAsyncContextManager[ServerSession]"]]
_Execute = Callable[
    [Mapping[str, Any], "ServerSession", Callable[[], Awaitable[None]], HostLine],
    Awaitable[Mapping[str, object]],
]


class ConnectorService:
    """Serves the calls of a kept connector.

    Args:
        open_session: Reads the server's item, and prepares a session.
    """

    def __init__(self, open_session: _Open) -> None:
        self._open_session = open_session
        self._scope = anyio.CancelScope()
        self._is_settled = anyio.Event()
        """Set while calls need not wait: a session is open, or none can be opened."""
        self._changed = anyio.Event()
        """Set, and replaced, with each new session, and with the end of the last one."""
        self._is_over = False
        self.lines = Lines()
        self._session: ServerSession | None = None
        self._refusal: RyeError | None = None
        self._tasks: frozenset[FollowedTask] = frozenset()
        """The tasks of sessions that have broken off."""
        self._ping_done: anyio.Event | None = None
        """Set once the server has answered a ping or was given up; None while no ping is open."""
        self._is_pinging = False
        self._calls = 0
        self._last_call = anyio.current_time()

    async def serve(self, address: str, execute: _Execute) -> None:
        """Serve calls until the host is gone, no call comes, or the server breaks off.

        Args:
            address: The name of the host's control socket.
            execute: Executes a call. It gets the call's frame, the session, what to await right
                before the call is sent, and the line to the call's host.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control, self._scope:
            control.connect(address)
            control.setblocking(False)
            async with anyio.create_task_group() as accepting:
                async with anyio.create_task_group() as calls:
                    accepting.start_soon(self._accept, control, calls, execute)
                    await self._keep_sessions()
                    # Waiting calls, and a first one on its way, still get the reason; not for long.
                    self._scope.deadline = anyio.current_time() + _REFUSING_S
                    await self.lines.is_called.wait()
                accepting.cancel_scope.cancel()

    async def _accept(self, control: socket.socket, calls: TaskGroup, execute: _Execute) -> None:
        """Accept calls until the host is gone, then end everything."""
        while True:
            await anyio.wait_readable(control)
            message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not message:
                self._scope.cancel()
                return
            for descriptor in descriptors:
                calls.start_soon(self._serve, socket.socket(fileno=descriptor), execute)

    async def _end_when_idle(self, idle_s: float) -> None:
        """Wait until there was no call for a while, then end everything."""
        while True:
            left_s = self._last_call + idle_s - anyio.current_time()
            if not self._calls and left_s <= 0:
                self._scope.cancel()
            await anyio.sleep(idle_s if self._calls else left_s)

    # Sessions

    async def _keep_sessions(self) -> None:
        """Keep a session open as long as the server can be used, or a task can be followed."""
        backoff = ReconnectBackoff()
        try:
            while True:
                try:
                    await self._keep_session(backoff)
                except RyeError as error:
                    self._refusal = error
                    if not (isinstance(error, McpError) and error.is_unavailable):
                        return
                    self._is_settled.set()
                if not self._has_tasks or not await backoff.wait():
                    return
                self._hold_calls()
        finally:
            self._session, self._is_over = None, True
            self._is_settled.set()
            self._notify()

    async def _keep_session(self, backoff: ReconnectBackoff) -> None:
        server, opened = self._open_session()
        session: ServerSession | None = None
        try:
            async with opened as session, anyio.create_task_group() as waiting:
                self._session, self._refusal = session, None
                self._is_settled.set()
                self._notify()
                waiting.start_soon(self._end_when_idle, server.idle_timeout_s)
                with backoff.session():
                    await session.until_broken()
                self._drop(session)
                waiting.cancel_scope.cancel()
        except RyeError:
            if session is not None:
                self._drop(session)
            if not self._has_tasks or session is None:
                raise

    def _drop(self, session: "ServerSession") -> None:
        """Use a session no longer, and keep its tasks; while there are any, new calls wait."""
        self._session = None
        self._tasks |= session.open_tasks
        if self._has_tasks:
            self._hold_calls()

    def _hold_calls(self) -> None:
        if self._is_settled.is_set():  # else some wait for this event already
            self._is_settled = anyio.Event()

    @property
    def _has_tasks(self) -> bool:
        self._tasks = frozenset(one for one in self._tasks if one.is_open)
        return bool(self._tasks)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _resume(self, task: FollowedTask, line: HostLine | None) -> Mapping[str, object]:
        """Follow a task in further sessions until it has ended, or no session can be opened."""
        with task:
            while not self._is_over:
                if self._session is None or self._session.is_broken:
                    await self._changed.wait()
                    continue
                with suppress(TaskInterrupted):
                    return await self._session.resume(task, line)
        error = self._refusal
        return task.lost(error if isinstance(error, McpError) else None)

    # Calls

    async def _serve(self, connection: socket.socket, execute: _Execute) -> None:
        self._calls += 1
        try:
            with connection, suppress(OSError):  # the host may have left
                connection.setblocking(False)
                frame = await receive_frame(connection)
                if frame is not None:
                    call = json.loads(frame[1])
                    line = HostLine(connection, call.get("can") or {})
                    self.lines.add(line)
                    try:
                        await self._serve_unless_left(
                            line, partial(self._execute, line, call, execute)
                        )
                    finally:
                        self.lines.remove(line)
        finally:
            self.lines.is_called.set()
            self._calls -= 1
            self._last_call = anyio.current_time()

    async def _serve_unless_left(self, line: HostLine, work: Callable[[], Awaitable[None]]) -> None:
        is_answered = False
        async with anyio.create_task_group() as group:

            async def listen_until_host_left() -> None:
                await line.listen()
                self._pause_calls()
                group.cancel_scope.cancel()

            group.start_soon(listen_until_host_left)
            with suppress(OSError):  # the host may have left, which ends this call alone
                await work()
                is_answered = True
            group.cancel_scope.cancel()
        if self._session is not None and self._session.may_hang:
            self._pause_calls()
        how = "timed out" if is_answered else "was cancelled"
        await self._ping_if_paused(f"stopped answering after a call {how}")

    def _pause_calls(self) -> None:
        """Pause calls that have not been sent until it is known whether the server answers."""
        if self._ping_done is None:
            self._ping_done = anyio.Event()

    async def _ping_if_paused(self, problem: str) -> None:
        """While calls are paused, ping the server, and give it up where it doesn't answer."""
        session, again = self._session, self._ping_done
        if again is None or self._is_pinging:
            return
        self._is_pinging = True
        try:
            if session is not None:
                session.may_hang = False
                if not await session.answers_ping():
                    self._drop(session)
                    session.give_up(problem)
        finally:
            self._is_pinging, self._ping_done = False, None
            again.set()

    async def _execute(self, line: HostLine, call: Mapping[str, Any], execute: _Execute) -> None:
        async def begin() -> None:
            await line.send(b"B")

        answer = await self._answer(lambda session: execute(call, session, begin, line), line)
        if answer is not None:
            await line.send(answer[0], encode_json(answer[1]))

    async def serve_one(
        self, execute: "Callable[[ServerSession], Awaitable[Mapping[str, object]]]"
    ) -> Mapping[str, object] | None:
        """Serve one call that has no host, and return its document.

        None where the server broke off before the call was sent.
        """
        self._calls += 1
        answer: tuple[Kind, Mapping[str, object]] | None = None
        async with anyio.create_task_group() as keeping:
            keeping.start_soon(self._keep_sessions)
            answer = await self._answer(execute, None)
            keeping.cancel_scope.cancel()
        return None if answer is None else answer[1]

    async def _answer(
        self,
        execute: "Callable[[ServerSession], Awaitable[Mapping[str, object]]]",
        line: HostLine | None,
    ) -> tuple[Kind, Mapping[str, object]] | None:
        """Return the last frame of a call; None where another connector has to take it."""
        while True:
            await self._is_settled.wait()
            while self._ping_done is not None:
                await self._ping_done.wait()
            session = self._session
            if session is None:
                return None if self._refusal is None else (b"R", error_document(self._refusal))
            try:
                return b"D", await execute(session)
            except TaskInterrupted as left:
                return b"D", await self._resume(left.task, line)
            except RyeError as error:
                if not (session.is_broken and (self._has_tasks or session.open_tasks)):
                    # Where the server broke off meanwhile, another one may take the call.
                    return b"A" if session.is_broken else b"R", error_document(error)
                # It has not run, and the session in which the tasks are followed may take it.
