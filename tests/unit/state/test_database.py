"""One SQLite file for several processes."""

import errno
import os
import sqlite3
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ryecore.errors import StateError
from ryecore.state.database import Database
from ryecore.state.sqlite_files import file_system_of, is_shared
from ryecore.state.waiting import run_blocking
from tests.forking import forked_script

COUNTERS = (("CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER)",),)
INCREASE = "INSERT INTO counters VALUES ('n', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"


def database(path: Path, **options: object) -> Database:
    return Database(path / "some.db", COUNTERS, **options)  # type: ignore[arg-type]


def increase(found: Database, times: int = 1) -> None:
    for _ in range(times):
        with found.write() as run:
            run.execute(INCREASE)


def descriptors_below(folder: Path, pid: int | None = None) -> list[str]:
    """The files below a folder that a process holds open; by default this one."""
    descriptors = Path(f"/proc/{pid or os.getpid()}/fd")
    opened = []
    for entry in descriptors.iterdir():
        with suppress(FileNotFoundError):
            opened.append(str(entry.readlink()))
    return [path for path in opened if path.startswith(str(folder))]


def total(found: Database) -> int:
    rows = found.read("SELECT value FROM counters WHERE name = ?", ("n",))
    return int(rows[0]["value"]) if rows else 0


def test_what_was_written_is_there_again(tmp_path: Path) -> None:
    first = database(tmp_path)
    increase(first, 3)
    first.close()
    assert total(database(tmp_path)) == 3
    assert (tmp_path / "some.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_there", [False, True], ids=["new", "there"])
def test_it_is_private_even_where_its_first_write_fails(tmp_path: Path, is_there: bool) -> None:
    path = tmp_path / "some.db"
    before = os.umask(0)
    try:
        if is_there:
            path.touch(0o644)
        with pytest.raises(StateError):
            Database(path, (("CREATE TABLE broken (",),))
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_an_exception_undoes_the_whole_transaction(tmp_path: Path) -> None:
    found = database(tmp_path)
    increase(found)

    def fail_in_the_middle() -> None:
        with found.write() as run:
            run.execute("UPDATE counters SET value = 99")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert total(found) == 1
    increase(found)
    assert total(found) == 2


def test_an_operation_that_raises_after_a_write_undoes_those_beside_it(tmp_path: Path) -> None:
    """Even where its error is caught. One that raises before it has written undoes nothing."""
    made = database(tmp_path)

    async def raises_after(writes: bool) -> None:
        async with made.writing() as run:
            if writes:
                run.execute(INCREASE)
            raise KeyError

    async def catches(writes: bool) -> None:
        async with made.writing() as run:
            run.execute(INCREASE)
        with suppress(KeyError):
            await raises_after(writes)

    with pytest.raises(KeyError):
        run_blocking(made.together(lambda: catches(writes=True)))
    assert total(made) == 0
    run_blocking(made.together(lambda: catches(writes=False)))
    assert total(made) == 1
    made.close()


def test_threads_share_it(tmp_path: Path) -> None:
    found = database(tmp_path)
    threads = [threading.Thread(target=increase, args=(found, 50)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total(found) == 400


def test_eight_processes_set_it_up_and_write_at_once(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from ryecore.state.database import Database\n"
        "sys.stdin.readline()\n"
        f"found = Database(Path(sys.argv[1]), {COUNTERS!r})\n"
        "for _ in range(50):\n"
        "    with found.write() as run:\n"
        f"        run.execute({INCREASE!r})\n"
    )
    running = [
        forked_script(
            tmp_path, script, tmp_path / "some.db", stdin=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(8)
    ]
    for one in running:  # each waits for this line, so that they begin together
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    for one in running:
        _, said = one.communicate(timeout=60)
        assert one.returncode == 0, said
    assert total(database(tmp_path)) == 400


def test_a_process_that_is_killed_in_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    found = database(tmp_path)
    increase(found)
    child = os.fork()
    if child == 0:
        try:
            other = database(tmp_path)
            with other.write() as run:
                run.execute("UPDATE counters SET value = 99")
                os.kill(os.getpid(), 9)
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    assert total(found) == 1
    increase(found)  # neither the gate nor SQLite's lock was left closed
    assert total(found) == 2


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    found = database(tmp_path)
    increase(found)
    child = os.fork()
    if child == 0:
        try:
            increase(found, 10)
            os._exit(0 if total(found) == 11 else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    increase(found)
    assert total(found) == 12


def test_a_fork_of_a_forked_child_closes_no_descriptor_of_others(tmp_path: Path) -> None:
    found = database(tmp_path)
    increase(found)
    child = os.fork()
    if child == 0:
        try:
            # They get the numbers of what the fork has closed.
            opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(50)]
            grandchild = os.fork()
            if grandchild == 0:
                os._exit(0 if all(map(is_open, opened)) else 1)
            _, status = os.waitpid(grandchild, 0)
            os._exit(status >> 8 if all(map(is_open, opened)) else 3)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    increase(found)
    assert total(found) == 2


def is_open(descriptor: int) -> bool:
    with suppress(OSError):
        return bool(os.fstat(descriptor))
    return False


def test_a_child_that_is_forked_while_another_thread_writes_can_write(tmp_path: Path) -> None:
    found = database(tmp_path)
    writing, done = threading.Event(), threading.Event()

    def write() -> None:
        with found.write():
            writing.set()
            done.wait(30)

    thread = threading.Thread(target=write)
    thread.start()
    writing.wait(30)
    threading.Timer(0.2, done.set).start()  # the fork waits for the transaction's end
    child = os.fork()
    if child == 0:
        try:
            increase(found, 5)
            os._exit(0 if total(found) == 5 else 1)
        finally:
            os._exit(2)
    assert done.is_set()
    thread.join()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert total(found) == 5


def test_later_versions_are_made_from_earlier_ones(tmp_path: Path) -> None:
    increase(database(tmp_path))
    newer = (
        *COUNTERS,
        ("ALTER TABLE counters ADD COLUMN note TEXT", "UPDATE counters SET note='x'"),
    )
    upgraded = Database(tmp_path / "some.db", newer)
    assert upgraded.read("SELECT note FROM counters")[0]["note"] == "x"
    with pytest.raises(StateError, match=r"newer ryecore \(version 2.*Upgrade"):
        database(tmp_path)


def test_a_migration_that_fails_leaves_the_version_before(tmp_path: Path) -> None:
    increase(database(tmp_path))
    broken = (*COUNTERS, ("ALTER TABLE counters ADD COLUMN note TEXT", "SELECT nonsense"))
    with pytest.raises(StateError, match="nonsense"):
        Database(tmp_path / "some.db", broken)
    assert total(database(tmp_path)) == 1


def test_what_is_no_database_is_said(tmp_path: Path) -> None:
    (tmp_path / "some.db").write_bytes(b"this is no database, and never was one" * 99)
    with pytest.raises(StateError, match=r"not a database.*rye doctor.*backup"):
        database(tmp_path)


def test_what_can_not_be_opened_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "some.db").write_bytes(b"this is no database, and never was one" * 99)
    with pytest.raises(StateError):
        database(tmp_path)
    assert descriptors_below(tmp_path) == []


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="No such file or directory"):
        database(tmp_path / "missing")


def test_a_closed_one_stays_closed(tmp_path: Path) -> None:
    found = database(tmp_path)
    found.close()
    found.close()
    with pytest.raises(StateError, match="was closed"):
        total(found)


def test_a_closed_one_leaves_no_descriptor(tmp_path: Path) -> None:
    found = database(tmp_path)
    increase(found)
    assert descriptors_below(tmp_path)
    found.close()
    assert descriptors_below(tmp_path) == []


@pytest.mark.parametrize(("durability", "syncs"), [("process", 0), ("machine", 3)])
def test_a_commit_off_an_event_loop_waits_for_the_disk_in_machine_durability(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, syncs: int
) -> None:
    found = database(tmp_path, durability=durability)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    for _ in range(3):
        increase(found)
    assert len(synced) == syncs
    assert found.read("PRAGMA synchronous")[0][0] == 1  # the log is synced here, not by SQLite
    assert found.read("PRAGMA journal_mode")[0][0] == "wal"
    assert found.read("PRAGMA trusted_schema")[0][0] == 0


def test_after_a_failed_sync_the_log_is_written_again_before_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel drops what it could not write, and reports the next sync as a success."""
    found = database(tmp_path, durability="machine")
    increase(found)
    log, sync, write = tmp_path / "some.db-wal", os.fdatasync, os.pwrite
    failures, dropped = [2], [False]

    def fdatasync(descriptor: int) -> None:
        if failures[0]:
            failures[0] -= 1
            dropped[0] = True
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        assert not dropped[0], "what the kernel has dropped passes for synced"
        sync(descriptor)

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if (offset, len(data)) == (0, log.stat().st_size) and data == log.read_bytes():
            dropped[0] = False
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(StateError, match="can't be synced"):  # both at first and written again
        increase(found)
    increase(found)
    assert not dropped[0]
    failures[0] = 1
    increase(found)
    assert not dropped[0]
    monkeypatch.undo()
    assert total(found) == 4
    found.close()
    assert descriptors_below(tmp_path) == []


def test_a_disk_that_is_full_is_said_and_undone(tmp_path: Path) -> None:
    found = database(tmp_path)
    pages = found.read("PRAGMA page_count")[0][0]
    found.read(f"PRAGMA max_page_count = {pages}")  # SQLite's own way to be out of room
    with pytest.raises(StateError, match=r"full.*room"), found.write() as run:
        run.execute("INSERT INTO counters VALUES (?, 1)", ("x" * 100_000,))
    assert total(found) == 0
    found.read("PRAGMA max_page_count = 1000000")
    increase(found)
    assert total(found) == 1


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs", "ceph"])
def test_file_systems_of_several_machines_are_known(kind: str) -> None:
    assert is_shared(kind)


@pytest.mark.parametrize("kind", ["", "ext4", "xfs", "btrfs", "overlay", "tmpfs", "fuse", "zfs"])
def test_other_file_systems_are_of_one_machine(kind: str) -> None:
    assert not is_shared(kind)


def test_the_file_system_of_a_folder_is_found() -> None:
    assert file_system_of(Path("/proc")) == "proc"
    assert file_system_of(Path("/nowhere/at/all")) == ""


def test_an_error_of_sqlite_keeps_its_cause(tmp_path: Path) -> None:
    with pytest.raises(StateError) as caught:
        database(tmp_path).read("SELECT nothing")
    assert isinstance(caught.value.__cause__, sqlite3.Error)
