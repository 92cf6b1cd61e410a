"""Spawn and reap /bin/true with both pipes captured: awaited and blocking, against C and peers."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio

from ryecore.lillux import ProcessSpec, run_process, run_process_sync
from tests.benchmarks.floor import c_floor
from tests.benchmarks.harness import report_ways

_ENV = {"PATH": "/usr/bin:/bin"}
_SPEC = ProcessSpec("/bin/true", cwd="/", env=_ENV)
_ROUNDS = 300


async def _asyncio() -> None:
    process = await asyncio.create_subprocess_exec(
        "/bin/true",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_ENV,
    )
    await process.communicate()


async def _anyio() -> None:
    await anyio.run_process(["/bin/true"], stdin=asyncio.subprocess.DEVNULL, env=_ENV)


async def _blocking() -> None:
    run_process_sync(_SPEC)


async def _awaited() -> None:
    await run_process(_SPEC)


_WAYS: dict[str, tuple[Callable[[], Awaitable[None]], str]] = {
    "spawn and reap, awaited": (_awaited, "<= 1.35x C, ahead of asyncio and anyio"),
    "spawn and reap, blocking": (_blocking, "<= 1.15x C"),
    "spawn and reap, asyncio": (_asyncio, "the peer"),
    "spawn and reap, anyio": (_anyio, "the peer"),
}


async def _measure() -> None:
    floors: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in _WAYS}
    with c_floor("spawn") as floor:
        for turn in range(_ROUNDS + 10):
            floor_us = floor() / 1e3
            for name, (way, _) in _WAYS.items():
                begun = time.perf_counter_ns()
                await way()
                took_us = (time.perf_counter_ns() - begun) / 1e3
                if turn >= 10:
                    times[name].append(took_us)
            if turn >= 10:
                floors.append(floor_us)
    report_ways(times, floors, {name: goal for name, (_, goal) in _WAYS.items()}, "us")


def run() -> None:
    """Print the figures."""
    asyncio.run(_measure())


if __name__ == "__main__":
    run()
