"""What writes state, on a disk whose syncs take long: what the event loop waited for meanwhile.

`python -m tests.slow_disk ROOT BACKEND SCENARIO DURABILITY`, with the library that `slow_disk.c`
makes in LD_PRELOAD, prints what was measured, as JSON.
"""

import atexit
import ctypes
import faulthandler
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Event, Lock
from threading import enumerate as enumerate_threads
from typing import Any, Final, Self

import anyio
import anyio.to_thread

from ryecore import AgentRunnerDeps, Rye, ToolRegistry
from ryecore.llm.parts import ToolResultPart
from ryecore.llm.request import LlmRequest
from ryecore.state.database import Database
from ryecore.testing import FunctionProvider, Turn, call, hang, say
from tests.graphs import graph
from tests.loops import loop_load
from tests.scripted_host import KEY, ScriptedHost, add
from tests.unit.lillux.system import wait_until_dead

SYNC_MS: Final = 10
LOG_SYNC_MS: Final = 20
TURNS: Final = 5
THREADS: Final = 4
COMMITS: Final = 2000
QUIET_COMMITS: Final = 600
"""How many of these wait while a checkpoint is made, which then leaves nothing in the log."""
RECORDS: Final = 10_000
_ROW: Final = "x" * 3000
_TABLE: Final = "CREATE TABLE one (number INTEGER PRIMARY KEY, text TEXT)"
_DIRECTIVE: Final = "directive:acme/adds"
_FACTORY: Final = "tests.slow_disk:deps"
_TOOL: Final = "tool:acme/add"
_GRAPH: Final = "tool:acme/flow"
_LOOPS: Final = ("in _run_once", "trio/_core/_run.py")
"""What stands in the stack of code that an event loop runs."""


def _model(request: LlmRequest) -> Turn:
    """Call the tool in all turns but the last."""
    done = sum(isinstance(part, ToolResultPart) for one in request.messages for part in one.parts)
    return call("add", {"a": done, "b": 1}) if done < TURNS - 1 else say("done")


def _stage(root: Path, model: Callable[[LlmRequest], Turn] = _model) -> ScriptedHost:
    root.mkdir(parents=True, exist_ok=True)
    host = ScriptedHost(root, model=model)
    environ = {"LD_PRELOAD": os.environ["LD_PRELOAD"], "PYTHONPATH": os.pathsep.join(sys.path)}
    host.workspace.environ |= environ
    host.write("acme/adds")
    host.workspace.python(
        "acme/add", "def execute(params, project):\n  return {'sum': 1, 'text': 'x' * 20000}"
    )
    called = {"action": {"item_id": _TOOL}, "assign": {"text": "${result.text}"}}
    nodes: dict[str, Any] = {
        "first": {**called, "next": "second"},
        "second": {**called, "next": "done"},
        "done": {"type": "return", "output": "${state.text}"},
    }
    graph(host.workspace, nodes, state={"text": ""})
    return host


async def _runs(root: Path, durability: Any) -> dict[str, object]:
    """Four threads and a graph at once."""
    host, results = _stage(root), list[Any]()
    async with host.open(durability=durability) as rye:

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


async def _turns(root: Path, durability: Any) -> dict[str, object]:
    """One thread; how many syncs there were from each of its requests to the next one."""
    library, syncs = ctypes.CDLL(None), list[int]()

    def model(request: LlmRequest) -> Turn:
        syncs.append(library.slow_disk_syncs())
        return _model(request)

    async with _stage(root, model).open(durability=durability) as rye:

        async def run() -> None:
            done: Any = await rye.execute(_DIRECTIVE, {}, thread="fork")
            assert done.success, done.error

        await run()  # keys and folders are made once
        syncs.clear()
        measured = await _measured(run)
    return {**measured, "of_each_turn": [after - before for before, after in pairwise(syncs)]}


async def _opening(root: Path, durability: Any) -> dict[str, object]:
    """What a Rye is first used for, in a project of its own each."""

    async def run(rye: Rye) -> None:
        done: Any = await rye.execute(_DIRECTIVE, {}, thread="fork")
        assert done.success, done.error
        thread = await rye.threads.thread(done.thread_id)
        assert [one async for one in thread.events()]

    async def start(rye: Rye) -> None:
        thread = await rye.start(_DIRECTIVE)
        assert [one async for one in thread.events()]
        assert (await thread.result()).success
        assert (await thread.cost()).tokens

    async def walk(rye: Rye) -> None:
        done = await rye.graphs.run(_GRAPH)
        assert done.success, done.error

    async def walk_apart(rye: Rye) -> None:
        done = await rye.execute(_GRAPH)
        assert done.success, done.error

    async def launch(rye: Rye) -> None:
        launched: Any = await rye.execute(_TOOL, async_=True)
        assert (await rye.threads.wait(launched.thread_id)).status == "completed"

    async def look(rye: Rye) -> None:
        await rye.threads.list()
        await rye.graphs.list()
        await rye.execute(_TOOL)

    async def all_at_once(rye: Rye) -> None:
        async with anyio.create_task_group() as group:
            for one in (run, start, walk, walk_apart, launch, look):
                group.start_soon(one, rye)

    async def use(host: ScriptedHost, use: Callable[[Rye], Awaitable[None]]) -> None:
        async with host.open(durability=durability, deps_factory=_FACTORY) as rye:
            await use(rye)

    async def use_all() -> None:
        for host, one in new:
            await use(host, one)

    new = [(_stage(root / one.__name__), one) for one in (run, walk, walk_apart, all_at_once)]
    await use(_stage(root / "other"), all_at_once)  # imports what they need
    return await _measured(use_all)


async def _resuming(root: Path, durability: Any) -> dict[str, object]:
    """Resume what has ended, and what a host left as it was killed."""
    host = _stage(root)
    options = {"durability": durability, "deps_factory": _FACTORY}

    async def killed() -> list[str]:
        """The thread and the run of a host that was killed."""
        done = await anyio.run_process(
            [sys.executable, "-P", "-m", "tests.slow_disk", root, "asyncio", "dying", durability],
            check=False,
        )
        assert done.returncode == 128 + signal.SIGKILL, done  # as a shell says it
        return done.stdout.decode().split()

    def lengthen(one: str) -> None:
        """Make a transcript long, and tear its last line."""
        record = {"timestamp": 1.5, "thread_id": one, "event_type": "token_delta", "payload": {}}
        with (host.workspace.path("state/threads") / one / "transcript.jsonl").open("a") as file:
            file.write(f"{json.dumps(record)}\n" * RECORDS + "torn")

    async def resume(thread_id: str, run_id: str, key: str, **how: Any) -> None:
        async with host.open(**options) as rye:
            assert (await rye.start(_DIRECTIVE, idempotency_key=key)).thread_id == thread_id
            assert (await rye.threads.resume(thread_id, "Go on.")).success
            assert (await rye.graphs.resume(run_id, **how)).success
            assert (await rye.threads.fork(thread_id, at=1, message="Go on.")).success

    async with host.open(**options) as rye:
        started = await rye.start(_DIRECTIVE, idempotency_key="ended")
        thread = await started.result()
        run = await rye.graphs.run(_GRAPH)
    await resume(thread.thread_id, run.run_id, "ended", at=0)  # imports what it needs
    left = await killed()
    for one in left:
        lengthen(one)
    return await _measured(partial(resume, *left, "died", rerun=True))


async def _dying(root: Path, durability: Any) -> None:
    """Begin a thread and a graph, print their ids, and die."""

    def endless(request: LlmRequest) -> Turn:
        turn = _model(request)
        return turn if turn != say("done") else hang()

    ours = {"user_space": root / "user", "agent": _agent(endless), "durability": durability}
    async with Rye.open(root / "project", **ours) as rye:
        thread = await rye.start(_DIRECTIVE, idempotency_key="died")
        async for event in thread.events():
            if event.type == "checkpoint":
                break
        run = await rye.graphs.start(_GRAPH)
        async for event in run.events():
            if event.type == "node_started":
                print(thread.thread_id, run.run_id, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)


async def _apart(root: Path, durability: Any) -> dict[str, object]:
    """A thread, a tool and a graph in processes of their own, each begun by a host that waits."""
    host, pids = _stage(root), list[int]()

    async def launched(rye: Rye, ref: str, **options: Any) -> None:
        started: Any = await rye.execute(ref, {}, async_=True, **options)
        pids.append(started.pid)
        report = await rye.threads.wait(started.thread_id)
        assert report.status == "completed", report.result

    async def all_of_them(rye: Rye) -> None:
        await launched(rye, _DIRECTIVE, thread="fork")
        await launched(rye, _TOOL)
        await launched(rye, _GRAPH)
        done = await rye.execute(_GRAPH, {})
        assert done.success, done.error

    options = {"durability": durability, "deps_factory": _FACTORY}
    async with host.open(**options) as rye:
        measured = await _measured(partial(all_of_them, rye), is_warm=False)
    for pid in pids:
        wait_until_dead(pid)
    reports = [json.loads(one.read_text()) for one in host.workspace.user.glob("measured-*.json")]
    return {**measured, "processes": reports}


async def _commits(root: Path, durability: Any) -> dict[str, object]:
    """Commits until the log has begun again several times."""
    database = Database(root / "some.db", [[_TABLE]], durability=durability)
    longest_bytes = 0

    async def write() -> None:
        nonlocal longest_bytes
        for number in range(COMMITS):
            async with database.writing() as run:
                run.execute("INSERT OR REPLACE INTO one VALUES (?, ?)", (number % 50, _ROW))
            if number % 20 == 0:  # the disk is slow, and this writer is not
                await anyio.sleep(0.02)
            while number < QUIET_COMMITS and _is_checkpointing():
                await anyio.sleep(0.001)
            longest_bytes = max(longest_bytes, (root / "some.db-wal").stat().st_size)
        await database.synced()

    async with database.writing() as run:
        run.execute("INSERT INTO one VALUES (-1, ?)", (_ROW,))
    measured = await _measured(write, sync_ms=LOG_SYNC_MS)
    database.close()
    return {**measured, "longest_bytes": longest_bytes}


def _is_checkpointing() -> bool:
    return any(one.name == "ryecore-checkpoint" for one in enumerate_threads())


async def _faulty(root: Path, _: Any) -> dict[str, object]:
    """Each way in which an event loop may wait for a disk or for another, and one in a worker."""
    lock, has_lock = Lock(), Event()
    with (root / "file").open("w") as file:

        def sync_under_lock() -> None:
            with lock:
                has_lock.set()
                os.fsync(file.fileno())

        async def wait_in_each_way() -> None:
            await anyio.to_thread.run_sync(os.fsync, file.fileno())
            os.fdatasync(file.fileno())
            time.sleep(0.001)
            fcntl.flock(file, fcntl.LOCK_EX)
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.to_thread.run_sync, sync_under_lock)
                while not has_lock.is_set():
                    await anyio.sleep(0)
                with lock:
                    pass
            sum(range(10_000_000))

        return await _measured(wait_in_each_way)


async def _measured(
    work: Callable[[], Awaitable[None]], *, is_warm: bool = True, sync_ms: int = SYNC_MS
) -> dict[str, object]:
    """Measure work; what it computes only where all was imported before that it needs."""
    with _SlowDisk(sync_ms) as disk:
        async with loop_load() as load:
            await work()
    return {**disk.report(), **({"busiest_s": load.worst_s} if is_warm else {})}


class _SlowDisk:
    """Has the disk be slow, and notes what holds up this process's first thread meanwhile."""

    def __init__(self, sync_ms: int = SYNC_MS) -> None:
        self._sync_ms = sync_ms
        self._library = ctypes.CDLL(None)
        descriptor = os.memfd_create("stacks")
        self._stacks = os.fdopen(descriptor, "w+")
        faulthandler.register(signal.SIGUSR2, self._stacks, all_threads=False)

    def __enter__(self) -> Self:
        self._library.slow_disk(self._sync_ms)
        return self

    def __exit__(self, *_: object) -> None:
        self._syncs = self._library.slow_disk_syncs()
        self._syncs_with_gil = self._library.slow_disk_syncs_with_gil()
        self._library.slow_disk(0)

    def report(self) -> dict[str, object]:
        """Return how many syncs there were, and the stacks in which an event loop waited."""
        self._stacks.seek(0)
        stacks = self._stacks.read().split("most recent call first):\n")[1:]
        return {
            "syncs": self._syncs,
            "syncs_with_gil": self._syncs_with_gil,
            "waits_on_loop": [one for one in stacks if any(loop in one for loop in _LOOPS)],
        }


def deps() -> Mapping[str, Any]:
    """What a process of its own passes to `Rye.open`; from then on its disk is slow.

    What was measured until its end is left in the user's folder, as `measured-PID.json`.
    """
    disk = _SlowDisk().__enter__()

    def leave_report() -> None:
        disk.__exit__()
        path = Path(os.environ["HOME"], f"measured-{os.getpid()}.json")
        path.write_text(json.dumps(disk.report()))

    atexit.register(leave_report)
    return {"agent": _agent()}


def _agent(model: Callable[[LlmRequest], Turn] = _model) -> AgentRunnerDeps:
    provider = FunctionProvider(model, provider_id="scripted")
    return AgentRunnerDeps(
        resolve_provider={"scripted": provider}.get,
        key_for=lambda _: KEY,
        registry=ToolRegistry([add]),
        unpriced_models=frozenset({"scripted/*"}),
    )


_SCENARIOS: Final = {
    "faulty": _faulty,
    "runs": _runs,
    "turns": _turns,
    "commits": _commits,
    "opening": _opening,
    "apart": _apart,
    "resuming": _resuming,
    "dying": _dying,
}

if __name__ == "__main__":
    _root, _backend, _scenario, _durability = sys.argv[1:]
    _found = anyio.run(_SCENARIOS[_scenario], Path(_root), _durability, backend=_backend)
    print(json.dumps(_found))
