"""Warm calls in hosts that end in odd ways, fork, reap, run out of things, or change meanwhile."""

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest

from ryecore import ExecutionResult, Rye
from ryecore.errors import RyeClosed
from tests.matrix import IS_SOAK
from tests.warm_hosts import (
    MARK,
    Hosts,
    Say,
    calls,
    children,
    effects,
    furnish,
    has_starting,
    is_alive,
    none_left,
    open_rye,
    open_sync,
    right_calls,
    start_of,
    stats_of,
    warm_up,
)

MIB: Final = 1024 * 1024
PR_SET_CHILD_SUBREAPER: Final = 36


async def wait_for_no_child() -> None:
    with anyio.fail_after(5):
        while children():
            await anyio.sleep(0.005)


# The host ends


def ends(root: Path, say: Say, way: str) -> None:
    """Come to an end while some calls run warm."""
    pipe = root / "pipe"
    os.mkfifo(pipe)
    rye = open_sync(root)
    while start_of(rye.execute(MARK, {"id": -1}, trace=True)) != "warm":
        while has_starting(rye):
            time.sleep(0.005)
    for number in range(3):
        call = partial(rye.execute, MARK, {"id": number, "wait": str(pipe)})
        threading.Thread(target=call, daemon=True).start()
        while number not in effects(root):
            time.sleep(0.001)
    say("ready")
    if way == "os._exit":
        os._exit(0)
    if way == "exec":
        os.execv("/bin/sleep", ["sleep", "1000"])
    if way == "stays":
        time.sleep(1000)
    sys.exit(0)


@pytest.mark.parametrize(
    ("way", "number", "code"),
    [
        ("sys.exit", 0, 0),
        ("os._exit", 0, 0),
        ("exec", 0, -9),
        ("stays", signal.SIGTERM, -15),
        *([("stays", signal.SIGABRT, -6)] if IS_SOAK else []),
    ],
)
def test_a_host_that_ends_leaves_no_process(
    hosts: Hosts, tmp_path: Path, way: str, number: int, code: int
) -> None:
    furnish(tmp_path)
    with hosts.start(ends, tmp_path, way) as host:
        assert host.hear() == "ready"
        host.kill(number)
        if way == "exec":
            assert none_left(tmp_path, 5)
            assert is_alive(host.pid)
            host.kill()
        assert host.wait() == code
        assert none_left(tmp_path)


def closes(root: Path, say: Say) -> None:
    """Close a Rye while fifty calls run warm, and once more; leave one to the collector."""
    pipe = root / "pipe"
    os.mkfifo(pipe)
    ended: list[str] = []

    async def one(rye: Rye, number: int) -> None:
        try:
            await rye.execute(MARK, {"id": number, "wait": str(pipe)})
        except RyeClosed as error:
            ended.append(type(error).__name__)

    async def main() -> None:
        async with open_rye(root) as rye, anyio.create_task_group() as group:
            await warm_up(rye)
            for number in range(50):
                group.start_soon(one, rye, number)
            while not set(range(50)) <= set(effects(root)):
                await anyio.sleep(0.005)
            async with anyio.create_task_group() as closing:
                closing.start_soon(rye.aclose)
                closing.start_soon(rye.aclose)
            assert not children()
        await rye.aclose()
        other = open_rye(root)
        await warm_up(other)
        assert children()
        del other
        with anyio.fail_after(5):  # what still refers to it may be a thread that ends soon
            while children():
                gc.collect()
                await anyio.sleep(0.02)
        say(ended)

    anyio.run(main)


def test_a_rye_that_is_closed_leaves_no_process(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    assert hosts.run(closes, tmp_path) == ["RyeClosed"] * 50


def opens_often(root: Path, say: Say, times: int) -> None:
    async def main() -> None:
        standing: list[tuple[int, int]] = []
        for turn in range(times):
            async with open_rye(root) as rye:
                await warm_up(rye)
                await right_calls(rye, range(turn * 4, turn * 4 + 4), 4)
            assert not children(), turn
            standing.append((len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
        say(standing)

    anyio.run(main)


def test_opened_and_closed_many_times_nothing_stays(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    standing = hosts.run(opens_often, tmp_path, 200 if IS_SOAK else 3, within_s=300)
    assert standing[-1][0] <= standing[1][0] + 1, standing
    assert standing[-1][1] <= standing[1][1] + 1, standing


# The host forks


def forks(root: Path, say: Say) -> None:
    """Fork while a template stands, and call in both, with the same Rye and with another one."""
    rye = open_rye(root)

    async def in_parent(first: int) -> tuple[int, int]:
        await warm_up(rye)
        warm = await right_calls(rye, range(first, first + 20), 4)
        (template,) = stats_of(rye)
        return warm, template.pid

    async def in_child(theirs: int) -> None:
        assert theirs not in children()
        async with open_rye(root) as own:
            await warm_up(own)
            await warm_up(rye)
            assert await right_calls(own, range(1000, 1020), 4) > 0
            assert await right_calls(rye, range(2000, 2020), 4) > 0
            assert all(one.pid != theirs for one in (*stats_of(own), *stats_of(rye)))
        await rye.aclose()
        await wait_for_no_child()

    _, template = anyio.run(in_parent, 0)
    pid = os.fork()
    if pid == 0:
        try:
            anyio.run(in_child, template)
            os._exit(0)
        finally:
            import traceback

            traceback.print_exc()
            os._exit(1)
    warm, same = anyio.run(in_parent, 100)
    assert os.waitpid(pid, 0)[1] == 0
    assert (warm, same) == (20, template)
    assert anyio.run(in_parent, 200) == (20, template)
    anyio.run(rye.aclose)
    say(sorted(children()))


def test_a_host_and_its_fork_have_templates_of_their_own(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    assert hosts.run(forks, tmp_path) == []
    ran = Counter(number for number in effects(tmp_path) if number >= 0)
    assert (len(ran), max(ran.values())) == (100, 1)


def forks_often(root: Path, say: Say, times: int) -> None:
    """Fork in the middle of warm calls of other threads; each child calls, and ends."""
    stop = threading.Event()
    rye = open_sync(root)
    failed: list[str] = []
    warm: list[int] = []

    def work(number: int) -> None:
        while not stop.is_set():
            done = rye.execute(MARK, {"id": number}, trace=True)
            if not done.success:
                failed.append(str(done.error))
            elif start_of(done) == "warm":
                warm.append(number)

    def wait_for_warm_calls() -> None:
        enough = len(warm) + 4
        while len(warm) < enough and not failed:
            time.sleep(0.001)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    wait_for_warm_calls()
    for _ in range(times):
        if (pid := os.fork()) == 0:
            signal.alarm(30)
            with open_sync(root) as own:
                ended = [own.execute(MARK, {"id": -2}).success for _ in range(4)]
            os._exit(0 if all(ended) and not children() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        wait_for_warm_calls()
    stop.set()
    for worker in workers:
        worker.join()
    rye.close()
    say([failed, sorted(children())])


def test_forks_in_the_middle_of_warm_calls(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    assert hosts.run(forks_often, tmp_path, 50 if IS_SOAK else 2) == [[], []]


def in_worker(root: Path) -> tuple[int, int, int]:
    """What a worker of a pool of processes does."""

    async def main() -> int:
        async with open_rye(root) as rye:
            await warm_up(rye)
            return await right_calls(rye, range(10), 4)

    return os.getpid(), anyio.run(main), len(children())


def with_workers(root: Path, say: Say, method: str) -> None:
    first = in_worker(root)
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        found = pool.map(in_worker, [root] * 2, chunksize=1)
        pool.close()
        pool.join()
    say([first, *found])


@pytest.mark.parametrize("method", ["fork", "spawn"] if IS_SOAK else ["fork"])
def test_workers_of_multiprocessing(hosts: Hosts, tmp_path: Path, method: str) -> None:
    furnish(tmp_path)
    found = hosts.run(with_workers, tmp_path, method)
    assert len({pid for pid, _, _ in found}) >= 2
    assert {(warm, left) for _, warm, left in found} == {(10, 0)}


# The host has its own ideas of signals and children


def reaps(root: Path, say: Say, way: str, rounds: int) -> None:
    def handler(*_: object) -> None:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass

    def reaper() -> None:
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(0.0001)

    if way == "handler":
        signal.signal(signal.SIGCHLD, handler)
    elif way == "ignored":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    else:
        threading.Thread(target=reaper, daemon=True).start()

    async def main() -> None:
        ended: list[ExecutionResult] = []
        async with open_rye(root) as rye:
            for turn in range(rounds):
                ended += await calls(rye, range(turn * 10, turn * 10 + 10), 4)
        await wait_for_no_child()
        errors = [str(one.error) for one in ended if not one.success]
        say([sum(one.success for one in ended), sorted(set(errors))])

    anyio.run(main)


@pytest.mark.parametrize("way", ["handler", "ignored", "thread"])
def test_a_host_that_reaps_everything_loses_no_call(hosts: Hosts, tmp_path: Path, way: str) -> None:
    furnish(tmp_path)
    rounds = 10 if IS_SOAK else 2
    _, errors = hosts.run(reaps, tmp_path, way, rounds)
    assert all("reaped" in error for error in errors), errors
    assert sorted(effects(tmp_path)) == list(range(10 * rounds))


def adopts(root: Path, say: Say) -> None:
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    idle = threading.Event()
    threads = [threading.Thread(target=idle.wait) for _ in range(200)]
    for thread in threads:
        thread.start()

    async def main() -> None:
        async with open_rye(root) as rye:
            await warm_up(rye)
            warm = await right_calls(rye, range(20))
        say([warm, sorted(children())])

    anyio.run(main)
    idle.set()


def test_a_host_that_adopts_orphans_and_has_many_threads(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    warm, left = hosts.run(adopts, tmp_path)
    assert (warm, left) == (20, [])


def changes(root: Path, say: Say) -> None:
    """Be made nicer, and be given fewer processors, while warm."""

    def threads() -> list[int]:
        return [int(name) for name in os.listdir("/proc/self/task")]

    async def main() -> None:
        seen: list[object] = []
        async with open_rye(root) as rye:

            async def look() -> None:
                done = await rye.execute(MARK, {"id": 0}, trace=True)
                assert isinstance(done.data, dict)
                seen.append([start_of(done), done.data["niceness"], done.data["cpus"]])

            await warm_up(rye)
            await look()
            for tid in threads():
                os.setpriority(os.PRIO_PROCESS, tid, 3)
            await look()
            await warm_up(rye)
            await look()
            for tid in threads():
                os.sched_setaffinity(tid, {min(os.sched_getaffinity(0))})
            await look()
            await warm_up(rye)
            await look()
        say(seen)

    anyio.run(main)


def test_what_is_changed_of_a_host_is_so_for_the_next_call(hosts: Hosts, tmp_path: Path) -> None:
    furnish(tmp_path)
    cpus, nice = len(os.sched_getaffinity(0)), os.nice(0)
    if cpus == 1:
        pytest.skip("there is one processor alone, so that none can be taken away")
    assert hosts.run(changes, tmp_path) == [
        ["warm", nice, cpus],
        ["cold", 3, cpus],
        ["warm", 3, cpus],
        ["cold", 3, 1],
        ["warm", 3, 1],
    ]


def in_namespace(root: Path, say: Say, is_killed: bool) -> None:
    async def main() -> None:
        async with open_rye(root) as rye:
            await warm_up(rye)
            warm = await right_calls(rye, range(20))
            await warm_up(rye)
            say([warm, os.getpid(), stats_of(rye)[0].memory_bytes > 0])
            if is_killed:
                os.kill(os.getpid(), signal.SIGKILL)

    anyio.run(main)


def test_a_host_in_a_namespace_of_its_own(tmp_path: Path) -> None:
    below = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*below, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("making a namespace of processes is not permitted here")
    furnish(tmp_path)
    server = Hosts(__name__, below=below)
    try:
        for is_killed in (False, True):
            with server.start(in_namespace, tmp_path, is_killed) as host:
                warm, pid, is_measured = host.hear()
                assert host.wait() == (-signal.SIGKILL if is_killed else 0)
                assert none_left(tmp_path)
            assert (warm, is_measured) == (20, True)
            assert pid < 100
    finally:
        server.close()
