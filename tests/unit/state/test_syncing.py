"""Writers that wait for the disk share its syncs, and no event loop waits."""

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import anyio
import pytest

from ryecore.errors import StateError
from ryecore.state.database import Database
from ryecore.state.waiting import SYNC_WORKERS, GroupSync, run_off_loop
from tests.disk import replace_syncs

WRITERS = 20


class InWorker:
    """A sync of an event loop that takes a worker thread."""

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync

    async def finish(self) -> None:
        await SYNC_WORKERS.run(self._sync)


def group_of(sync: Callable[[], None]) -> GroupSync:
    return GroupSync(sync, lambda: InWorker(sync))


class SlowSync:
    """Counts syncs; each lasts until it may end."""

    def __init__(self) -> None:
        self.count = 0
        self.began = Event()
        self.may_end = Event()
        self.threads: set[int] = set()
        self.failure: OSError | None = None

    def __call__(self) -> None:
        self.count += 1
        self.threads.add(threading.get_ident())
        self.began.set()
        assert self.may_end.wait(30)
        if self.failure is not None:
            raise self.failure


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_writers_that_wait_at_once_share_a_sync() -> None:
    sync = SlowSync()
    group = group_of(sync)
    done: list[int] = []

    async def write(number: int) -> None:
        group.after_write()
        await group.synced()
        done.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, 0)
        await anyio.to_thread.run_sync(sync.began.wait, 30)
        for number in range(1, WRITERS):
            tasks.start_soon(write, number)
        await anyio.wait_all_tasks_blocked()
        assert done == []  # nobody returns before the disk has it
        sync.may_end.set()
    assert sorted(done) == list(range(WRITERS))
    assert sync.count == 2  # the first one's, and one for all that came meanwhile
    assert threading.get_ident() not in sync.threads
    assert not group.is_behind
    await group.synced()
    assert sync.count == 2


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_who_is_cancelled_during_a_sync_is_so_behind_it() -> None:
    sync = SlowSync()
    group = group_of(sync)
    effects: list[str] = []
    group.after_write()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cause() -> None:
                await group.synced()
                effects.append("caused")

            tasks.start_soon(cause)
            await anyio.to_thread.run_sync(sync.began.wait, 30)
            scope.cancel()
            sync.may_end.set()
    assert scope.cancelled_caught
    assert effects == []
    assert not group.is_behind


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_sync_that_fails_is_raised_to_all_who_wait_and_tried_again_by_the_next() -> None:
    sync = SlowSync()
    sync.failure = OSError(errno.EIO, "Input/output error")
    group = group_of(sync)
    refused: list[int] = []

    async def write(number: int) -> None:
        group.after_write()
        with pytest.raises(OSError, match="Input/output error"):
            await group.synced()
        refused.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, 0)
        await anyio.to_thread.run_sync(sync.began.wait, 30)
        for number in range(1, WRITERS):
            tasks.start_soon(write, number)
        await anyio.wait_all_tasks_blocked()
        sync.may_end.set()
    assert sorted(refused) == list(range(WRITERS))
    assert sync.count == 1
    sync.failure = None
    await group.synced()
    assert sync.count == 2
    assert not group.is_behind


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_who_is_cancelled_while_another_syncs_leaves_at_once_and_causes_nothing() -> None:
    sync = SlowSync()
    group = group_of(sync)
    effects: list[str] = []

    async def cause(name: str) -> None:
        group.after_write()
        await group.synced()
        effects.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cause, "first")
        await anyio.to_thread.run_sync(sync.began.wait, 30)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as others:
                others.start_soon(cause, "second")
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
        sync.may_end.set()
    assert effects == ["first"]


def test_loops_of_several_threads_share_syncs() -> None:
    count = 0

    def sync() -> None:
        nonlocal count
        count += 1

    group = group_of(sync)

    async def write() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(WRITERS):
                group.after_write()
                tasks.start_soon(group.synced)

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(anyio.run, write) for _ in range(8)]:
            one.result(30)
    assert not group.is_behind
    assert 1 <= count <= 8 * WRITERS


@pytest.mark.anyio
@pytest.mark.both_loops
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("is_closed", [True, False])
async def test_after_a_failed_sync_no_other_trusts_its_own_until_the_log_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_closed: bool
) -> None:
    """Each opened database stands for another process, whose syncs the kernel lets succeed."""
    path, log = tmp_path / "some.db", tmp_path / "some.db-wal"
    failed, other, third = (
        Database(path, [["CREATE TABLE one (x)"]], durability="machine") for _ in range(3)
    )
    written, write = bytearray(), os.pwrite

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number), os.readlink(f"/proc/self/fd/{descriptor}"))

    def note(descriptor: int, data: bytes, offset: int) -> int:
        written.extend(data)
        return write(descriptor, data, offset)

    with failed.write() as run:
        run.execute("INSERT INTO one VALUES ('lost?')")
    with monkeypatch.context() as patched:
        replace_syncs(patched, fail)
        with pytest.raises(StateError, match=os.strerror(number)):
            await failed.synced()
    if is_closed:
        failed.close()
    for database in (other, third):
        with database.write() as run:
            run.execute("INSERT INTO one VALUES ('later')")
    monkeypatch.setattr(os, "pwrite", note)
    await other.synced()
    assert written == log.read_bytes()
    await third.synced()  # the log was written again, and synced
    assert len(written) == log.stat().st_size
    monkeypatch.undo()
    for database in (failed, other, third):
        database.close()


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_what_is_written_behind_the_begin_of_a_sync_waits_for_another_one() -> None:
    sync = SlowSync()
    sync.may_end.set()
    group = group_of(sync)
    group.begin()
    assert sync.count == 0  # nothing to sync
    group.after_write()
    group.begin()
    group.begin()
    group.after_write()
    await group.synced()
    assert sync.count == 2
    assert not group.is_behind


@pytest.mark.anyio
async def test_a_sync_that_asyncio_cancels_is_finished_by_another_who_waits() -> None:
    import asyncio

    ends: list[asyncio.Event] = []

    class Held:
        def __init__(self) -> None:
            self._may_end = asyncio.Event()
            ends.append(self._may_end)

        async def finish(self) -> None:
            await self._may_end.wait()

    group = GroupSync(lambda: None, Held)
    group.after_write()
    first, second = (asyncio.create_task(group.synced()) for _ in range(2))
    await anyio.wait_all_tasks_blocked()
    first.cancel()
    await anyio.wait_all_tasks_blocked()
    assert (first.done(), second.done(), len(ends)) == (True, False, 1)
    ends[0].set()
    await second
    assert not group.is_behind


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_begun_sync_that_failed_is_told_to_who_waits_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path / "some.db", [["CREATE TABLE one (x)"]], durability="machine")
    async with database.writing() as run:
        run.execute("INSERT INTO one VALUES (1)")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        replace_syncs(patched, fail)
        database.begin_sync()
        with pytest.raises(StateError, match=os.strerror(errno.EIO)):
            await database.synced()
    await database.synced()
    database.close()


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_a_cancelled_wait_leaves_the_write_and_its_sync(tmp_path: Path) -> None:
    database = Database(tmp_path / "some.db", [["CREATE TABLE one (x)"]], durability="machine")
    await database.synced()
    with database.write() as run:
        run.execute("INSERT INTO one VALUES (1)")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await database.synced()
    await database.synced()
    assert len(database.read("SELECT x FROM one")) == 1
    database.close()


@pytest.mark.anyio
@pytest.mark.both_loops
@pytest.mark.parametrize(("durability", "is_here"), [("process", True), ("machine", False)])
async def test_files_are_written_off_the_loop_where_that_waits_for_the_disk(
    durability: str, is_here: bool
) -> None:
    write: Callable[[], int] = threading.get_ident
    where = await run_off_loop("machine" if durability == "machine" else "process", write)
    assert (where == threading.get_ident()) == is_here
