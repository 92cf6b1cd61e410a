"""Many children at once: 200 times `sleep 0.05`, against C and peers."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio

from ryecore.lillux import ProcessSpec, run_process
from tests.benchmarks.floor import c_floor
from tests.benchmarks.harness import report_ways

_COUNT = 200
_ROUNDS = 9
_ENV = {"PATH": "/usr/bin:/bin"}
_SPEC = ProcessSpec("/bin/sleep", ("0.05",), cwd="/", env=_ENV)


async def _ours() -> None:
    await run_process(_SPEC)


async def _asyncio() -> None:
    process = await asyncio.create_subprocess_exec(
        "/bin/sleep",
        "0.05",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=_ENV,
    )
    await process.communicate()


async def _anyio() -> None:
    await anyio.run_process(["/bin/sleep", "0.05"], stdin=asyncio.subprocess.DEVNULL, env=_ENV)


_WAYS: dict[str, tuple[Callable[[], Awaitable[None]], str]] = {
    "200 concurrent sleeps": (_ours, "<= 1.3x C, one native thread"),
    "200 concurrent sleeps, asyncio": (_asyncio, "the peer"),
    "200 concurrent sleeps, anyio": (_anyio, "the peer"),
}


async def _all_at_once(way: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter_ns()
    async with anyio.create_task_group() as group:
        for _ in range(_COUNT):
            group.start_soon(way)
    return (time.perf_counter_ns() - begun) / 1e6


async def _measure() -> None:
    floors: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in _WAYS}
    with c_floor("concurrency", str(_COUNT)) as floor:
        for turn in range(_ROUNDS + 1):
            floor_ms = floor() / 1e6
            taken = {name: await _all_at_once(way) for name, (way, _) in _WAYS.items()}
            if turn:
                floors.append(floor_ms)
                for name, took_ms in taken.items():
                    times[name].append(took_ms)
    report_ways(times, floors, {name: goal for name, (_, goal) in _WAYS.items()}, "ms")


def run() -> None:
    """Print the figures."""
    asyncio.run(_measure())


if __name__ == "__main__":
    run()
