"""A tool of an MCP server through the chain, kept and not kept, against the SDK on its own."""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.benchmarks.harness import report
from tests.interpreter import PYTHON
from tests.mcp_items import SERVER, mcp_tool, stdio_server
from tests.workspace import Workspace

_WARM_ROUNDS = 200
_COLD_ROUNDS = 10
_BARE = f"""
import asyncio
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
async def main():
    server = StdioServerParameters(command={PYTHON!r}, args=[{str(SERVER)!r}])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        print(await session.call_tool("echo", {{"text": "hi"}}))
asyncio.run(main())
"""


async def _timed_ms(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter_ns()
    await call()
    return (time.perf_counter_ns() - begun) / 1e6


async def _measure(workspace: Workspace, mode: str, name: str) -> None:
    """Measure a kept server beside an open session of the SDK with another such server."""
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    stdio_server(workspace, mode)
    ref = mcp_tool(workspace, "where")
    server = StdioServerParameters(command=PYTHON, args=[str(SERVER), mode])
    kept: list[float] = []
    bare: list[float] = []
    async with (
        workspace.open() as rye,
        stdio_client(server) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        for _ in range(_WARM_ROUNDS + 1):
            kept.append(await _timed_ms(lambda: rye.execute(ref)))
            bare.append(await _timed_ms(lambda: session.call_tool("where", {})))
    _report(name, kept[1:], bare[1:], "an open session of the SDK")


async def _measure_cold(workspace: Workspace) -> None:
    stdio_server(workspace)
    ref = mcp_tool(workspace, "where", warm=False)
    fresh: list[float] = []
    alone: list[float] = []
    async with workspace.open() as rye:
        for _ in range(_COLD_ROUNDS + 1):
            fresh.append(await _timed_ms(lambda: rye.execute(ref)))
            alone.append(await _timed_ms(lambda: asyncio.to_thread(_run_bare)))
    _report("mcp call, server not kept", fresh[1:], alone[1:], "a script with the SDK alone")


_SDK_SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("bench")
@server.tool()
def where() -> str:
    return "here"
server.run()
"""
_HELLO = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {},
               "clientInfo": {"name": "bench", "version": "1"}},
}  # fmt: skip


async def _measure_first(workspace: Workspace, script: Path, name: str) -> None:
    """Measure the first call of a fresh Rye beside the time until its server answers at all."""
    stdio_server(workspace, command=sys.executable, args=[str(script)])
    tool = mcp_tool(workspace, "where", pinned=False)
    first: list[float] = []
    alone: list[float] = []
    for _ in range(_COLD_ROUNDS + 1):
        alone.append(await _timed_ms(lambda: asyncio.to_thread(_say_hello, script)))
        async with workspace.open() as rye:
            first.append(await _timed_ms(lambda: rye.execute(tool)))
    over = sorted(ours - base for ours, base in zip(first[1:], alone[1:], strict=True))
    mine, base = sorted(first[1:])[_COLD_ROUNDS // 2], sorted(alone[1:])[_COLD_ROUNDS // 2]
    report(
        name, mine, "ms", floor=base, over_ms=round(over[len(over) // 2], 1),
        against="the server alone, until it answers initialize", goal="at most 500 ms over",
    )  # fmt: skip


def _say_hello(script: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(script)], stdin=pipe, stdout=pipe) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(_HELLO).encode() + b"\n")
        server.stdin.flush()
        assert b"serverInfo" in server.stdout.readline()
        server.kill()


def _run_bare() -> None:
    subprocess.run([sys.executable, "-c", _BARE], check=True, capture_output=True)


def _report(name: str, ours: list[float], floor: list[float], against: str) -> None:
    mine, base = sorted(ours)[len(ours) // 2], sorted(floor)[len(floor) // 2]
    report(name, mine, "ms", floor=base, ratio=mine / base, against=against)


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        script = Path(folder) / "sdk_server.py"
        script.write_text(_SDK_SERVER)
        asyncio.run(_measure_first(workspace, SERVER, "mcp first call, a small server"))
        asyncio.run(_measure_first(workspace, script, "mcp first call, a server with the SDK"))
        asyncio.run(_measure(workspace, "tells", "mcp call, server kept"))
        asyncio.run(_measure(workspace, "good", "mcp call, server kept, tools listed each time"))
        asyncio.run(_measure_cold(workspace))


if __name__ == "__main__":
    run()
