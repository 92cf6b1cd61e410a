"""Another machine on loopback, beside bare signed POSTs, and a run and a push by hand.

`python -m tests.benchmarks remote`; TMPDIR says on which disk. A node, the bare server and the
caller are processes of their own.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from anyio import to_thread
from attrs import evolve

from ryecore import AgentRunnerDeps, Rye
from ryecore.tools import ToolRegistry, tool
from tests import thread_host
from tests.benchmarks.floor.rsync import rsync_to
from tests.benchmarks.floor.signed_posts import SignedPosts, signed_posts
from tests.benchmarks.floor.signed_runs import SignedRuns, signed_runs
from tests.benchmarks.harness import report
from tests.proxy import Proxy
from tests.remotes import name_remote
from tests.served_node import ServedNode, served_node
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

_TARGET: Final = "remote:gpu"
_CALLS: Final = 200
_AT_ONCE: Final = 200
_ROUNDS_AT_ONCE: Final = 5
_Copy = Callable[[Path], None] | None
_FILES: Final = 5_000
_FILE_BYTES: Final = 1_000
_PUSHES: Final = 3
_PUSHED: Final = {"push": '{include: ["data/**"]}'}
_STEPS: Final = 100
_REST_S: Final = 0.01
_SETTINGS: Final = f"port: 0\nmax_runs: {2 * _AT_ONCE}\n"
_TOOL: Final = "def execute(params, project_path):\n    return 2"
_BODY: Final = b'{"parameters": {"name": "%s"}}' % (b"x" * 400)
"""About as long as a request to execute a tool."""


def deps() -> Mapping[str, Any]:
    """The models of the node, and a tool that takes a little time."""

    @tool
    async def rest() -> str:
        """Rest a little, so that events come one after the other."""
        await asyncio.sleep(_REST_S)
        return "rested"

    agent = cast(AgentRunnerDeps, thread_host.deps()["agent"])
    return {"agent": evolve(agent, registry=ToolRegistry([rest]))}


# A tool, alone and many at once


async def _measure_calls(
    workspace: Workspace, bare: SignedPosts, by_hand: SignedRuns, ref: str
) -> None:
    async with workspace.open() as rye:
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "local": lambda: rye.execute(ref),
            "remote": lambda: rye.execute(ref, target=_TARGET),
            "bare": lambda: bare.post("/bare", _BODY),
        }
        one = await _in_turn({**ways, "by_hand": lambda: by_hand.execute(ref)}, _CALLS)
        _report_overhead("inline tool on a node", one, goal="<= 3 ms where a bare POST takes 1.5")

        def many(way: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
            return lambda: asyncio.gather(*(way() for _ in range(_AT_ONCE)))

        all_at_once = await _in_turn(
            {name: many(way) for name, way in ways.items()}, _ROUNDS_AT_ONCE
        )
        name = f"{_AT_ONCE} inline tools at once on a node"
        _report_overhead(name, all_at_once, goal="<= 2x of as many bare POSTs")


async def _in_turn(
    ways: Mapping[str, Callable[[], Awaitable[object]]], rounds: int
) -> dict[str, list[float]]:
    """Return the times of several things in ms; two rounds warm up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 2):
        for name, way in ways.items():
            took_ms = await _timed_ms(way)
            if number >= 2:
                times[name].append(took_ms)
    return times


async def _timed_ms(way: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter_ns()
    await way()
    return (time.perf_counter_ns() - began) / 1e6


def _report_overhead(name: str, times: Mapping[str, list[float]], *, goal: str) -> None:
    """Report the time over the local call; the least times drop what other programs took."""
    for how, part in (("least", 0.0), ("p10", 0.1), ("median", 0.5)):
        local, remote, bare = (_at(times[way], part) for way in ("local", "remote", "bare"))
        over = remote - local
        more = {"by_hand": _at(times["by_hand"], part) - local} if "by_hand" in times else {}
        report(
            f"{name}, over the local call, {how}", over, "ms",
            local=local, remote=remote, floor=bare, ratio=over / bare, goal=goal, **more,
        )  # fmt: skip


def _at(samples: list[float], part: float) -> float:
    """Return the sample below which a part of all samples lies."""
    return sorted(samples)[min(int(part * len(samples)), len(samples) - 1)]


# A push


async def _measure_pushes(workspace: Workspace, served: ServedNode, root: Path) -> None:
    """Measure pushes beside one that hashes all files each time, and sends those that are new."""
    times: dict[str, list[tuple[float, ...]]] = {}
    data = workspace.project / "data"
    for number in range(_PUSHES):
        _write_files(data, number)
        time.sleep(0.2)  # until then, the files' times can't tell whether they change again
        serving = signed_posts(root / f"pushed{number}")
        with serving as url, rsync_to(root / f"copied{number}") as copy:
            bare = SignedPosts(url)

            async def measure(
                name: str, rye: Rye, bare: SignedPosts = bare, copy: _Copy = copy
            ) -> None:
                took = [await _timed_ms(lambda: bare.push(data))]
                if copy is not None:
                    took.append(await _timed_ms(partial(to_thread.run_sync, copy, data)))
                own_ms = await _timed_ms(lambda: rye.remotes.push(_TARGET))
                times.setdefault(name, []).append((own_ms, *took))

            async with workspace.open() as rye:
                await rye.remotes.check("gpu")
                await measure("first", rye)
                (data / "0" / "0").write_bytes(b"changed in %d" % number)
                await measure("after one change", rye)
                await measure("unchanged", rye)
            async with workspace.open() as rye:
                await rye.remotes.check("gpu")
                await measure("unchanged, by a Rye that knows no file yet", rye)
            await bare.aclose()
    for name, samples in times.items():
        mine, base, *copied = (min(one) for one in zip(*samples, strict=True))
        report(
            f"push of {_FILES:,} files, {name}, least", mine, "ms",
            floor=base, ratio=mine / base, rsync=copied[0] if copied else None,
        )  # fmt: skip
    with Proxy(urlsplit(served.url).port or 0) as proxy:
        name_remote(workspace, proxy.url, served.identity.key.public, more=_PUSHED)
        async with workspace.open() as rye:
            await rye.remotes.push(_TARGET)
        requests = [one.target for one in proxy.requests]
    report("requests of an unchanged push", len(requests), "requests", targets=requests, goal="1")


def _write_files(folder: Path, number: int) -> None:
    for index in range(_FILES):
        below = folder / str(index % 100)
        below.mkdir(parents=True, exist_ok=True)
        content = b"%d of %d\n" % (index, number)
        (below / str(index)).write_bytes(content.ljust(_FILE_BYTES, b"."))


# Events


async def _measure_events(planned: PlannedWorkspace) -> None:
    ref = planned.write("rest", *([["rest", {}]] * _STEPS), limits=f'turns="{2 * _STEPS}"')
    delays: list[float] = []
    async with planned.workspace.open() as rye:
        thread = await rye.start(ref, target=_TARGET)
        async for event in thread.events():
            now_s = time.time()
            if event.type == "remote_run" and event.payload["event_type"] == "tool_call_result":
                delays.append((now_s - event.payload["timestamp"]) * 1e3)
        done = await thread.result()
    assert done.error is None, done.error
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        report(f"an event from a node, {name}", _at(delays, part), "ms", events=len(delays))


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        planned = PlannedWorkspace(Workspace(Path(folder)))
        workspace = planned.workspace
        ref = workspace.python("acme/two", _TOOL)
        serving = served_node(
            planned.root / "node", "--deps", f"{__name__}:deps",
            environ=planned.environ, settings=_SETTINGS,
        )  # fmt: skip
        with (
            serving as served,
            signed_posts(planned.root / "bare") as url,
            signed_runs(workspace, planned.root / "by-hand") as hand,
        ):
            served.allow(workspace.key, max_runs=2 * _AT_ONCE)
            name_remote(workspace, served.url, served.identity.key.public)
            asyncio.run(_measure_calls(workspace, SignedPosts(url), SignedRuns(hand), ref))
            asyncio.run(_measure_events(planned))
            name_remote(workspace, served.url, served.identity.key.public, more=_PUSHED)
            asyncio.run(_measure_pushes(workspace, served, planned.root))


if __name__ == "__main__":
    run()
