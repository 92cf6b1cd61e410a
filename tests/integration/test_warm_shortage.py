"""Warm calls in hosts that run out of descriptors, processes, memory or disk."""

import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from ryecore import Rye
from tests.matrix import IS_SOAK, in_turn
from tests.unit.lillux.system import wait_until_dead
from tests.warm_hosts import (
    MARK,
    Hosts,
    Say,
    children,
    effects,
    furnish,
    open_rye,
    right_calls,
    start_of,
    stats_of,
    warm_up,
)

MIB: Final = 1024 * 1024
CALLS: Final = 100 if IS_SOAK else 50


def short_of(root: Path, say: Say, descriptors: int, before: bool, mib: int = 256) -> None:
    """Set the bound before the pool is there, or while it is warm."""

    async def main() -> None:
        if before:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        async with open_rye(root, warm_memory_mib=mib) as rye:
            if not before:
                await warm_up(rye)
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
            # Each has some files open while it is looked up, and three for its process.
            warm = await right_calls(rye, range(CALLS), descriptors // 8)
        say([warm, sorted(children())])

    anyio.run(main)


@pytest.mark.parametrize(("before", "descriptors"), in_turn([True, False], [64, 256]))
def test_with_few_descriptors_every_call_is_answered(
    hosts: Hosts, tmp_path: Path, before: bool, descriptors: int
) -> None:
    furnish(tmp_path)
    warm, left = hosts.run(short_of, tmp_path, descriptors, before)
    assert left == []
    assert warm > 0
    assert sorted(one for one in effects(tmp_path) if one >= 0) == list(range(CALLS))


@contextmanager
def control_group(controller: str) -> Iterator[Path]:
    """A group of processes that can be bounded, where one may be made."""
    own = Path("/proc/self/cgroup").read_text().splitlines()
    base = Path("/sys/fs/cgroup") / controller
    for line in own:
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            base = base / path.strip("/")
    folder = base / f"warm-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip(f"making a control group for {controller} is not permitted here")
    try:
        if not (folder / f"{controller}.max").exists() and controller == "pids":
            pytest.skip("there is no controller for the number of processes here")
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a control group, once the processes in it have ended."""
    while running := (folder / "cgroup.procs").read_text().split():
        wait_until_dead(*map(int, running))
    folder.rmdir()


def within_processes(root: Path, say: Say, folder: str) -> None:
    """Call a tool until its spares take all the room that there is, then another one."""
    group = Path(folder)
    (group / "cgroup.procs").write_text(str(os.getpid()))

    async def main() -> None:
        async with open_rye(root) as rye:
            await warm_up(rye)
            with anyio.fail_after(30):
                while stats_of(rye)[0].spares < 4:  # on a busy machine, they go before there are 4
                    await right_calls(rye, range(16))
                    with anyio.move_on_after(1):
                        while stats_of(rye)[0].spares < 4:
                            await anyio.sleep(0.001)
            (group / "pids.max").write_text((group / "pids.current").read_text())
            other = await rye.execute("tool:a/other", {"id": 1000}, trace=True)
            await right_calls(rye, range(100, 120))
            again = [await rye.execute("tool:a/other", {"id": n}) for n in range(1001, 1006)]
            ended = [[one.success, str(one.error)] for one in (other, *again)]
            (group / "pids.max").write_text("max")
            await warm_up(rye)
        say([ended, sorted(children())])

    anyio.run(main)


def test_when_processes_are_short_spares_make_way(hosts: Hosts, tmp_path: Path) -> None:
    workspace = furnish(tmp_path)
    source = workspace.path("tools/a/mark.py").read_text().partition("\n")[2]
    workspace.write("tools/a/other.py", source)
    with control_group("pids") as folder:
        ended, left = hosts.run(within_processes, tmp_path, str(folder))
    assert left == []
    assert all(success for success, _ in ended), ended


def within_memory(root: Path, say: Say, folder: str) -> None:
    """Have a tool that eats all memory among those that are called."""
    group = Path(folder)
    (group / "cgroup.procs").write_text(str(os.getpid()))

    async def main() -> None:
        async with open_rye(root) as rye:
            await warm_up(rye)
            limit = int((group / "memory.usage_in_bytes").read_text()) + 48 * MIB
            (group / "memory.limit_in_bytes").write_text(str(limit))
            greedy = await rye.execute(MARK, {"id": 0, "eat": 512 * MIB}, trace=True)
            await right_calls(rye, range(1, 40), 4)
            await warm_up(rye)
        say([greedy.success, start_of(greedy), str(greedy.error), sorted(children())])

    anyio.run(main)


def test_a_tool_that_is_killed_for_memory_harms_no_other_call(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    with control_group("memory") as folder:
        if not (folder / "memory.limit_in_bytes").exists():
            pytest.skip("the controller for memory has another form here")
        success, start, error, left = hosts.run(within_memory, tmp_path, str(folder))
    assert (success, start, left) == (False, "warm", [])
    assert "SIGKILL" in error or "signal 9" in error


def on_a_full_disk(root: Path, say: Say) -> None:
    async def mute(rye: Rye) -> list[object]:
        done = [await rye.execute(MARK, {"id": n, "mute": 1}, trace=True) for n in range(8)]
        return [str(one.error or start_of(one)) for one in done]

    async def main() -> None:
        async with open_rye(root) as rye:
            await warm_up(rye)
            fill = os.open(root / "fill", os.O_WRONLY | os.O_CREAT)
            try:
                while True:
                    os.write(fill, b"x" * 4096)
            except OSError:
                pass
            full = await mute(rye)
            failing = await rye.execute(MARK, {"id": 0, "wait": str(root / "pipe")})
            os.close(fill)
            (root / "fill").unlink()
            free = await mute(rye)
        say([full, failing.success, free, sorted(children())])

    anyio.run(main)


@pytest.mark.parametrize("small_disk", ["4m"], indirect=True)
def test_on_a_full_disk_calls_stay_warm(hosts: Hosts, small_disk: Path) -> None:
    root = small_disk / "workspace"
    root.mkdir()
    furnish(root)
    full, failing, free, left = hosts.run(on_a_full_disk, root)
    assert Counter(full) == Counter(free) == {"warm": 8}
    assert (failing, left) == (False, [])
