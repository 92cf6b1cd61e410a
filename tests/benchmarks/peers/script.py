"""What every fake model says, and how each framework is measured with it."""

import asyncio
import importlib
import json
import logging
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

ANSWER = "done"
PROMPT = "Add one and one, again and again."
PIECE = "word "
TURNS, RUN_TURNS, DELTAS, STEPS, KEPT_RUNS = 10, 3, 1_000, 2_000, 200
ROUNDS = 15

SERVER = "RYE_BENCHMARK_POSTGRESQL"

Run = Callable[[], Awaitable[Any]]


def server_address() -> str:
    """The address of a PostgreSQL server with a database of this process's own."""
    return os.environ[SERVER]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _timed(run: Run) -> float:
    started = time.perf_counter()
    await run()
    return time.perf_counter() - started


async def _turn(peer: Any) -> dict[str, float]:
    run = peer.runner(TURNS)
    assert await run() == ANSWER
    times = [await _timed(run) for _ in range(ROUNDS)]
    return {"us": statistics.median(times) / TURNS * 1e6}


async def _delta(peer: Any) -> dict[str, float]:
    run = peer.streamer(DELTAS)
    assert await run() == DELTAS, await run()
    times = [await _timed(run) for _ in range(ROUNDS)]
    return {"us": statistics.median(times) / DELTAS * 1e6}


async def _runs(peer: Any) -> dict[str, float]:
    run = peer.runner(RUN_TURNS)
    assert await run() == ANSWER

    async def at_once(count: int) -> float:
        started = time.perf_counter()
        await asyncio.gather(*(run() for _ in range(count)))
        return count / (time.perf_counter() - started)

    few = statistics.median([await at_once(10) for _ in range(10)])
    many = statistics.median([await at_once(1_000) for _ in range(2)])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"runs_a_second": many, "of_the_rate_at_10": many / few, "mib": peak}


async def _kept_turn(peer: Any) -> dict[str, float]:
    async with peer.kept_runner(TURNS) as run:
        assert await run() == ANSWER
        times, processor = [], []
        for _ in range(ROUNDS):
            begun = time.process_time()
            times.append(await _timed(run) / TURNS * 1e6)
            processor.append((time.process_time() - begun) / TURNS * 1e6)
    return {"us": statistics.median(times), "least_us": min(times), "cpu_us": min(processor)}


async def _kept_runs(peer: Any) -> dict[str, float]:
    async with peer.kept_runner(RUN_TURNS) as run:
        assert await run() == ANSWER
        rates, processor = [], []
        for _ in range(3):
            begun, started = time.process_time(), time.perf_counter()
            await asyncio.gather(*(run() for _ in range(KEPT_RUNS)))
            rates.append(KEPT_RUNS / (time.perf_counter() - started))
            processor.append((time.process_time() - begun) / KEPT_RUNS * 1e6)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "runs_a_second": statistics.median(rates),
        "best": max(rates),
        "cpu_us": min(processor),
        "mib": peak,
    }


async def _steps(run: Run) -> dict[str, float]:
    assert await run() == STEPS
    times = [await _timed(run) for _ in range(5)]
    return {"us": statistics.median(times) / STEPS * 1e6}


async def _step(peer: Any) -> dict[str, float]:
    return await _steps(peer.walker(STEPS))


async def _kept_step(peer: Any) -> dict[str, float]:
    return await _steps(peer.kept_walker(STEPS))


def main(name: str, figure: str) -> None:
    """Print one figure of one framework as JSON, or nothing where it isn't installed."""
    os.environ |= dict.fromkeys(("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"), "false")
    os.environ["OTEL_SDK_DISABLED"] = "true"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    try:
        peer = importlib.import_module(f"tests.benchmarks.peers.{name}")
    except ModuleNotFoundError as missing:
        sys.stdout.write(json.dumps({"missing": missing.name}) + "\n")
        return
    measure = {
        "turn": _turn, "delta": _delta, "runs": _runs, "step": _step, "kept_step": _kept_step,
        "kept_turn": _kept_turn, "kept_runs": _kept_runs,
    }[figure]  # fmt: skip
    sys.stdout.write(json.dumps(asyncio.run(measure(peer))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
