"""Threads over one, two and four workers of a queue, beside the same jobs without any work in them.

A thread is of two turns, with a call of a tool between them, on a model that answers at once. It
may call that one tool, as the agent of the peer. The floors are workers by hand, in SQL with SKIP
LOCKED: one whose jobs are empty, and one whose jobs write what a thread of two turns leaves, in
`floor/postgres_threads.py`; and DBOS with an empty workflow. All run at most 8 at once and ask for
more after 50 ms, on a durable server, in the same run. With a Python that has pydantic-ai in
`RYE_PEERS`, an agent of it on DBOS does the same work, too.

The floor that writes a thread is the one to compare with: until commit 4b0ee80c there was the empty
one alone, which keeps nothing, and threads could call all 100 tools of the bundle.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import anyio
import psycopg
from dbos import DBOS, DBOSClient

from tests.benchmarks.floor.postgres_threads import BareThreads
from tests.benchmarks.harness import report
from tests.postgres import find_binaries, serving_postgres
from tests.thread_host import FACTORY, PlannedWorkspace
from tests.workspace import Workspace

__all__ = ["run"]

_WORKERS = (1, 2, 4)
_PASSES = 3
"""All ways take turns in each pass, as hours and minutes of a machine differ."""
_FLOOR = "SQL, a thread"
_GOAL = f"at most 2 times {_FLOOR}, by hand"
_MANY = {
    "ryecore": 300,
    "pydantic-ai on DBOS": 100,
    "DBOS": 300,
    "SQL": 1_000,
    _FLOOR: 500,
}
_PERMITS = "<execute><tool>host/mark</tool></execute>"
_PEERS = "RYE_PEERS"
_ONE_BY_ONE = 12
_CALLS_AT_ONCE = 16
_JOBS = (
    "CREATE TABLE jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, worker bigint,"
    " status text NOT NULL DEFAULT 'waiting', ended_at timestamptz);"
    " CREATE INDEX waiting ON jobs (id) WHERE status = 'waiting'"
)


def run() -> None:
    """Measure all three; say so where there is no server."""
    if find_binaries() is None:
        print("queues: left out, as PostgreSQL's server is missing (apt-get install postgresql).")
        return
    ways = {
        name: measure
        for name, measure in _WAYS.items()
        if name != "pydantic-ai on DBOS" or _PEERS in os.environ
    }
    for workers in _WORKERS:
        passes: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(_PASSES):
            for name, measure in ways.items():
                with serving_postgres(is_durable=True) as address:
                    latency_ms, a_second = measure(address, workers)
                passes[name].append((statistics.median(latency_ms), a_second))
        floor = passes[_FLOOR]
        for name, found in passes.items():
            report(
                f"{name}: a job from start to end, {workers} workers",
                statistics.median(one for one, _ in found),
                "ms",
                least=min(one for one, _ in found),
                ratio=statistics.median(
                    one / by_hand for (one, _), (by_hand, _) in zip(found, floor, strict=True)
                ),
                goal=_GOAL,
            )
            report(
                f"{name}: jobs a second, {workers} workers",
                statistics.median(one for _, one in found),
                "a second",
                jobs=_MANY[name],
                ratio=statistics.median(
                    by_hand / one for (_, one), (_, by_hand) in zip(found, floor, strict=True)
                ),
                goal=_GOAL,
            )


@contextmanager
def _processes(
    command: Sequence[str], workers: int, ready: str, environ: dict[str, str] | None = None
) -> Iterator[None]:
    """Run workers, each of which has said that it is ready."""
    with ExitStack() as ended:
        for _ in range(workers):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            worker = ended.enter_context(
                subprocess.Popen(command, env=environ, text=True, **pipes)  # type: ignore[call-overload]
            )
            ended.callback(worker.kill)
            said = ""
            while ready not in said:  # warnings may come first
                line = worker.stdout.readline()
                assert line, said
                said += line
            # It logs its runs, and would wait for a full pipe.
            threading.Thread(target=worker.stdout.read, daemon=True).start()
        yield


def _floor(kind: str, address: str, python: str = sys.executable) -> list[str]:
    return [python, "-m", "tests.benchmarks.floor.queue_workers", kind, address]


def _threads_by_hand(address: str, workers: int) -> tuple[list[float], float]:
    bare = BareThreads(address, "bare")
    bare.set_up()
    return _by_hand(address, workers, "thread", bare)


def _by_hand(
    address: str, workers: int, kind: str = "sql", threads: BareThreads | None = None
) -> tuple[list[float], float]:
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(_JOBS)
        numbers = count(1)

        def put(jobs: int) -> None:
            for _ in range(jobs):
                if threads is not None:  # its row comes first
                    threads.register(str(next(numbers)))
                server.execute("INSERT INTO jobs DEFAULT VALUES")

        def wait() -> None:
            left = "SELECT count(*) FROM jobs WHERE status <> 'ended'"
            while server.execute(left).fetchone() != (0,):
                time.sleep(0.001)

        with _processes(_floor(kind, address), workers, "ready"):
            latency_ms = [_timed(lambda: (put(1), wait())) * 1000 for _ in range(_ONE_BY_ONE)]
            many = _MANY["SQL" if threads is None else _FLOOR]
            return latency_ms, many / _timed(lambda: (put(many), wait()))


def _with_peer(address: str, workers: int) -> tuple[list[float], float]:
    command = _floor("pydantic", address, os.environ[_PEERS])
    return _with_dbos(address, workers, command, _MANY["pydantic-ai on DBOS"])


def _with_dbos(
    address: str, workers: int, command: list[str] | None = None, many: int = _MANY["DBOS"]
) -> tuple[list[float], float]:
    DBOS.migrate(address)
    with _processes(command or _floor("dbos", address), workers, "ready"):
        client = DBOSClient(system_database_url=address, application_name="floor")
        with psycopg.connect(address, autocommit=True) as server:

            def put(count: int) -> None:
                for _ in range(count):
                    client.enqueue(
                        {"workflow_name": "empty", "queue_name": "floor", "app_version": "1"}, "x"
                    )

            def wait() -> None:
                left = "SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'"
                while server.execute(left).fetchone() != (0,):
                    time.sleep(0.001)

            latency_ms = [_timed(lambda: (put(1), wait())) * 1000 for _ in range(_ONE_BY_ONE)]
            a_second = many / _timed(lambda: (put(many), wait()))
        client.destroy()
        return latency_ms, a_second


def _timed(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


def _ours(address: str, workers: int) -> tuple[list[float], float]:
    with tempfile.TemporaryDirectory() as folder:
        state = f"{address}&schema=shop"
        planned = PlannedWorkspace(Workspace(Path(folder)))
        planned.write("short", ["mark", {"text": "short"}], permissions=_PERMITS)
        remotes = {"remotes": {"queue": {"queue": state}}}
        planned.workspace.write("config/remotes/remotes.yaml", json.dumps(remotes))
        environ = {**planned.environ, "RYE_STATE": state, "PYTHONWARNINGS": "ignore"}
        project = str(planned.workspace.project)
        arguments = ("node", "work", "--deps", FACTORY, "--project", project)
        command = [sys.executable, "-m", "ryecore.cli", *arguments]
        with _processes(command, workers, "ryecore works as", environ):
            return anyio.run(_threads, planned, state)


async def _threads(planned: PlannedWorkspace, state: str) -> tuple[list[float], float]:
    async with planned.open(state=state) as rye:

        async def one() -> None:
            done = await rye.execute("directive:acme/short", thread="fork", target="remote:queue")
            assert done.success, done

        await one()  # connects
        latency_ms = []
        for _ in range(_ONE_BY_ONE):
            began = time.perf_counter()
            await one()
            latency_ms.append((time.perf_counter() - began) * 1000)
        left, many = anyio.Semaphore(_CALLS_AT_ONCE), _MANY["ryecore"]
        started = []

        async def start() -> None:
            async with left:
                started.append(await rye.start("directive:acme/short", target="remote:queue"))

        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(many):
                group.start_soon(start)
        for thread in started:
            assert (await thread.result()).success
        return latency_ms, many / (time.perf_counter() - began)


_WAYS = {
    "SQL": _by_hand,
    _FLOOR: _threads_by_hand,
    "DBOS": _with_dbos,
    "pydantic-ai on DBOS": _with_peer,
    "ryecore": _ours,
}


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    run()
