"""Managed threads: a governed turn, a thread from start to end, 200 and 1,000 of them at once.

Each beside the same work by hand in the same run: SQLite, files, lines and signatures without
anything around. What waits for no disk is told in processor time, so that other programs don't
count; what does, in time that passes. Threads at once are told in both.

Nothing is removed before all is measured: ext4 passes over the inodes that were removed in the last
one to six minutes whenever it makes a file. So leave as much time between two runs, or run each in
a file system of its own.
"""

import asyncio
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast, get_args

from ryecore import Rye
from ryecore.llm import LlmRequest, MediaStore, StreamChunk
from ryecore.state.exports import export_path
from ryecore.state.model import Durability
from tests.benchmarks.floor import turns as floor
from tests.benchmarks.floor.threads import Left, by_hand
from tests.benchmarks.harness import report
from tests.benchmarks.turns import FakeProvider, add
from tests.scripted_host import ScriptedHost

_TURNS, _FROM = 12, 1  # of which the first is left out, and the last, which answers
_ROUNDS = {"process": 40, "machine": 3}
_RUN_TURNS, _FEW = 3, 10
_AT_ONCE = (200, 1_000)
_BY_HAND = 200  # one after another, so that more of them would have the same rate
_ROUNDS_AT_10 = {"process": 10, "machine": 3}
_TOOLS = {"add": add}
_CLOCKS: dict[str, Callable[[], float]] = {
    "process": time.process_time,
    "machine": time.perf_counter,
}


class _Scripted(FakeProvider):
    """The fake model; it notes when it is asked."""

    provider_id = "scripted"

    def __init__(self, turns: int) -> None:
        super().__init__(turns)
        self.now: Callable[[], float] = time.perf_counter
        self.asked: list[float] = []

    def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Call a tool, or answer."""
        self.asked.append(self.now())
        return super().stream(request, key=key, media=media)


class Threads:
    """Governed threads of so many turns and an answer, in a project of their own."""

    def __init__(self, folder: Path, turns: int) -> None:
        self.model = _Scripted(turns)
        self._stage = ScriptedHost(folder, model=self.model)
        limits = f'turns="{turns + 2}" tokens="100000000"'
        # What calls a tool is told to; what calls none has none, and is asked once.
        allowed = {} if turns else {"permissions": ""}
        self._ref = self._stage.write("acme/add", "Add.", limits=limits, **allowed)
        self.project = self._stage.workspace.project / ".ai"

    def open(self, durability: Durability = "process", **options: Any) -> Rye:
        """Open the project."""
        return self._stage.open(durability=durability, **options)

    async def run(self, rye: Rye) -> Any:
        """Run one to its end."""
        done: Any = await rye.execute(self._ref, thread="fork")
        assert done.success, done
        return done

    async def floor(self, rye: Rye, folder: Path, durability: Durability) -> Left:
        """The same by hand."""
        done = await self.run(rye)
        left = self.project / "state/threads" / done.thread_id
        export = export_path(self.project, done.thread_id)
        return by_hand(folder, left, export, done.cost.turns, durability)


def _folder(parent: Path, name: str) -> Path:
    folder = parent / name
    folder.mkdir()
    return folder


async def _turn(folder: Path, durability: Durability) -> None:
    threads = Threads(_folder(folder, "ours"), _TURNS)
    now = threads.model.now = _CLOCKS[durability]
    kept = floor.Kept(folder, is_synced=durability == "machine")
    asked: list[float] = []
    model = floor.call_model(_TURNS)

    def by_hand(messages: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        asked.append(now())
        return model(messages)

    async def each(run: Callable[[], Any], marks: list[float]) -> float:
        """One turn, in microseconds, of those between the first and the last."""
        marks.clear()
        await run()
        return (marks[_TURNS] - marks[_FROM]) / (_TURNS - _FROM) * 1e6

    times: dict[str, list[float]] = {"ours": [], "kept": [], "bare": []}
    async with threads.open(durability) as rye:
        for _ in range(_ROUNDS[durability] + 1):
            times["ours"].append(await each(lambda: threads.run(rye), threads.model.asked))
            run = lambda: floor.told(by_hand, _TOOLS, [].append, kept)  # noqa: E731
            times["kept"].append(await each(run, asked))
            times["bare"].append(await each(lambda: floor.bare(by_hand, _TOOLS), asked))
    kept.close()
    ours, base, bare = (times[name][1:] for name in ("ours", "kept", "bare"))
    report(
        f"one governed turn, {durability} durability",
        statistics.median(ours),
        "us",
        least=min(ours),
        floor=statistics.median(base),
        least_floor=min(base),
        ratio=statistics.median(one / other for one, other in zip(ours, base, strict=True)),
        bare=statistics.median(bare),
        goal="≤ 2 of a loop with events, SQLite, JSONL",
    )


async def _whole(folder: Path, durability: Durability) -> None:
    threads = Threads(_folder(folder, "ours"), 0)
    now = _CLOCKS[durability]
    ours, base = [], []
    async with threads.open(durability) as rye:
        left = await threads.floor(rye, _folder(folder, "floor"), durability)
        for _ in range(_ROUNDS[durability] + 1):
            begun = now()
            await threads.run(rye)
            between = now()
            left.run()
            ours.append((between - begun) * 1e3)
            base.append((now() - between) * 1e3)
    report(
        f"a thread of one turn from start to end, {durability} durability",
        statistics.median(ours),
        "ms",
        least=min(ours),
        floor=statistics.median(base),
        least_floor=min(base),
        ratio=statistics.median(one / other for one, other in zip(ours, base, strict=True)),
        signatures=left.signatures,
        goal="≤ 2.5 of its SQLite, files, lines and signatures by hand",
    )


async def _rates(folder: Path, who: str, durability: Durability) -> dict[str, dict[str, float]]:
    """Threads a second: ten at once, and each number of `_AT_ONCE`."""
    threads = Threads(_folder(folder, "ours"), _RUN_TURNS - 1)
    async with threads.open(durability) as rye:
        left = await threads.floor(rye, _folder(folder, "floor"), durability)

        async def one() -> None:
            if who == "ours":
                await threads.run(rye)
            else:
                left.run()

        async def at_once(count: int) -> dict[str, float]:
            if who == "floor":
                count = min(count, _BY_HAND)
            gc.collect()
            begun, processor = time.perf_counter(), time.process_time()
            await asyncio.gather(*(one() for _ in range(count)))
            return {
                "rate": count / (time.perf_counter() - begun),
                "cpu_ms": (time.process_time() - processor) / count * 1e3,
                "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }

        few = [await at_once(_FEW) for _ in range(_ROUNDS_AT_10[durability])]
        rate_at_10 = statistics.median(one["rate"] for one in few)
        return {str(count): await at_once(count) | {"rate_at_10": rate_at_10} for count in _AT_ONCE}


def _at_once(folder: Path, durability: Durability) -> None:
    got: dict[str, dict[str, dict[str, float]]] = {}
    for who in ("ours", "floor"):
        command = [sys.executable, "-m", __spec__.name, who, durability, _folder(folder, who)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        got[who] = json.loads(done.stdout)
    for count in _AT_ONCE:
        ours, base = got["ours"][str(count)], got["floor"][str(count)]
        report(
            f"{count:,} governed threads of {_RUN_TURNS} turns at once, {durability} durability",
            ours["rate"],
            "/s",
            floor=base["rate"],
            ratio=ours["rate"] / base["rate"],
            cpu_ms=ours["cpu_ms"],
            floor_cpu_ms=base["cpu_ms"],
            cpu_ratio=base["cpu_ms"] / ours["cpu_ms"],
            of_the_rate_at_10=ours["rate"] / ours["rate_at_10"],
            mib=ours["mib"],
            floor_mib=base["mib"],
            goal="≥ 0.7 of the rate by hand, ≤ 60 MiB",
        )


def run() -> None:
    """Report all figures."""
    with tempfile.TemporaryDirectory() as made:
        for durability in get_args(Durability):
            folder = _folder(Path(made), durability)
            asyncio.run(_turn(_folder(folder, "turn"), durability))
            asyncio.run(_whole(_folder(folder, "whole"), durability))
            _at_once(_folder(folder, "at-once"), durability)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each thread holds a file open
        rates = _rates(Path(sys.argv[3]), sys.argv[1], cast("Durability", sys.argv[2]))
        sys.stdout.write(json.dumps(asyncio.run(rates)))
    else:
        run()
