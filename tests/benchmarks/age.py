"""What a project's age costs: the same operations beside 100, 1,000 and 10,000 ended threads.

Each project has 5,000 items of knowledge; one more, which is young, has 100 threads and 100 items.
The last 100 are real, half of them runs of a graph, so that a list shows as many in each project.
The older ones are copies, one in ten of a run of a graph, with rows and files of their own; their
exports are signed anew, because a search may read them. The projects take turns, so that a figure
is a ratio within one run.
"""

import asyncio
import gc
import itertools
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Final

from ryecore import Rye, SigningKey
from ryecore.items.signing import sign_content
from ryecore.state.exports import EXPORT_KIND, export_path, sign_document
from tests.benchmarks.harness import report
from tests.benchmarks.peers.ryecore_steps import GRAPH, write_graph
from tests.benchmarks.turns import FakeProvider
from tests.scripted_host import ScriptedHost

_AGES: Final = (100, 1_000, 10_000)
_ITEMS: Final = 5_000
_YOUNG: Final = 100
"""How many threads and items the young project has."""

_REAL, _REAL_GRAPHS = 50, 50  # a page of each kind
_STEPS = 3
_ROUNDS, _FIRST_ROUNDS = 15, 2
_WORDS = ("tide", "moon", "harbour", "chart", "lantern", "keel", "anchor", "gull", "reef", "rope")
_GOAL: Final = "≤ 1.2 of the same beside 100 threads"

Operation = Callable[[Rye], Awaitable[Any]]


class _Model(FakeProvider):
    """The fake model: it answers at once."""

    provider_id = "scripted"


class _Project:
    """A project of an age.

    Args:
        folder: Where.
        threads: How many threads have ended in it.
        items: How many items of knowledge it has.
    """

    def __init__(self, folder: Path, threads: int, items: int) -> None:
        folder.mkdir()
        self.threads, self.items = threads, items
        self._stage = ScriptedHost(folder, model=_Model(0))
        self._workspace = self._stage.workspace
        self._ai = self._workspace.path("")
        self.ref = self._stage.write("acme/add", "Add.", permissions="")
        self.shown = ""
        """A thread that is real, and neither the first nor the last."""

    def open(self) -> Rye:
        return self._stage.open()

    async def furnish(self) -> None:
        """Write the items and the threads."""
        write_graph(self._workspace, _STEPS)
        folder = self._workspace.path("knowledge")
        for number in range(min(self.items, 20)):
            (folder / f"n{number}").mkdir(parents=True)
        for number in range(self.items):
            words = itertools.islice(itertools.cycle(_WORDS), number % 10, number % 10 + 120)
            text = f"---\ntitle: Note {number}\n---\n" + " ".join(words) + f" number{number}\n"
            name = f"n{number % 20}/k{number}.md"
            signed, *_ = sign_content(text.encode(), ".md", "knowledge", name, self._workspace.key)
            (folder / name).write_bytes(signed)
        async with self.open() as rye:
            graph = (await rye.graphs.run(GRAPH)).run_id
            threads = [(await rye.execute(self.ref, thread="fork")) for _ in range(2)]
            first, self.shown = (done.thread_id for done in threads)
        more = self.threads - _REAL - _REAL_GRAPHS
        self._copy(graph, more // 10)
        self._copy(first, more - more // 10)
        async with self.open() as rye:
            for _ in range(_REAL_GRAPHS - 1):
                await rye.graphs.run(GRAPH)
            for _ in range(_REAL - 2):
                await rye.execute(self.ref, thread="fork")

    def forget_index(self) -> None:
        """Remove the index of searches."""
        shutil.rmtree(self._workspace.user / ".ai/cache", ignore_errors=True)

    def _copy(self, thread_id: str, count: int) -> None:
        """Copy a thread that has ended, so many times."""
        stem, _, number = thread_id.rpartition("-")
        earlier = int(number) - count - 1
        names = [f"{stem}-{earlier + one}" for one in range(count)]
        self._copy_rows(thread_id, names)
        self._copy_files(thread_id, names)

    def _copy_rows(self, thread_id: str, names: list[str]) -> None:
        (path,) = (self._ai / "state/threads").glob("*/threads.db")
        with closing(sqlite3.connect(path)) as database, database:
            for table in ("threads", "accounts", "results", "charges"):
                of_one = f"SELECT * FROM {table} WHERE thread_id = ?"
                for row in database.execute(of_one, (thread_id,)).fetchall():
                    marks = ", ".join("?" * len(row))
                    database.executemany(
                        f"INSERT INTO {table} VALUES ({marks})",
                        (
                            [
                                value.replace(thread_id, name) if isinstance(value, str) else value
                                for value in row
                            ]
                            for name in names
                        ),
                    )

    def _copy_files(self, thread_id: str, names: list[str]) -> None:
        folder = self._ai / "state/threads" / thread_id
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        pem = (self._workspace.user / ".ai/state/keys/run_key.pem").read_bytes()
        key, export = SigningKey.from_pem(pem), export_path(self._ai, thread_id)
        body = export.read_text().partition("\n")[2] if export.exists() else ""
        old = thread_id.encode()
        for name in names:
            copy = folder.with_name(name.rpartition("/")[2])
            copy.mkdir()
            for file, content in files.items():
                (copy / file).write_bytes(content.replace(old, name.encode()))
            if body:
                text = body.replace(thread_id, name)
                export_path(self._ai, name).write_bytes(sign_document(EXPORT_KIND, name, text, key))


def _operations(project: _Project) -> dict[str, Operation]:
    shown = project.shown
    return {
        "threads list": lambda rye: rye.threads.list(all=True),
        "threads show": lambda rye: rye.threads.show(shown),
        "threads verify": lambda rye: rye.threads.verify(shown),
        "a thread started and ended": lambda rye: rye.execute(project.ref, thread="fork"),
        "search, again": lambda rye: rye.search("number7", scope="knowledge"),
        "fetch": lambda rye: rye.fetch("knowledge:n7/k7"),
        "graphs list": lambda rye: rye.graphs.list(),
    }


async def _timed(run: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    await run()
    return (time.perf_counter() - begun) * 1e3


async def _first_searches(projects: list[_Project]) -> list[list[float]]:
    """The first search of each project, by rounds."""
    rounds = []
    for _ in range(_FIRST_ROUNDS):
        times = []
        for project in projects:
            project.forget_index()
            async with project.open() as rye:
                times.append(await _timed(lambda: rye.search("number7", scope="knowledge")))
        rounds.append(times)
    return rounds


def _report(name: str, projects: list[_Project], rounds: list[list[float]]) -> None:
    medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
    young, *_, last = medians
    ages = {
        f"at_{one.threads}": value for one, value in zip(projects[1:], medians[1:], strict=True)
    }
    report(
        f"{name}, beside {_AGES[-1]:,} ended threads and {_ITEMS:,} items",
        last,
        "ms",
        **ages,
        ratio=statistics.median(times[-1] / times[1] for times in rounds),
        least_ratio=min(times[-1] for times in rounds) / min(times[1] for times in rounds),
        young=young,
        young_ratio=statistics.median(times[-1] / times[0] for times in rounds),
        goal=_GOAL,
    )


async def _measure(folder: Path) -> None:
    sizes = [(_YOUNG, _YOUNG), *((age, _ITEMS) for age in _AGES)]
    projects = [_Project(folder / str(number), *size) for number, size in enumerate(sizes)]
    for project in projects:
        await project.furnish()
    gc.collect()
    _report("search, first", projects, await _first_searches(projects))
    operations = [_operations(project) for project in projects]
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(project.open()) for project in projects]
        for name in operations[0]:
            rounds = []
            for _ in range(_ROUNDS + 1):
                times = []
                for rye, those in zip(opened, operations, strict=True):
                    operation = those[name]
                    times.append(await _timed(lambda: operation(rye)))  # noqa: B023
                rounds.append(times)
            _report(name, projects, rounds[1:])


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder)))


if __name__ == "__main__":
    run()
