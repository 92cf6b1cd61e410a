"""Records in the registry's file until their transcripts are on the disk."""

import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from ryecore.errors import StateError
from ryecore.lillux.processes import current_process
from ryecore.state.database import Database
from ryecore.state.record_log import RecordLog
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import TRANSCRIPT
from ryecore.state.waiting import run_blocking
from ryecore.state.write_ahead import WriteAhead
from tests.disk import replace_syncs

ROWS = "SELECT thread_id, offset, data FROM write_ahead ORDER BY seq"

pytestmark = pytest.mark.anyio


@pytest.fixture
def ai(tmp_path: Path) -> Path:
    """The project's `.ai` folder."""
    folder = tmp_path / "project/.ai"
    folder.mkdir(parents=True)
    return folder


@asynccontextmanager
async def opened(ai: Path) -> AsyncGenerator[tuple[ThreadStore, Database], None]:
    """The project's threads, with machine durability, and their database."""
    store = ThreadStore.open(ai, ai.parent.parent / "user/.ai", "machine")
    try:
        yield store, store._database
    finally:
        store.close()


async def begin(store: ThreadStore, thread_id: str) -> RecordLog:
    """Begin a thread's log with three commits."""
    await store.registry.register(thread_id, "directive:acme/one")
    await store.prepare(thread_id)
    log = await store.records.create(thread_id)
    for number in range(3):
        log.append("step", {"n": number})
        await log.commit()
    return log


def lose_power(database: Database) -> None:
    """Make all rows those of an earlier boot."""
    with database.write() as run:
        run.execute("UPDATE write_ahead SET boot_id = 'an earlier one'")


def rows(database: Database) -> list[tuple[str, int, bytes]]:
    """What isn't known to be on the disk."""
    return [(row["thread_id"], row["offset"], row["data"]) for row in database.read(ROWS)]


def keeper(store: ThreadStore, database: Database) -> WriteAhead:
    """Who writes back and syncs, as a store has one."""
    return WriteAhead(database, str(store.folder), lambda name: str(store.make_folder(name)))


@pytest.mark.parametrize("kept_bytes", [None, 0, 100], ids=["missing", "empty", "cut"])
async def test_what_a_loss_of_power_took_is_written_back(ai: Path, kept_bytes: int | None) -> None:
    async with opened(ai) as (store, database):
        await (await begin(store, "acme/a")).close()
        path = store.folder_of("acme/a") / TRANSCRIPT
        written = path.read_bytes()
        assert b"".join(data for _, _, data in rows(database)) == written
        lose_power(database)
    if kept_bytes is None:
        path.unlink()
        path.parent.rmdir()
    else:
        os.truncate(path, kept_bytes)
    async with opened(ai) as (_, database):
        assert path.read_bytes() == written
        assert rows(database) == []


@pytest.mark.parametrize("left", [None, b"", b"an older one"])
async def test_whole_files_are_written_back_unless_they_were_written_later(
    ai: Path, left: bytes | None
) -> None:
    async with opened(ai) as (store, database):
        await (await begin(store, "acme/a")).close()
        fence = await store.registry.claim("acme/a", current_process())
        await store.write_capabilities("acme/a", "# What it may do\n")
        await store.settle("acme/a", "completed", {"text": "done"}, fence)
        lost, later = (
            store.folder_of("acme/a") / name for name in ("capabilities.md", "result.json")
        )
        written = lost.read_bytes()
        lose_power(database)
    if left is None:
        lost.unlink()
    else:
        lost.write_bytes(left)
        os.utime(lost, (1, 1))
    later.write_bytes(b"by somebody else")
    async with opened(ai) as (_, database):
        assert lost.read_bytes() == written
        assert later.read_bytes() == b"by somebody else"
        assert rows(database) == []


@pytest.mark.parametrize("offset", [None, 0], ids=["file", "piece"])
async def test_a_row_writes_nothing_outside_its_threads_folder(
    ai: Path, offset: int | None
) -> None:
    async with opened(ai) as (store, database):
        await store.registry.register("acme/a", "directive:acme/one")
        with database.write() as run:
            run.execute(
                "INSERT INTO write_ahead (thread_id, boot_id, name, offset, mtime_ns, data)"
                " VALUES ('acme/a', 'an earlier one', '../../escaped', ?, 0, x'00')",
                (offset,),
            )
        folder = store.folder_of("acme/a")
    async with opened(ai) as (_, database):
        assert not (folder / "../../escaped").exists()
        assert not folder.exists()
        assert len(rows(database)) == 1


async def test_a_damaged_row_without_a_time_replaces_nothing(ai: Path) -> None:
    async with opened(ai) as (store, database):
        await store.registry.register("acme/a", "directive:acme/one")
        kept = store.make_folder("acme/a") / "thread.json"
        kept.write_bytes(b"as it was")
        with database.write() as run:
            run.execute(
                "INSERT INTO write_ahead (thread_id, boot_id, name, data)"
                " VALUES ('acme/a', 'an earlier one', 'thread.json', x'00')"
            )
    async with opened(ai) as (_, database):
        assert kept.read_bytes() == b"as it was"
        assert rows(database) == []


async def test_a_file_that_cannot_be_read_is_an_error_of_state(ai: Path) -> None:
    async with opened(ai) as (store, database):
        folder = store.make_folder("acme/a")
        (folder / "thread.json").symlink_to("elsewhere")
        with pytest.raises(StateError, match=r"thread\.json can't be read"):
            await keeper(store, database).add_file("acme/a", "thread.json")


async def test_in_the_same_boot_nothing_is_written_back(ai: Path) -> None:
    async with opened(ai) as (store, database):
        await (await begin(store, "acme/a")).close()
        path = store.folder_of("acme/a") / TRANSCRIPT
        os.truncate(path, 10)  # as somebody who alters it would, which its proof finds
        before = rows(database)
    async with opened(ai) as (_, database):
        assert path.stat().st_size == 10
        assert rows(database) == before


async def test_what_cannot_be_written_back_is_tried_again_and_hinders_no_other(ai: Path) -> None:
    async with opened(ai) as (store, database):
        for name in ("acme/a", "acme/b"):
            await (await begin(store, name)).close()
        good, bad = (store.folder_of(name) / TRANSCRIPT for name in ("acme/a", "acme/b"))
        written = good.read_bytes()
        lose_power(database)
    os.truncate(good, 0)
    bad.unlink()
    outside = ai.parent / "outside"
    outside.write_bytes(b"mine")
    bad.symlink_to(outside)  # no link is followed
    async with opened(ai) as (_, database):
        assert good.read_bytes() == written
        assert {name for name, *_ in rows(database)} == {"acme/b"}
    assert outside.read_bytes() == b"mine"
    bad.unlink()
    async with opened(ai) as (store, database):
        assert [one.payload["n"] async for one in store.records.read("acme/b")] == [0, 1, 2]
        assert rows(database) == []


async def test_threads_that_commit_at_once_share_syncs(
    ai: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fdatasync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    async with opened(ai) as (store, database):
        logs = [await begin(store, f"acme/{number}") for number in range(50)]
        replace_syncs(monkeypatch, note)
        async with anyio.create_task_group() as tasks:
            for log in logs:
                log.append("late", {})
                tasks.start_soon(log.commit)
        monkeypatch.undo()
        assert all(path.endswith("threads.db-wal") for path in synced)
        assert 1 <= len(synced) < len(logs) / 2
        assert len(rows(database)) == 4 * len(logs)
        for log in logs:
            await log.close()


async def test_transcripts_of_ended_threads_are_synced_later(
    ai: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fdatasync

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    async with opened(ai) as (store, database):
        live = await begin(store, "acme/live")
        await (await begin(store, "acme/ended")).close()
        fence = await store.registry.claim("acme/ended", current_process())
        await store.settle("acme/ended", "completed", {}, fence)
        monkeypatch.setattr(os, "fdatasync", note)
        keeper(store, database).sync_files()
        monkeypatch.undo()
        of_transcripts = [path for path in synced if path.endswith(TRANSCRIPT)]
        assert any(path.endswith("result.json") for path in synced)
        assert of_transcripts == [str(store.folder_of("acme/ended") / TRANSCRIPT)]
        assert {name for name, *_ in rows(database)} == {"acme/live"}
        await live.close()


@pytest.mark.parametrize("is_altered", [False, True])
async def test_what_was_not_synced_is_written_again_before_it_is_synced(
    ai: Path, monkeypatch: pytest.MonkeyPatch, is_altered: bool
) -> None:
    """The kernel drops what it could not write, and reports the next sync as a success."""
    written: dict[str, bytes] = {}
    write = os.pwrite

    def fail(descriptor: int) -> None:
        raise OSError(5, os.readlink(f"/proc/self/fd/{descriptor}"))

    def note(descriptor: int, data: bytes, offset: int) -> int:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        written[path] = written.get(path, b"")[:offset] + data
        return write(descriptor, data, offset)

    async with opened(ai) as (store, database):
        await (await begin(store, "acme/a")).close()
        fence = await store.registry.claim("acme/a", current_process())
        await store.settle("acme/a", "completed", {}, fence)
        before, ahead = rows(database), keeper(store, database)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            ahead.sync_files()
        assert rows(database) == before
        path = store.folder_of("acme/a") / TRANSCRIPT
        if is_altered:
            os.truncate(path, 10)
        monkeypatch.setattr(os, "pwrite", note)
        ahead.sync_files()
        monkeypatch.undo()
        if is_altered:  # what has to be there is in the rows alone
            assert rows(database) == before
        else:
            assert written[str(path)] == path.read_bytes()
            assert {Path(name).name for name in written} == {TRANSCRIPT, "result.json"}
            assert rows(database) == []


async def test_what_is_written_while_two_processes_sync_stays(
    ai: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(ai) as (store, database):
        log = await begin(store, "acme/a")
        fence = await store.registry.claim("acme/a", current_process())
        await store.settle("acme/a", "completed", {}, fence)
        log.append("late", {})

        def sync_meanwhile(_: int) -> None:
            monkeypatch.undo()
            keeper(store, database).sync_files()
            run_blocking(log.write_ahead())

        monkeypatch.setattr(os, "fdatasync", sync_meanwhile)
        keeper(store, database).sync_files()
        assert [b"late" in data for _, _, data in rows(database)] == [True]
        await log.close()


async def test_large_records_of_a_running_thread_are_synced_and_removed(ai: Path) -> None:
    async with opened(ai) as (store, database):
        log = await begin(store, "acme/a")
        keeper(store, database).sync_files()
        assert len(rows(database)) == 3
        log.append("step", {"text": "x" * 2**20})
        await log.commit()
        keeper(store, database).sync_files()
        assert rows(database) == []
        await log.close()


async def test_a_forked_child_syncs_though_its_parent_did_when_it_forked(
    ai: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(ai) as (store, database):
        ahead, begun = keeper(store, database), threading.Event()
        monkeypatch.setattr(ahead, "sync_files", begun.wait)
        ahead._start_syncing()
        child = os.fork()
        if child == 0:
            try:
                monkeypatch.setattr(ahead, "sync_files", lambda: os._exit(7))
                ahead._start_syncing()
                for thread in threading.enumerate():
                    if thread is not threading.current_thread():
                        thread.join(10)
            finally:
                os._exit(1)
        begun.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


async def test_a_transcript_that_can_not_be_written_back_is_not_called_cut(ai: Path) -> None:
    async with opened(ai) as (store, database):
        await (await begin(store, "acme/a")).close()
        path = store.folder_of("acme/a") / TRANSCRIPT
        lose_power(database)
    path.rename(path.with_name("elsewhere"))
    path.mkdir()  # as on a disk that can't be written, nothing is written back
    async with opened(ai) as (store, _):
        with pytest.raises(StateError, match="lack what a loss of power took"):
            await store.records.verify("acme/a", ended=True)
        with pytest.raises(StateError, match="lack what a loss of power took"):
            await store.records.resume("acme/a")
    path.rmdir()
    async with opened(ai) as (store, _):
        assert path.read_bytes() == path.with_name("elsewhere").read_bytes()
        assert (await store.records.verify("acme/a", ended=False)).problems == ()
