"""Writers that wait for the disk share its syncs, and no event loop waits."""

import threading
from collections.abc import Callable
from pathlib import Path
from threading import Event

import anyio
import pytest

from ryecore.state.database import Database
from ryecore.state.waiting import GroupSync, run_off_loop

WRITERS = 20


class SlowSync:
    """Counts syncs; each lasts until it may end."""

    def __init__(self) -> None:
        self.count = 0
        self.began = Event()
        self.may_end = Event()
        self.threads: set[int] = set()

    def __call__(self) -> None:
        self.count += 1
        self.threads.add(threading.get_ident())
        self.began.set()
        assert self.may_end.wait(30)


@pytest.mark.anyio
@pytest.mark.both_loops
async def test_writers_that_wait_at_once_share_a_sync() -> None:
    sync = SlowSync()
    group = GroupSync(sync)
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
    group = GroupSync(sync)
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
async def test_a_sync_that_fails_is_tried_again_by_the_next() -> None:
    failures = [OSError(5, "Input/output error")]

    def sync() -> None:
        if failures:
            raise failures.pop()

    group = GroupSync(sync)
    group.after_write()
    with pytest.raises(OSError, match="Input/output error"):
        await group.synced()
    assert group.is_behind
    await group.synced()
    assert not group.is_behind


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
