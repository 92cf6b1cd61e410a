"""State on a read-only disk, or a full one: it can be listed, and errors say what to do."""

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import StateError
from ryecore.lillux.processes import current_process
from ryecore.state.database import Database
from ryecore.state.refusals import advice
from ryecore.state.schema import MIGRATIONS
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking

LIST = """
import sys
from pathlib import Path
from ryecore.errors import StateError
from ryecore.state.lazy_store import LazyThreadStore
from ryecore.state.waiting import run_blocking
lazy = LazyThreadStore(Path(sys.argv[1]) / "project/.ai", Path(sys.argv[1]) / "user/.ai", "process")
store = lazy.open_existing()
found = run_blocking(store.look_at_all(lambda registry: registry.list_threads()))
print(*(f"{one.thread_id}={one.status}" for one in found))
print(run_blocking(store.look("dead")).status)
try:
    run_blocking(store.cancel("alive"))
except StateError as error:
    print(error)
"""


def made_store(root: Path) -> ThreadStore:
    store = ThreadStore.open(root / "project/.ai", root / "user/.ai")
    run_blocking(store.registry.register("alive", "tool:x"))
    run_blocking(store.registry.register("dead", "tool:x"))
    nobody = evolve(current_process(), pid=2**22 - 3, start_ticks=1)
    run_blocking(store.registry.claim("dead", nobody))
    return store


def listed_read_only(root: Path) -> list[str]:
    """What another process lists where the whole folder is mounted read-only."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, str(root)]
    if subprocess.run([*command, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts nothing for us")
    done = subprocess.run(
        [*command, sys.executable, "-c", LIST, str(root)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("left", ["a process that writes", "a closed file", "a log alone"])
def test_threads_on_a_read_only_disk_are_listed_as_they_are(tmp_path: Path, left: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    store = made_store(root)
    (database,) = root.rglob("threads.db")
    if left == "a log alone":
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{database}{suffix}", tmp_path / f"kept{suffix}")
    if left != "a process that writes":
        store.close()
    if left == "a log alone":
        for suffix in ("", "-wal"):
            shutil.copyfile(tmp_path / f"kept{suffix}", f"{database}{suffix}")
    rows, dead, refused = listed_read_only(root)
    assert rows.split() == ["dead=error", "alive=created"]
    assert dead == "error"
    assert "Read-only file system" in refused
    assert "mount it for writing" in refused


def test_a_dead_thread_is_shown_as_ended_though_the_disk_is_full(tmp_path: Path) -> None:
    store = made_store(tmp_path)
    database = store._database
    pages = database.read("PRAGMA page_count")[0][0]
    database.read(f"PRAGMA max_page_count = {pages}")
    with database.write() as run:  # fills the pages that there are
        run.execute("INSERT INTO results VALUES ('alive', '')")
        size = 1 << 20
        while size:
            try:
                run.execute("UPDATE results SET body = body || ?", ("x" * size,))
            except sqlite3.OperationalError:
                size //= 2
    (dead, _) = run_blocking(store.look_at_all(lambda found: found.list_threads()))
    assert (dead.thread_id, dead.status) == ("dead", "error")
    assert run_blocking(store.look("dead")).status == "error"


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOSPC, "Make room"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "the user who owns"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "restore a backup"),
    ],
)
def test_the_advice_fits_what_the_system_said(number: int, step: str) -> None:
    text = advice(OSError(number, os.strerror(number)))
    assert step in text
    assert "moved away" not in text


def test_the_advice_for_a_full_disk_is_room_and_no_other(tmp_path: Path) -> None:
    found = Database(tmp_path / "threads.db", MIGRATIONS)
    found.read(f"PRAGMA max_page_count = {found.read('PRAGMA page_count')[0][0]}")
    with (
        pytest.raises(StateError, match=r"is full\. Make room on its disk") as caught,
        found.write() as run,
    ):
        run.execute("CREATE TABLE more AS SELECT randomblob(1000000)")
    assert "rye doctor" not in str(caught.value)


def test_threads_stand_in_the_order_they_were_made_though_the_clock_went_back(
    tmp_path: Path,
) -> None:
    store = made_store(tmp_path)
    with store._database.write() as run:
        run.execute("UPDATE threads SET created_at = '2099-01-01' WHERE thread_id = 'alive'")
    assert [one.thread_id for one in run_blocking(store.registry.list_threads())] == [
        "dead",
        "alive",
    ]
    assert [one.thread_id for one in run_blocking(store.registry.list_active())] == [
        "alive",
        "dead",
    ]


def test_commits_beside_an_extended_log_survive_the_end_of_the_process(tmp_path: Path) -> None:
    database = Database(tmp_path / "some.db", [["CREATE TABLE one (x)"]], durability="machine")
    log = tmp_path / "some.db-wal"

    def write(numbers: range) -> None:
        for number in numbers:
            with database.write() as run:
                run.execute("INSERT INTO one VALUES (?)", (number,))

    write(range(10))
    with ThreadPoolExecutor() as others:
        writing = others.submit(write, range(10, 60))
        database.extend_log()
        writing.result()
    size_bytes = log.stat().st_size
    assert size_bytes == 8 * 2**20
    write(range(60, 100))
    database.extend_log()
    assert log.stat().st_size == size_bytes  # the zeros are written over
    killed = tmp_path / "killed"
    killed.mkdir()
    for path in (tmp_path / "some.db", log):  # as a process leaves them that is killed
        shutil.copy(path, killed)
    with closing(sqlite3.connect(killed / "some.db")) as found:
        assert [x for (x,) in found.execute("SELECT x FROM one ORDER BY x")] == [*range(100)]
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
