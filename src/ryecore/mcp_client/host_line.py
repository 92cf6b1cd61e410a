"""What a kept connector asks its host while a call runs, on the socket of that call."""

import json
import socket
from collections.abc import Mapping
from typing import Any, Final

import anyio

from ryecore.errors import McpError
from ryecore.mcp_client.wire import Kind, encode_json, receive_frame, send_frame

__all__ = ["HostLine", "Lines"]

_NOBODY: Final = "Nobody is there to ask."


class HostLine:
    """The socket of one call.

    `can` says what its host answers, with what is to be known of each: such as `authorize` with the
    URL that a person is sent back to.
    """

    def __init__(self, connection: socket.socket, can: Mapping[str, Any]) -> None:
        self.can = can
        self._connection = connection
        self._sending = anyio.Lock()
        self._waiting: dict[int, tuple[anyio.Event, list[Mapping[str, Any]]]] = {}
        self._last = 0

    async def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a frame to the host, whole even when the sender is cancelled."""
        with anyio.CancelScope(shield=True):
            async with self._sending:
                await send_frame(self._connection, kind, payload)

    async def ask(self, kind: str, params: Mapping[str, object]) -> Mapping[str, Any]:
        """Ask the host, and return its answer; an McpError is its refusal."""
        self._last += 1
        number = self._last
        answered, answers = self._waiting[number] = anyio.Event(), []
        try:
            await self.send(b"Q", encode_json({"id": number, "kind": kind, "params": params}))
            await answered.wait()
        finally:
            del self._waiting[number]
        answer = answers[0]
        if "error" in answer:
            raise McpError(str(answer["error"]), next_step=str(answer["next_step"]), server="")
        result: Mapping[str, Any] = answer["result"]
        return result

    async def listen(self) -> None:
        """Take the host's answers until it closes its end."""
        while (frame := await receive_frame(self._connection)) is not None:
            answer = json.loads(frame[1])
            waiting = self._waiting.get(answer["id"])
            if waiting is not None:
                waiting[1].append(answer)
                waiting[0].set()


class Lines:
    """The calls that are open; the latest one whose host can answer is asked."""

    def __init__(self) -> None:
        self._open: list[HostLine] = []
        self.is_called = anyio.Event()

    def add(self, line: HostLine) -> None:
        """Note a call that has begun."""
        self._open.append(line)
        self.is_called.set()

    def remove(self, line: HostLine) -> None:
        """Note that a call has ended."""
        self._open.remove(line)

    def find(self, kind: str) -> HostLine | None:
        """Return the latest call whose host answers questions of a kind."""
        return next((line for line in reversed(self._open) if kind in line.can), None)

    async def ask(self, kind: str, params: Mapping[str, object]) -> Mapping[str, Any]:
        """Ask the host of the latest call that can answer."""
        line = self.find(kind)
        if line is None:
            raise McpError(_NOBODY, next_step="Try it again.", server="")
        return await line.ask(kind, params)
