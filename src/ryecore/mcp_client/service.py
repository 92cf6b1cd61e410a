"""A kept connector: calls of one host, all over one session with the server.

The host holds the other end of the control socket. For each call it sends a socket of its own over
it; closing that cancels the call, and closing the control socket ends the connector.
"""

import json
import socket
import sys
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from ryecore.errors import RyeError
from ryecore.mcp_client.answer import answer, open_server
from ryecore.mcp_client.guard import Guard
from ryecore.mcp_client.request import Request, read_request
from ryecore.mcp_client.wire import Kind, as_json, receive_frame, refusal_of, send_frame

if TYPE_CHECKING:
    from ryecore.mcp_client.session import ServerSession

__all__ = ["serve_calls"]

_LAST_WORDS_S: Final = 5.0


class _Service:
    """The calls that are served, and the session that serves them once it is there."""

    def __init__(self, whole: anyio.CancelScope) -> None:
        self._whole = whole
        self._is_settled = anyio.Event()
        self.is_called = anyio.Event()
        self._session: ServerSession | None = None
        self._refusal: RyeError | None = None
        self._answers_again: anyio.Event | None = None
        """Set once the server has answered a ping, or is given up; None while no ping is open."""
        self._is_asking = False
        self._calls = 0
        self._last_call = anyio.current_time()

    async def accept(self, control: socket.socket, calls: TaskGroup) -> None:
        """Take calls until the host is gone, and then end everything."""
        while True:
            await anyio.wait_readable(control)
            message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not message:
                self._whole.cancel()
                return
            for descriptor in descriptors:
                calls.start_soon(self._serve, socket.socket(fileno=descriptor))

    async def end_when_idle(self, idle_s: float) -> None:
        """Wait until nobody has called for a while, and then end everything."""
        while True:
            left_s = self._last_call + idle_s - anyio.current_time()
            if not self._calls and left_s <= 0:
                self._whole.cancel()
            await anyio.sleep(idle_s if self._calls else left_s)

    async def hold(self, request: Request, guard: Guard) -> None:
        """Have the session open for as long as the server can be used."""
        try:
            server, opened = open_server(request, guard)
            async with opened as session, anyio.create_task_group() as waiting:
                self._session = session
                self._is_settled.set()
                waiting.start_soon(self.end_when_idle, server.idle_timeout_s)
                await session.until_broken()
                self._session = None  # closing it takes a while, and new calls can't wait for that
                waiting.cancel_scope.cancel()
        except RyeError as error:
            self._refusal = error
        finally:
            self._session = None
            self._is_settled.set()

    async def _serve(self, connection: socket.socket) -> None:
        self._calls += 1
        self.is_called.set()
        try:
            with connection, suppress(OSError):  # the host may have left
                connection.setblocking(False)
                frame = await receive_frame(connection)
                if frame is not None:
                    await self._answer_unless_left(connection, frame[1])
        finally:
            self._calls -= 1
            self._last_call = anyio.current_time()

    async def _answer_unless_left(self, connection: socket.socket, payload: bytes) -> None:
        is_answered = False
        async with anyio.create_task_group() as group:

            async def cancel_when_left() -> None:
                await anyio.wait_readable(connection)  # the host says no more, so this is its end
                self._hold_back()
                group.cancel_scope.cancel()

            group.start_soon(cancel_when_left)
            with suppress(OSError):  # the host may have left, which ends this call alone
                await self._answer(connection, payload)
                is_answered = True
            group.cancel_scope.cancel()
        if self._session is not None and self._session.is_doubtful:
            self._hold_back()
        how = "timed out" if is_answered else "was cancelled"
        await self._make_sure(f"stopped answering after a call {how}")

    def _hold_back(self) -> None:
        """Hold back calls that have not been sent, until it is known whether the server answers."""
        if self._answers_again is None:
            self._answers_again = anyio.Event()

    async def _make_sure(self, problem: str) -> None:
        """While calls are held back, ping the server, and give it up where it doesn't answer."""
        session, again = self._session, self._answers_again
        if again is None or self._is_asking:
            return
        self._is_asking = True
        try:
            if session is not None:
                session.is_doubtful = False
                if not await session.still_answers():
                    self._session = None
                    session.give_up(problem)
        finally:
            self._is_asking, self._answers_again = False, None
            again.set()

    async def _answer(self, connection: socket.socket, payload: bytes) -> None:
        await self._is_settled.wait()
        while self._answers_again is not None:
            await self._answers_again.wait()
        session = self._session
        if session is None:
            if self._refusal is not None:
                await send_frame(connection, b"R", as_json(refusal_of(self._refusal)))
            return

        async def begin() -> None:
            await send_frame(connection, b"B")

        call = json.loads(payload)
        arguments = call["args"]
        try:
            request = _read_call(tuple(arguments[arguments.index(sys.argv[0]) + 1 :]))
            document = await answer(request, session, call["params"], begin)
        except RyeError as error:
            # Where the server has gone meanwhile, another one may take the call.
            kind: Kind = b"A" if session.is_broken else b"R"
            await send_frame(connection, kind, as_json(refusal_of(error)))
        else:
            await send_frame(connection, b"D", as_json(document))


@lru_cache(maxsize=1024)
def _read_call(arguments: tuple[str, ...]) -> Request:
    return read_request(arguments)


async def serve_calls(request: Request, guard: Guard) -> None:
    """Serve calls until the host is gone, nobody calls, or the server breaks off."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control,
        anyio.CancelScope() as whole,
    ):
        control.connect(f"\0{request.keep}")
        control.setblocking(False)
        service = _Service(whole)
        async with anyio.create_task_group() as accepting:
            async with anyio.create_task_group() as calls:
                accepting.start_soon(service.accept, control, calls)
                await service.hold(request, guard)
                # Those who still wait are told why, and who is about to call first; not for long.
                whole.deadline = anyio.current_time() + _LAST_WORDS_S
                await service.is_called.wait()
            accepting.cancel_scope.cancel()
