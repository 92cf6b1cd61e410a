"""A lock that another process holds: bounded, interruptible, and the error names the holder."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from attrs import evolve

from ryecore.errors import StateLocked
from ryecore.lillux.locks import find_lock_holders, is_locked
from ryecore.lillux.processes import current_process
from ryecore.state import waiting
from ryecore.state.attestation import attested_folder
from ryecore.state.database import Database
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.transcript import Transcript
from ryecore.state.waiting import run_blocking, run_in_thread
from tests.forking import Forked
from tests.unit.state.test_database import INCREASE, database, descriptors_below, increase, total

HOLD_GATE = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(file, fcntl.LOCK_EX)
"""
HOLD_SQLITE = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("BEGIN IMMEDIATE")
"""
HOLD_FOLDER = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
"""
STOP = "os.kill(os.getpid(), 19)"
WAIT = "print(flush=True); sys.stdin.read()"


@contextmanager
def holder(script: str, path: Path, *, stopped: bool = False) -> Iterator[int]:
    """A process that holds a lock, and is stopped, or waits."""
    last = STOP if stopped else WAIT
    running = subprocess.Popen(
        [sys.executable, "-c", f"import os{script}{last}", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if stopped:
            os.waitpid(running.pid, os.WUNTRACED)
        else:
            assert running.stdout is not None
            running.stdout.readline()
        yield running.pid
    finally:
        running.kill()
        running.communicate()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOCK_WAIT_S", 0.2)
    monkeypatch.setattr(waiting, "LOOP_WAIT_S", 0.1)


@pytest.mark.parametrize("script", [HOLD_GATE, HOLD_SQLITE], ids=["the gate", "SQLite's own"])
@pytest.mark.usefixtures("short_waits")
def test_a_stopped_writer_is_named_and_readers_go_on(tmp_path: Path, script: str) -> None:
    found = database(tmp_path)
    increase(found)
    path = tmp_path / ("some.db.gate" if script == HOLD_GATE else "some.db")
    with holder(script, path, stopped=True) as pid:
        with pytest.raises(StateLocked) as caught:
            increase(found)
        assert [one.pid for one in caught.value.holders] == [pid]
        assert f"process {pid} (" in str(caught.value)
        assert "which is stopped" in str(caught.value)
        assert f"kill -CONT {pid}" in str(caught.value)
        assert total(found) == 1
        assert total(database(tmp_path)) == 1, "opening what is set up needs no gate"
    increase(found)  # the death of the holder frees it
    assert total(found) == 2


@pytest.mark.usefixtures("short_waits")
def test_a_writer_that_only_takes_long_is_waited_for_or_ended(tmp_path: Path) -> None:
    found = database(tmp_path)
    with (
        holder(HOLD_SQLITE, tmp_path / "some.db") as pid,
        pytest.raises(StateLocked, match=rf"which is \w+.*Wait until.*kill {pid}\)"),
    ):
        increase(found)


def test_a_write_goes_on_as_soon_as_the_holder_lets_go(tmp_path: Path) -> None:
    found = database(tmp_path)
    with holder(HOLD_GATE, tmp_path / "some.db.gate", stopped=True) as pid:
        writing = threading.Thread(target=increase, args=(found,))
        writing.start()
        assert total(found) == 0  # a reader of the same process doesn't wait for the writer
        os.kill(pid, signal.SIGKILL)
        writing.join(30)
    assert total(found) == 1


@pytest.mark.usefixtures("short_waits")
def test_opening_a_project_names_who_holds_its_state(tmp_path: Path) -> None:
    state = tmp_path / "project/.ai/state"
    state.mkdir(parents=True)
    with (
        holder(HOLD_FOLDER, state, stopped=True) as pid,
        pytest.raises(StateLocked, match=rf"process {pid} .*stopped"),
    ):
        attested_folder(state, "threads", tmp_path / "user")


def test_an_attested_folder_is_opened_while_another_process_holds_the_state(tmp_path: Path) -> None:
    state = tmp_path / "project/.ai/state"
    made = attested_folder(state, "threads", tmp_path / "user")
    with holder(HOLD_FOLDER, state, stopped=True):
        assert attested_folder(state, "threads", tmp_path / "user") == made


def test_a_transcript_names_who_writes_it(tmp_path: Path) -> None:
    key = load_run_key(tmp_path)
    path = tmp_path / "transcript.jsonl"
    Transcript.create(path, "t", key).close()
    with (
        holder(HOLD_GATE, path, stopped=True) as pid,
        pytest.raises(StateLocked, match=rf"written by process {pid} .*stopped.*kill -CONT {pid}"),
    ):
        Transcript.resume(path, "t", key)


async def begin(found: Database) -> None:
    """Begin a transaction, and end it."""
    async with found.writing():
        pass


@pytest.mark.anyio
@pytest.mark.both_loops
@pytest.mark.usefixtures("short_waits")
async def test_an_event_loop_runs_while_a_task_waits_for_the_lock(tmp_path: Path) -> None:
    found = database(tmp_path)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await anyio.sleep(0.001)

    with holder(HOLD_GATE, tmp_path / "some.db.gate", stopped=True) as pid:
        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            with pytest.raises(StateLocked, match=f"process {pid}"):
                await begin(found)
            group.cancel_scope.cancel()
        assert ticks > 5
    await begin(found)


@pytest.mark.anyio
@pytest.mark.both_loops
@pytest.mark.parametrize("how", ["a deadline of the loop", "a thread's deadline"])
async def test_a_deadline_ends_a_wait_at_once(tmp_path: Path, how: str) -> None:
    found = database(tmp_path)
    with holder(HOLD_GATE, tmp_path / "some.db.gate", stopped=True):
        with anyio.move_on_after(0.1) as scope:
            if how == "a deadline of the loop":
                await begin(found)
            else:
                await run_in_thread(increase, found)
        assert scope.cancelled_caught  # else the wait for the lock ends, with StateLocked


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_that_waits(tmp_path: Path, number: signal.Signals) -> None:
    project, user = tmp_path / "project", tmp_path / "user"
    store = ThreadStore.open(project / ".ai", user / ".ai")
    run_blocking(store.registry.register("t", "tool:x"))
    (gate,) = project.rglob("threads.db.gate")
    with holder(HOLD_GATE, gate, stopped=True):
        running = Forked(
            ["ryecore.cli", "threads", "cancel", "t", "--project", str(project)],
            env={**os.environ, "USER_SPACE": str(user)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + 30
        while str(gate) not in descriptors_below(project, running.pid):
            assert time.monotonic() < deadline, running.poll()
            time.sleep(0.01)
        running.send_signal(number)
        _, errors = running.communicate(timeout=30)
        assert running.returncode != 0
        assert errors.strip() == b"Aborted!"  # and not that the lock was held to the end
    store.close()


def test_the_holders_of_a_shared_lock_are_found_where_they_are_asked_for(tmp_path: Path) -> None:
    found = database(tmp_path)
    increase(found)
    shm = tmp_path / "some.db-shm"
    assert find_lock_holders(shm) == ()
    assert [one.is_self for one in find_lock_holders(shm, shared_too=True)] == [True]
    found.close()
    with holder(HOLD_SQLITE, tmp_path / "some.db"):
        assert is_locked(shm)


def test_a_command_line_cannot_steer_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(f"{HOLD_GATE}\n# \x1b[31m\n", path) as pid:
        (one,) = find_lock_holders(path)
    assert one.pid == pid
    assert "\x1b" not in one.command
    assert len(one.command) <= 80


@pytest.mark.usefixtures("short_waits")
def test_a_stopped_owner_that_holds_the_state_can_be_killed(tmp_path: Path) -> None:
    store = ThreadStore.open(tmp_path / "project/.ai", tmp_path / "user/.ai")
    run_blocking(store.registry.register("t", "tool:x"))
    (gate,) = tmp_path.rglob("threads.db.gate")
    script = f"import os, sys\nprint(flush=True)\nsys.stdin.readline(){HOLD_GATE}{STOP}"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(gate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        running.stdout.readline()
        stat = Path(f"/proc/{running.pid}/stat").read_text()
        ticks = int(stat.rsplit(")", 1)[1].split()[19])
        owner = evolve(current_process(), pid=running.pid, start_ticks=ticks)
        run_blocking(store.registry.claim("t", owner, owns_process=True))
        running.stdin.write(b"\n")
        running.stdin.flush()
        os.waitpid(running.pid, os.WUNTRACED)
        assert run_blocking(store.kill("t", grace_s=0.1)).status == "killed"


@pytest.mark.anyio
async def test_a_busy_loop_does_not_end_a_wait_for_a_lock_that_was_hardly_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOCK_WAIT_S", 0.05)
    found = database(tmp_path)
    increase(found)
    gate = os.open(tmp_path / "some.db.gate", os.O_RDWR)
    fcntl.flock(gate, fcntl.LOCK_EX)

    async def write() -> None:
        async with found.writing() as run:
            run.execute(INCREASE)

    async def keep_busy() -> None:
        for _ in range(4):
            time.sleep(0.1)  # as other tasks do that compute
            await anyio.lowlevel.checkpoint()
        os.close(gate)

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        group.start_soon(keep_busy)
    assert total(found) == 2
