"""Search a thousand items: the first index, nothing changed, one file changed.

The floor is what no search that notices changes can leave out: walk the folder, ask for stats.
"""

import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path

from ryecore import SyncRye
from ryecore.search.walk import places
from tests.benchmarks.harness import compare, report
from tests.workspace import Workspace

_ITEMS = 1000
_WORDS = ("tide", "moon", "harbour", "chart", "lantern", "keel", "anchor", "gull", "reef", "rope")
_FIRST_ROUNDS = 5


def _furnish(workspace: Workspace) -> list[Path]:
    paths = []
    for number in range(_ITEMS):
        words = itertools.islice(itertools.cycle(_WORDS), number % 10, number % 10 + 120)
        text = f"---\ntitle: Note {number}\n---\n" + " ".join(words) + f" number{number}\n"
        paths.append(workspace.write(f"knowledge/n{number % 20}/k{number}.md", text))
    return paths


def _walk(folder: Path) -> int:
    count = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            os.stat(f"{parent}/{name}")
            count += 1
    return count


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as root:
        workspace = Workspace(Path(root))
        paths = _furnish(workspace)
        folder = workspace.path("knowledge")
        assert _walk(folder) == _ITEMS

        def search(rye: SyncRye) -> None:
            assert rye.search("number7", scope="knowledge").total == 1

        firsts, floors = [], []
        for _ in range(_FIRST_ROUNDS):
            shutil.rmtree(workspace.user / ".ai/cache", ignore_errors=True)
            with workspace.sync() as rye:
                begun = time.perf_counter_ns()
                search(rye)
                firsts.append((time.perf_counter_ns() - begun) / 1e6)
            begun = time.perf_counter_ns()
            _walk(folder)
            floors.append((time.perf_counter_ns() - begun) / 1e6)
        first, floor = sorted(firsts)[_FIRST_ROUNDS // 2], sorted(floors)[_FIRST_ROUNDS // 2]
        name = f"search {_ITEMS} items"
        report(
            f"{name}, first index", first, "ms", floor=floor, ratio=first / floor, goal="<= 1000 ms"
        )

        with workspace.sync() as rye:
            search(rye)
            time.sleep(0.3)  # the clock's grain
            search(rye)
            compare(
                f"{name}, unchanged",
                lambda: search(rye),
                lambda: _walk(folder),
                goal="<= 4x walk and stat",
                unit="ms",
            )
            turn = itertools.count()

            def change_and_search() -> None:
                path = paths[next(turn)]
                path.write_bytes(path.read_bytes() + b"more\n")
                search(rye)

            compare(
                f"{name}, one file changed",
                change_and_search,
                lambda: _walk(folder),
                goal="<= 6x walk and stat",
                unit="ms",
            )
            kinds = ("knowledge",)
            compare(
                f"{name}, our walk alone",
                lambda: [list(one.walk()) for one in places(rye._target.spaces, kinds, ())],
                lambda: _walk(folder),
                goal="<= 2x walk and stat",
                unit="ms",
            )


if __name__ == "__main__":
    run()
