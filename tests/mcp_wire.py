"""Requests to an MCP server by hand, for what the SDK's client has no calls for."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.mcp_clients import TOKEN, process
from tests.workspace import Workspace

MODERN = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
_KEYS = "io.modelcontextprotocol/"


class RpcError(Exception):
    """An error response."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.data = error.get("data")


def result_of(message: Mapping[str, Any]) -> dict[str, Any]:
    if "error" in message:
        raise RpcError(message["error"])
    result: dict[str, Any] = message["result"]
    return result


class ModernHttp:
    """A client of 2026 over HTTP, one POST a request.

    Args:
        url: The server's URL.
        token: Its bearer token; None for none.
        offered: The client's capabilities; tasks and forms by default.
    """

    def __init__(
        self, url: str, token: str | None = TOKEN, offered: Mapping[str, Any] | None = None
    ) -> None:
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._offered = (
            {"elicitation": {}, "extensions": {TASKS: {}}} if offered is None else offered
        )

    def __call__(self, method: str, header: str | None = None, **params: Any) -> dict[str, Any]:
        named = header or params.get("taskId") or params.get("name")
        meta = {
            f"{_KEYS}protocolVersion": MODERN,
            f"{_KEYS}clientInfo": {"name": "by hand", "version": "1"},
            f"{_KEYS}clientCapabilities": self._offered,
        }
        response = httpx2.post(
            self._url,
            headers={
                **self._headers,
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": MODERN,
                "Mcp-Method": method,
                **({"Mcp-Name": named} if named else {}),
            },
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}},
            timeout=30,
        )
        body = response.text
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            body = [line[5:] for line in body.splitlines() if line.startswith("data:")][-1]
        return result_of(json.loads(body))


class LegacyStdio:
    """A client of 2025 on the server's standard streams."""

    def __init__(self, started: "subprocess.Popen[bytes]") -> None:
        assert started.stdin is not None
        assert started.stdout is not None
        self._in, self._out = started.stdin, started.stdout
        self._last = 0
        self.answers: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None

    def _send(self, **message: Any) -> None:
        self._in.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._in.flush()

    def begin(self, version: str = "2025-11-25") -> dict[str, Any]:
        began = self(
            "initialize",
            protocolVersion=version,
            capabilities={"elicitation": {}},
            clientInfo={"name": "by hand", "version": "1"},
        )
        self._send(method="notifications/initialized")
        return began

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        number = self._last  # while it waits, `answers` may make calls, too
        self._send(id=number, method=method, params=params)
        for line in self._out:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return result_of(message)
            if "method" in message and "id" in message and self.answers is not None:
                self._send(id=message["id"], result=self.answers(message))
        raise EOFError


@contextmanager
def legacy(workspace: Workspace, *args: str) -> Iterator[LegacyStdio]:
    with process(workspace, "--project", str(workspace.project), *args) as started:
        yield LegacyStdio(started)
