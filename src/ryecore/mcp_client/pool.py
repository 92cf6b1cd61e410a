"""The pool of kept connectors, in the host.

Each connector process serves one server for one project. It starts at the first call, serves many
calls at once, and ends when the Rye closes, when no call came for a while, when its place is needed
for another one, or with its host, however that ends.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from attrs import define, field

from ryecore.errors import McpError, RyeError, SpawnFailed
from ryecore.lillux.processes import ProcessResult, ProcessSpec, RunningProcess
from ryecore.mcp_client.answers import Answers
from ryecore.mcp_client.wire import START_STEP, load_error, receive_frame, send_frame

if TYPE_CHECKING:
    from ryecore.policy.authorization import Authorize
    from ryecore.policy.reports import ToolCaller

__all__ = ["ConnectorPool"]

_MAX_CONNECTORS: Final = 8
_MAX_CALLS: Final = 100
"""How many calls one connector serves at once; each takes a descriptor in both processes."""
_GRACE_S: Final = 3.0
_CREDENTIALS: Final = struct.Struct("3i")


_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


@define(eq=False)
class _Connector:
    """A running connector."""

    process: RunningProcess
    control: socket.socket
    pid: int
    calls: int = 0
    slots: anyio.Semaphore = field(factory=lambda: anyio.Semaphore(_MAX_CALLS))
    _sending: anyio.Lock = field(factory=anyio.Lock)

    async def hand_over(self, connection: socket.socket) -> None:
        """Send the socket of a call to the connector."""
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self.control, [b"c"], [connection.fileno()])
                except BlockingIOError:
                    await anyio.wait_writable(self.control)
                else:
                    return

    def retire(self) -> None:
        """Have the connector clean up and end."""
        with suppress(OSError):  # it is gone
            self.control.shutdown(socket.SHUT_RDWR)  # a forked child may hold the socket, too
        self.control.close()


async def _wait_for_end(process: RunningProcess, grace_s: float = _GRACE_S) -> ProcessResult | None:
    """Wait for a process's end, and end it after the grace; None if it was never started."""
    try:
        with anyio.move_on_after(grace_s):
            return await process.wait()
        process.end()
        return await process.wait()
    except SpawnFailed:
        return None


class ConnectorPool:
    """The connectors of one Rye, of which the least recently used ends first."""

    def __init__(
        self, max_connectors: int = _MAX_CONNECTORS, authorize: "Authorize | None" = None
    ) -> None:
        self._authorize = authorize
        self._max_connectors = max_connectors
        self._connectors: dict[_Key, _Connector] = {}
        self._starting: dict[_Key, anyio.Lock] = {}
        self._retired: list[_Connector] = []
        self._closing = anyio.Lock()
        self._pid = os.getpid()

    @property
    def pids(self) -> tuple[int, ...]:
        """The ids of the connectors' processes, the last used one at the end."""
        return tuple(connector.pid for connector in self._connectors.values())

    async def run(
        self, spec: ProcessSpec, key: str, caller: "ToolCaller | None" = None
    ) -> ProcessResult:
        """Make a call in its connector; one that has gone meanwhile is started again, once.

        `key` tells apart connectors of the same program: the path of the server's file. `caller`
        gets what the server reports and asks meanwhile. The outcome is that of a process of its
        own. A `RyeError` means that nothing ran.
        """
        started = time.perf_counter()
        self._forget_if_forked()
        with anyio.move_on_after(spec.timeout_s):
            for is_last in (False, True):
                connector = await self._connector(spec, key)
                outcome = await self._call(connector, spec, caller)
                if isinstance(outcome, bytes):
                    return _result("exited", outcome, started, connector.pid)
                self._forget(connector)
                if is_last:
                    raise outcome or await self._why_gone(connector, key)
        return _result("timed_out", b"", started, 0)

    async def aclose(self) -> None:
        """End all connectors, and wait until none is left."""
        self._forget_if_forked()
        for connector in self._connectors.values():
            self._retire(connector)
        self._connectors.clear()
        async with self._closing, anyio.create_task_group() as group:
            for connector in self._retired:
                group.start_soon(_wait_for_end, connector.process)
        self._retired.clear()

    async def _connector(self, spec: ProcessSpec, key: str) -> _Connector:
        full_key = (key, spec.command, spec.cwd, tuple(sorted(spec.env.items())))
        lock = self._starting.setdefault(full_key, anyio.Lock())
        try:
            async with lock:
                found = self._connectors.pop(full_key, None)
                if found is not None and found.process.result() is None:
                    self._connectors[full_key] = found  # at the end: it was used last
                    return found
                if found is not None:
                    found.retire()
                self._make_room(1)
                self._connectors[full_key] = started = await _start(spec)
                return started
        finally:
            if not lock.statistics().locked:
                self._starting.pop(full_key, None)

    def _make_room(self, wanted: int = 0) -> None:
        self._retired = [one for one in self._retired if one.process.result() is None]
        idle = [key for key, one in self._connectors.items() if not one.calls]
        for key in idle[: max(0, len(self._connectors) + wanted - self._max_connectors)]:
            self._retire(self._connectors.pop(key))

    def _retire(self, connector: _Connector) -> None:
        connector.retire()
        self._retired.append(connector)

    async def _call(
        self, connector: _Connector, spec: ProcessSpec, caller: "ToolCaller | None"
    ) -> bytes | RyeError | None:
        """Return a call's document; an error or None if the server was gone before it began."""
        connector.calls += 1
        try:
            async with connector.slots:
                return await self._send_call(connector, spec, caller)
        except OSError:
            return None
        finally:
            connector.calls -= 1
            self._make_room()

    async def _send_call(
        self, connector: _Connector, spec: ProcessSpec, caller: "ToolCaller | None"
    ) -> bytes | RyeError | None:
        try:
            ours, theirs = socket.socketpair()
        except OSError as problem:
            raise _cannot_call(problem) from problem
        with ours:
            with theirs:
                ours.setblocking(False)
                await connector.hand_over(theirs)
            answers = Answers(ours, self._authorize, caller)
            params = json.loads(spec.stdin or b"{}")
            call = {"args": spec.args, "params": params, "can": answers.can}
            await send_frame(ours, b"C", json.dumps(call).encode())
            return await answers.serve(partial(self._response, ours, spec, answers.report))

    async def _response(
        self,
        connection: socket.socket,
        spec: ProcessSpec,
        report: Callable[[bytes], None],
        ask: Callable[[bytes], None],
    ) -> bytes | RyeError | None:
        has_begun = False
        while True:
            frame = await receive_frame(connection)  # the connector bounds its messages
            match frame:
                case None if has_begun:
                    return _failure(
                        "The MCP server's connector ended while the call ran.", effect_unknown=True
                    )
                case None:
                    return None
                case (b"B", _):
                    has_begun = True
                case (b"Q", question):
                    ask(question)
                case (b"N", said):
                    report(said)
                case (b"D", document) if len(document) > spec.max_output_bytes:
                    return _too_large(len(document), spec)
                case (b"D", document):
                    return document
                case (b"A", why):
                    return load_error(why)
                case (_, refusal):
                    raise load_error(refusal)

    def _forget(self, connector: _Connector) -> None:
        for key, one in list(self._connectors.items()):
            if one is connector:
                del self._connectors[key]
                self._retire(connector)

    async def _why_gone(self, connector: _Connector, key: str) -> McpError:
        done = await _wait_for_end(connector.process)
        said = done.stderr.decode(errors="replace").strip()[-2000:] if done is not None else ""
        return McpError(
            "The MCP server's connector ended before it took the call."
            + (f" It said: {said}" if said else ""),
            next_step=START_STEP,
            server=Path(key).stem,
        )

    def _forget_if_forked(self) -> None:
        """Forget the connectors in a forked child, which has the sockets but not the processes."""
        if os.getpid() == self._pid:
            return
        for connector in (*self._connectors.values(), *self._retired):
            connector.control.close()
        self._connectors, self._retired, self._starting = {}, [], {}
        self._pid = os.getpid()


async def _start(spec: ProcessSpec) -> _Connector:
    """Start a connector, and wait until it has connected to the control socket.

    The socket has an abstract name, so that nothing stays on disk when a process is killed.
    """
    name = f"rye-{os.urandom(16).hex()}"
    process: RunningProcess | None = None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(f"\0{name}")
            listener.listen()
            listener.setblocking(False)
            process = RunningProcess(
                ProcessSpec(
                    spec.command,
                    (*spec.args, "--keep", name),
                    cwd=spec.cwd,
                    env=spec.env,
                    timeout_s=None,
                    max_output_bytes=64 * 1024,
                )
            )
            return await _accepted(listener, process)
    except BaseException as problem:
        if process is not None:
            with anyio.CancelScope(shield=True):
                await _wait_for_end(process, 0)
        if isinstance(problem, OSError):
            raise _cannot_call(problem) from problem
        raise


async def _accepted(listener: socket.socket, process: RunningProcess) -> _Connector:
    """Return the connector once it has connected.

    An abstract name has no owner, so the user of each process that connects is checked.
    """
    while await _is_connecting(listener, process):
        control = listener.accept()[0]
        control.setblocking(False)
        credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(credentials)
        if user == os.geteuid():
            return _Connector(process, control, pid)
        control.close()
    result = process.result()
    said = result.stderr.decode(errors="replace").strip()[-2000:] if result is not None else ""
    raise McpError(
        "The connector of the MCP server ended at once." + (f" It said: {said}" if said else ""),
        next_step=START_STEP,
        server="",
    )


async def _is_connecting(listener: socket.socket, process: RunningProcess) -> bool:
    """Return whether a connection came before the connector's end."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            with suppress(SpawnFailed):  # `result` raises it again
                await process.wait()
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await anyio.wait_readable(listener)
        group.cancel_scope.cancel()
    return process.result() is None


def _cannot_call(problem: OSError) -> McpError:
    return McpError(
        f"The call of the MCP server can't be made: {problem.strerror or problem}.",
        next_step="See that this process may open more files.",
        server="",
    )


def _too_large(size_bytes: int, spec: ProcessSpec) -> bytes:
    return _failure(
        f"The MCP server answered with {size_bytes} bytes, and {spec.max_output_bytes} are kept. "
        "Ask it for less, or raise max_output_bytes in the tool's config."
    )


def _failure(error: str, *, effect_unknown: bool = False) -> bytes:
    document: dict[str, object] = {"success": False, "error": error}
    if effect_unknown:
        document["effect_unknown"] = True
    return json.dumps(document).encode()


def _result(status: str, document: bytes, started: float, pid: int) -> ProcessResult:
    return ProcessResult(
        status="exited" if status == "exited" else "timed_out",
        exit_code=0 if status == "exited" else None,
        signal=None,
        stdout=document,
        stderr=b"",
        stdout_total_bytes=len(document),
        stderr_total_bytes=0,
        duration_ms=(time.perf_counter() - started) * 1000,
        pid=pid,
        left_behind=(),
    )
