"""The registry of threads beside bare statements, and a launch beside a bare Python."""

import sqlite3
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from ryecore import SyncRye
from ryecore.state.database import Database
from ryecore.state.schema import MIGRATIONS
from ryecore.state.sql_registry import SqlRegistry
from ryecore.state.waiting import run_blocking
from ryecore.threads.result import StartedThread
from tests.benchmarks.harness import compare, report_ways
from tests.interpreter import PYTHON
from tests.workspace import Workspace

_ROUNDS = 15


def _registry(folder: Path) -> None:
    registry = SqlRegistry(Database(folder / "threads.db", MIGRATIONS))
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode = WAL")
    bare.execute("PRAGMA synchronous = NORMAL")
    bare.execute("CREATE TABLE threads (thread_id TEXT PRIMARY KEY, status TEXT, result TEXT)")

    def ours() -> None:
        thread_id = str(uuid.uuid4())
        run_blocking(registry.register(thread_id, "tool:acme/x"))
        fence = run_blocking(registry.claim(thread_id))
        run_blocking(registry.settle(thread_id, "completed", {"status": "success"}, fence=fence))

    def floor() -> None:
        thread_id = str(uuid.uuid4())
        for statement, values in (
            ("INSERT INTO threads VALUES (?, 'created', NULL)", (thread_id,)),
            ("UPDATE threads SET status = 'running' WHERE thread_id = ?", (thread_id,)),
            (
                "UPDATE threads SET status = 'completed', result = '{}' WHERE thread_id = ?",
                (thread_id,),
            ),
        ):
            bare.execute("BEGIN IMMEDIATE")
            bare.execute(statement, values)
            bare.execute("COMMIT")

    compare(
        "a thread's row: registered, claimed, settled",
        ours,
        floor,
        goal="beside three bare transactions",
        calls=50,
    )


def _launches(workspace: Workspace) -> None:
    ref = workspace.shell("acme/true", "true")
    times: dict[str, list[float]] = {"launch, until it returns": [], "launch, until it ended": []}
    floors: list[float] = []
    with workspace.sync() as rye:
        for turn in range(_ROUNDS + 1):
            begun = time.perf_counter()
            subprocess.run([PYTHON, "-c", "import asyncio, json, sqlite3"], check=True)
            bare = time.perf_counter() - begun
            returned, ended = _launch(rye, ref)
            if turn:
                floors.append(bare * 1e3)
                times["launch, until it returns"].append(returned * 1e3)
                times["launch, until it ended"].append(ended * 1e3)
    goal = "beside a bare Python that imports asyncio, json and sqlite3"
    report_ways(times, floors, dict.fromkeys(times, goal), "ms")


def _launch(rye: SyncRye, ref: str) -> tuple[float, float]:
    begun = time.perf_counter()
    launched = rye.execute(ref, async_=True)
    assert isinstance(launched, StartedThread)
    returned = time.perf_counter() - begun
    rye.threads.wait(launched.thread_id, timeout_s=60)
    ended = time.perf_counter() - begun
    return returned, ended


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        _registry(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        _launches(Workspace(Path(folder)))


if __name__ == "__main__":
    run()
