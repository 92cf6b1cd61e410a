"""Many warm calls: nothing grows, nothing is lost, and no bound is passed."""

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest

from ryecore import Rye
from tests.matrix import IS_SOAK
from tests.warm_hosts import (
    MARK,
    Hosts,
    Say,
    children,
    effects,
    furnish,
    is_alive,
    open_rye,
    open_sync,
    start_of,
    stats_of,
    warm_up,
)
from tests.workspace import Workspace

MIB: Final = 1024 * 1024


# What hosts do


async def call_all(rye: Rye, ids: range, at_once: int, ref: str = MARK) -> dict[str, int]:
    """Call once for each id, and see that each answers right; how many started warm and cold."""
    counts, waiting = {"warm": 0, "cold": 0}, iter(ids)

    async def caller() -> None:
        for number in waiting:
            done = await rye.execute(ref, {"id": number}, trace=True)
            assert done.success, done.error
            assert isinstance(done.data, dict)
            assert (done.data["id"], done.data["parent"]) == (number, os.getpid())
            counts[str(start_of(done))] += 1

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(caller)
    return counts


def memory_of(pid: int | str, line: str) -> int:
    """A line of a process's memory, in bytes."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (found,) = [each for each in text.splitlines() if each.startswith(line)]
    return int(found.split()[1]) * 1024


async def quiet(rye: Rye) -> dict[str, int]:
    """What a host has when nothing runs and nothing is on its way; the spares do not count."""
    with anyio.fail_after(30):
        while True:
            (template,) = stats_of(rye)
            standing, descriptors = children(), len(os.listdir("/proc/self/fd"))
            await anyio.sleep(0.05)
            is_still = stats_of(rye)[0].forks == template.forks and standing == children()
            if is_still and len(standing) == 1 + template.spares and all(map(is_alive, standing)):
                break
    return {
        "rss": memory_of("self", "Rss:"),
        "template": memory_of(template.pid, "Rss:"),
        # Each spare has its three streams, its go and its identity.
        "descriptors": descriptors - 5 * template.spares,
        "threads": len(os.listdir("/proc/self/task")),
        "forks": template.forks,
    }


def many_calls(root: Path, say: Say, calls: int) -> None:
    async def main() -> None:
        async with open_rye(root) as rye:
            await warm_up(rye)
            await call_all(rye, range(100), 8)
            before = await quiet(rye)
            counts = await call_all(rye, range(100, 100 + calls), 8)
            after = await quiet(rye)
        say({"before": before, "after": after, "counts": counts, "left": sorted(children())})

    anyio.run(main)


def crowd(root: Path, say: Say, backend: str, sizes: list[int]) -> None:
    async def main() -> None:
        first, counts = 0, []
        async with open_rye(root) as rye:
            await warm_up(rye)
            for size in sizes:
                counts.append(await call_all(rye, range(first, first + size), size))
                first += size
        say({"counts": counts, "left": sorted(children())})

    anyio.run(main, backend=backend)


def all_kinds(root: Path, say: Say, calls: int) -> None:
    """Callers on asyncio, on trio and on plain threads, of one Rye each, all at the same time."""
    counts: list[dict[str, int]] = []

    async def on_a_loop(first: int) -> None:
        async with open_rye(root) as rye:
            await warm_up(rye)
            counts.append(await call_all(rye, range(first, first + calls), 10))

    def on_threads(first: int) -> None:
        with open_sync(root) as rye:

            def caller(ids: range) -> None:
                for number in ids:
                    done = rye.execute(MARK, {"id": number}, trace=True)
                    assert done.success, done.error
                    assert isinstance(done.data, dict)
                    assert done.data["id"] == number
                    counts.append({str(start_of(done)): 1})

            run_threads([partial(caller, range(first + n, first + calls, 5)) for n in range(5)])

    run_threads(
        [
            lambda: anyio.run(on_a_loop, 0, backend="asyncio"),
            lambda: anyio.run(on_a_loop, calls, backend="trio"),
            partial(on_threads, 2 * calls),
        ]
    )
    warm = sum(count.get("warm", 0) for count in counts)
    say({"warm": warm, "left": sorted(children())})


def run_threads(bodies: list[Callable[[], object]]) -> None:
    """Run all at once; what one raises is raised."""
    raised: list[BaseException] = []

    def guarded(body: Callable[[], object]) -> None:
        try:
            body()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


@asynccontextmanager
async def watched(rye: Rye) -> AsyncIterator[dict[str, int]]:
    """The most templates, and the most memory of them, that were ever seen together."""
    most = {"templates": 0, "bytes": 0}

    async def look() -> None:
        while True:
            standing = [one for one in stats_of(rye) if one.pid]
            most["templates"] = max(most["templates"], len(standing))
            most["bytes"] = max(most["bytes"], sum(one.memory_bytes for one in standing))
            await anyio.sleep(0.02)

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        yield most
        group.cancel_scope.cancel()


def many_tools(root: Path, say: Say, tools: int, rounds: int, memory_mib: int) -> None:
    """Groups of tools, each called some rounds, so that those of the group before are idle."""

    async def main() -> None:
        warm = total = 0
        async with open_rye(root, warm_memory_mib=memory_mib) as rye, watched(rye) as most:
            for group in range(0, tools, 12):
                names = range(group, min(group + 12, tools))
                for turn in range(rounds):
                    for name in names:
                        number = name * 1000 + turn
                        ids = range(number, number + 1)
                        counts = await call_all(rye, ids, 1, f"tool:a/mark{name}")
                        warm, total = warm + counts["warm"], total + 1
                await anyio.sleep(1.0)  # what was called within a second makes no way
            say({"warm": warm, "total": total, "most": most, "standing": len(children())})

    anyio.run(main)


# What is seen of it


def test_many_calls_leave_a_host_as_it_was(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    calls = 10_000 if IS_SOAK else 150
    said = hosts.run(many_calls, tmp_path, calls, within_s=600)
    before, after = said["before"], said["after"]
    assert said["left"] == []
    assert after["descriptors"] <= before["descriptors"] + 2, said
    assert after["threads"] == before["threads"], said
    assert after["rss"] - before["rss"] < 4 * MIB, said
    assert after["template"] - before["template"] < 2 * MIB, said
    # At 10,000 forks a template is replaced; some calls start cold meanwhile.
    assert said["counts"]["warm"] >= 0.95 * calls, said
    assert sorted(one for one in effects(tmp_path) if one >= 0) == list(range(100 + calls))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_many_at_once_run_once_each(hosts: Hosts, tmp_path: Path, backend: str) -> None:
    furnish(tmp_path)
    sizes = [200, 500] if IS_SOAK else [100] if backend == "asyncio" else [50]
    said = hosts.run(crowd, tmp_path, backend, sizes)
    assert said["left"] == []
    assert [sum(count.values()) for count in said["counts"]] == sizes
    assert all(count["warm"] > count["cold"] for count in said["counts"]), said
    assert sorted(one for one in effects(tmp_path) if one >= 0) == list(range(sum(sizes)))


def test_callers_of_every_kind_at_the_same_time(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    calls = 1000 if IS_SOAK else 15
    said = hosts.run(all_kinds, tmp_path, calls)
    assert said["left"] == []
    assert said["warm"] >= 2 * calls, said
    assert sorted(one for one in effects(tmp_path) if one >= 0) == list(range(3 * calls))


def with_tools(root: Path, count: int) -> Workspace:
    workspace = furnish(root)
    source = workspace.path("tools/a/mark.py").read_text().partition("\n")[2]
    for number in range(count):
        workspace.write(f"tools/a/mark{number}.py", source)
    return workspace


@pytest.mark.parametrize(
    ("memory_mib", "tools", "rounds"), [(16, 6, 3), *([(256, 50, 20)] if IS_SOAK else [])]
)
def test_more_tools_than_there_is_room_for(
    hosts: Hosts, tmp_path: Path, memory_mib: int, tools: int, rounds: int
) -> None:
    """That there are never more than 16 is the soak's: `policy.rs` tests it by itself."""
    with_tools(tmp_path, tools)
    said = hosts.run(many_tools, tmp_path, tools, rounds, memory_mib, within_s=300)
    assert said["total"] == tools * rounds
    assert len(effects(tmp_path)) == len(set(effects(tmp_path))) == tools * rounds
    assert said["most"]["templates"] <= 16, said
    if memory_mib == 16:
        # One that has just got ready may be seen before it finds that there is no room.
        assert said["most"]["bytes"] <= (16 + 12) * MIB, said
    else:
        assert said["warm"] > said["total"] / 10, said
