"""Python tools from warm templates, beside a child forked ahead by hand and beside cold starts.

`python -m tests.benchmarks.warm`. All ways run in turn, in one event loop. What is timed is a call
alone: before each there is a pause in which the last one's child is replaced. Where no call gets
warm, that is said, and the rest is measured.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ryecore import Rye
from ryecore.lillux import TemplateStats
from tests.benchmarks.floor.prefork import Prefork, prefork
from tests.benchmarks.harness import report
from tests.workspace import Workspace, events

_BODY: Final = (
    "def execute(params, project_path):\n    return {{'sum': params['a'] + params['b'] + {}}}"
)
_PARAMS: Final = {"a": 1, "b": 2}
_SENT: Final = json.dumps(_PARAMS).encode()
_BASH: Final = ("tool:rye/bash", {"command": "echo hi"})
_FLOOR: Final = "a child forked ahead by hand"
# The interpreter of this environment, as a project has one: that of a machine loads whatever its
# own packages ask for.
_PYTHON: Final = sys.executable
_ROUNDS: Final = 30
_FAST_PER_ROUND: Final = 5
_SETTLE_S: Final = 0.005
_AT_ONCE: Final = (1, 4, 16)
_CALLS: Final = 320
_COLD_CALLS: Final = 32
_RATES: Final = 3
_BURST: Final = 200
_BURSTS: Final = 3
_EDITS: Final = 8
_WARM_WITHIN_S: Final = 10.0

_Way = Callable[[], Awaitable[object]]


async def _call(rye: Rye, ref: str, params: Mapping[str, Any]) -> Any:
    return (await rye.execute(ref, params)).raise_for_status()


async def _until_warm(rye: Rye, ref: str, params: Mapping[str, Any]) -> float | None:
    """Call until a call is warm; after how many milliseconds that one began, None if none was."""
    begun = time.perf_counter()
    while (taken := time.perf_counter() - begun) < _WARM_WITHIN_S:
        result = await rye.execute(ref, params, trace=True)
        result.raise_for_status()
        if any(event.get("start") == "warm" for event in events(result.trace, "execute")):
            return taken * 1e3
    return None


async def _timed_ms(way: _Way) -> float:
    begun = time.perf_counter_ns()
    await way()
    return (time.perf_counter_ns() - begun) / 1e6


async def _latency(floor: Prefork, warm: Rye | None, cold: Rye, ref: str) -> None:
    async def bare(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)

    async def by_hand() -> None:
        floor.call(_SENT)

    fast: dict[str, tuple[_Way, str]] = {
        _FLOOR: (by_hand, "the floor"),
        "subprocess.run of bash": (lambda: bare("bash", "-c", "echo hi"), "beside rye/bash"),
    }
    if warm:
        fast |= {
            "Python tool, warm": (lambda: _call(warm, ref, _PARAMS), "<= 1.3x the floor: 1.2 ms"),
            "rye/bash echo hi, warm": (lambda: _call(warm, *_BASH), "<= 3.8x the floor: 3.5 ms"),
        }
    slow: dict[str, tuple[_Way, str]] = {
        "Python tool, cold": (lambda: _call(cold, ref, _PARAMS), "the cold start"),
        "rye/bash echo hi, cold": (lambda: _call(cold, *_BASH), "the cold start"),
        "python -c pass": (lambda: bare(_PYTHON, "-c", "pass"), "the cold start, bare"),
    }
    times: dict[str, list[float]] = {name: [] for name in fast | slow}
    for ways in [*[fast] * _FAST_PER_ROUND, slow] * _ROUNDS:
        for name, (way, _) in ways.items():
            floor.settle()
            await asyncio.sleep(_SETTLE_S)
            times[name].append(await _timed_ms(way))
    base = statistics.median(times[_FLOOR])
    for name, (_, goal) in (fast | slow).items():
        value, least = statistics.median(times[name]), min(times[name])
        report(name, value, "ms", least=least, floor=base, ratio=value / base, goal=goal)


async def _throughput(floor: Prefork, warm: Rye | None, cold: Rye, ref: str) -> None:
    async def by_hand(count: int, at_once: int) -> None:
        floor.calls(_SENT, count, at_once)

    def ours(rye: Rye) -> Callable[[int, int], Awaitable[None]]:
        async def calls(count: int, at_once: int) -> None:
            async def caller() -> None:
                for _ in range(count // at_once):
                    await _call(rye, ref, _PARAMS)

            await asyncio.gather(*(caller() for _ in range(at_once)))

        return calls

    ways = {_FLOOR: (by_hand, _CALLS), "Python tool, cold": (ours(cold), _COLD_CALLS)}
    if warm:
        ways["Python tool, warm"] = (ours(warm), _CALLS)
    for at_once in _AT_ONCE:
        rates: dict[str, list[float]] = {name: [] for name in ways}
        before = _taken(warm)
        for _ in range(_RATES + 1):
            for name, (way, count) in ways.items():
                took_ms = await _timed_ms(lambda way=way, n=count, m=at_once: way(n, m))
                rates[name].append(count / took_ms * 1e3)
        # A template that has ended meanwhile is not counted: an idle one's children are not these.
        taken = sum(count - before.get(pid, 0) for pid, count in _taken(warm).items())
        base = statistics.median(rates[_FLOOR][1:])
        for name, samples in rates.items():
            value = statistics.median(samples[1:])
            more: dict[str, object] = {"floor": base, "ratio": value / base}
            if name.endswith("warm"):  # fewer than calls: some calls were cold
                more |= {"calls": _CALLS * (_RATES + 1), "children": taken}
            report(f"{name}, {at_once} at once", value, "calls/s", **more, goal="by the floor")


def _stats(rye: Rye | None) -> tuple[TemplateStats, ...]:
    # Nothing public says how a Rye's templates stand.
    pool = rye._parts._executor._pool if rye else None
    return pool.stats() if pool else ()


def _taken(rye: Rye | None) -> dict[int, int]:
    """How many children of each template wait no more, by its pid."""
    return {one.pid: one.forks - one.spares for one in _stats(rye)}


def _memory(rye: Rye, after: str) -> None:
    """What each template takes with what it has forked ahead, and by itself."""
    for number, one in enumerate(_stats(rye), 1):
        if not one.pid:
            continue
        rollup = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
        alone = int(rollup.split("\nPss:", 1)[1].split()[0]) / 1024
        report(
            f"template {number} of the pool, after {after}",
            one.memory_bytes / 2**20,
            "MiB",
            spares=one.spares,
            forks=one.forks,
            alone=alone,
            goal="few MiB each",
        )


async def _right_again(workspace: Workspace, rye: Rye, ref: str, *, is_warm: bool) -> None:
    """The first calls after the tool was edited and signed anew; each gives the new answer."""
    names = ("first", "second", "third")
    times: dict[str, list[float]] = {name: [] for name in names}
    again: list[float] = []
    for edit in range(1, _EDITS + 1):
        workspace.python(ref.removeprefix("tool:"), _BODY.format(edit))
        edited = time.perf_counter()
        for name in names:
            begun = time.perf_counter()
            result = await _call(rye, ref, _PARAMS)
            times[name].append((time.perf_counter() - begun) * 1e3)
            if result.data != {"sum": 3 + edit}:
                raise SystemExit(f"After the edit the tool answered {result.data}.")
        waited_ms = (time.perf_counter() - edited) * 1e3
        if is_warm and (taken_ms := await _until_warm(rye, ref, _PARAMS)) is not None:
            again.append(waited_ms + taken_ms)
    for name, samples in times.items():
        value, least = statistics.median(samples), min(samples)
        report(f"{name} call after an edit", value, "ms", least=least, goal="right; a cold start")
    if again:
        value, least = statistics.median(again), min(again)
        title = "from an edit to a warm call"
        goal = "two cold calls and a template's start"
        report(title, value, "ms", least=least, edits=len(again), goal=goal)


async def _bursts(workspace: Workspace, ref: str) -> None:
    """Many calls at once in a Rye that was just opened, and again, beside those that start cold."""
    times: dict[str, list[float]] = {"first": [], "warm": [], "cold": []}

    async def burst(rye: Rye) -> None:
        await asyncio.gather(*(_call(rye, ref, _PARAMS) for _ in range(_BURST)))

    for _ in range(_BURSTS):
        async with workspace.open() as fresh, workspace.open(warm_memory_mib=0) as cold:
            for name, rye in {"first": fresh, "warm": fresh, "cold": cold}.items():
                times[name].append(await _timed_ms(lambda rye=rye: burst(rye)))
    goals = {"first": "1000 ms, never above the cold one", "warm": "by the floor", "cold": ""}
    base = min(times["cold"])
    for name, samples in times.items():
        value, least = statistics.median(samples), min(samples)
        title = f"{name} burst of {_BURST} calls"
        report(title, value, "ms", least=least, ratio_to_cold=least / base, goal=goals[name])


async def _measure(workspace: Workspace, ref: str, floor: Prefork) -> None:
    async with workspace.open() as opened, workspace.open(warm_memory_mib=0) as cold:
        for rye in (opened, cold):
            await _call(rye, ref, _PARAMS)
            await _call(rye, *_BASH)
        ready = [await _until_warm(opened, *call) for call in ((ref, _PARAMS), _BASH)]
        warm = None if None in ready else opened
        report("warm starts", float(warm is not None), "yes is 1", goal="1 on Linux")
        await _latency(floor, warm, cold, ref)
        if warm:
            _memory(warm, "one caller")
        await _throughput(floor, warm, cold, ref)
        if warm:
            _memory(warm, f"{_AT_ONCE[-1]} callers")
        await _right_again(workspace, opened, ref, is_warm=warm is not None)
    await _bursts(workspace, ref)


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        workspace.environ["PATH"] = f"{Path(_PYTHON).parent}:{workspace.environ['PATH']}"
        ref = workspace.python("acme/add", _BODY.format(0))
        tool = workspace.path("tools/acme/add.py")
        with prefork(_PYTHON, tool, workspace.project, spares=max(_AT_ONCE)) as floor:
            asyncio.run(_measure(workspace, ref, floor))


if __name__ == "__main__":
    run()
