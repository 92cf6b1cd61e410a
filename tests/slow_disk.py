"""What writes state, on a disk whose syncs take 100 ms, with a heartbeat of the event loop.

`python -m tests.slow_disk ROOT BACKEND SCENARIO DURABILITY`, with the library that `slow_disk.c`
makes in LD_PRELOAD, prints what was measured, as JSON.
"""

import ctypes
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio

from ryecore.llm.parts import ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.state.database import Database
from ryecore.testing import Turn, call, say
from tests.graphs import graph
from tests.stage import Stage

SYNC_MS: Final = 100
TURNS: Final = 5
THREADS: Final = 4
COMMITS: Final = 3000
_ROW: Final = "x" * 3000
_TABLE: Final = "CREATE TABLE one (number INTEGER PRIMARY KEY, text TEXT)"
_BEAT_S: Final = 0.005
_DIRECTIVE: Final = "directive:acme/adds"
_GRAPH: Final = "tool:acme/flow"


def _model(request: LlmRequest) -> Turn:
    """Call the tool in all turns but the last."""
    done = sum(isinstance(part, ToolResultPart) for one in request.messages for part in one.parts)
    return call("add", {"a": done, "b": 1}) if done < TURNS - 1 else say("done")


def _furnish(stage: Stage) -> None:
    stage.write("acme/adds")
    stage.house.python(
        "acme/add", "def execute(params, project):\n  return {'sum': 1, 'text': 'x' * 20000}"
    )
    called = {"action": {"item_id": "tool:acme/add"}, "assign": {"text": "${result.text}"}}
    nodes: dict[str, Any] = {
        "first": {**called, "next": "second"},
        "second": {**called, "next": "done"},
        "done": {"type": "return", "output": "${state.text}"},
    }
    graph(stage.house, nodes, state={"text": ""})


class _Heartbeat:
    """Measures for how long the event loop runs nothing else."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    async def run(self) -> None:
        while True:
            began = time.perf_counter()
            await anyio.sleep(_BEAT_S)
            self.worst_s = max(self.worst_s, time.perf_counter() - began - _BEAT_S)


async def _runs(root: Path, durability: Any) -> dict[str, object]:
    """Four threads and a graph at once."""
    stage, results = Stage(root, model=_model), list[Any]()
    _furnish(stage)
    async with stage.open(durability=durability) as rye:

        async def run() -> None:
            results.append(await rye.execute(_DIRECTIVE, {}, thread="fork"))

        async def walk() -> None:
            results.append(await rye.graphs.run(_GRAPH))

        async def all_at_once() -> None:
            async with anyio.create_task_group() as runs:
                for _ in range(THREADS):
                    runs.start_soon(run)
                runs.start_soon(walk)

        await run()  # keys and folders are made once
        await walk()
        results.clear()
        measured = await _measured(all_at_once)
    return {**measured, "states": [one.success for one in results]}


async def _opening(root: Path, durability: Any) -> dict[str, object]:
    """The first thread of a Rye, and the Rye's end: in a new project, and again."""
    stage = Stage(root, model=_model)
    _furnish(stage)

    async def open_and_close() -> None:
        async with stage.open(durability=durability) as rye:
            done = await rye.execute(_DIRECTIVE, {}, thread="fork")
        assert done.success, done

    async def twice() -> None:
        await open_and_close()
        await open_and_close()

    return await _measured(twice)


async def _commits(root: Path, durability: Any) -> dict[str, object]:
    """Commits until the log has begun again several times."""
    database = Database(root / "some.db", [[_TABLE]], durability=durability)
    longest_bytes = 0

    async def write() -> None:
        nonlocal longest_bytes
        for number in range(COMMITS):
            await database.until_free()
            with database.write() as run:
                run.execute("INSERT OR REPLACE INTO one VALUES (?, ?)", (number % 50, _ROW))
            if number % 20 == 0:  # the disk is slow, and this writer is not
                await anyio.sleep(0.02)
            longest_bytes = max(longest_bytes, (root / "some.db-wal").stat().st_size)
        await database.synced()

    await database.until_free()
    with database.write() as run:
        run.execute("INSERT INTO one VALUES (-1, ?)", (_ROW,))
    measured = await _measured(write)
    database.close()
    return {**measured, "longest_bytes": longest_bytes}


async def _measured(work: Callable[[], Awaitable[None]]) -> dict[str, object]:
    disk, beat = ctypes.CDLL(None), _Heartbeat()
    disk.slow_disk(SYNC_MS)
    async with anyio.create_task_group() as group:
        group.start_soon(beat.run)
        await work()
        group.cancel_scope.cancel()
    syncs, on_loop = disk.slow_disk_syncs(), disk.slow_disk_syncs_on_first()
    disk.slow_disk(0)
    return {"worst_gap_s": beat.worst_s, "syncs": syncs, "syncs_on_loop": on_loop}


if __name__ == "__main__":
    _root, _backend, _scenario, _durability = sys.argv[1:]
    _work = {"runs": _runs, "commits": _commits, "opening": _opening}[_scenario]
    print(json.dumps(anyio.run(_work, Path(_root), _durability, backend=_backend)))
