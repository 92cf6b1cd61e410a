"""Runs that go well, and those that can't begin."""

import asyncio
import gc
import os
import signal
import sys
import threading
import weakref
from contextvars import ContextVar
from errno import EACCES, EINVAL, ENOENT, ENOEXEC, ENOTDIR
from pathlib import Path

import anyio
import pytest

from ryecore.errors import ProcessError, SpawnFailed
from ryecore.lillux import (
    ProcessId,
    ProcessResult,
    ProcessSpec,
    current_process,
    kill_process,
    process_status,
    run_process,
    run_process_sync,
    spawn_detached,
    watch,
)
from tests.matrix import IS_SOAK
from tests.warm_hosts import is_alive

from .system import PATH, children, open_fds, shell, wait_until_dead

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

MIB = 1024 * 1024


async def both(spec: ProcessSpec) -> ProcessResult:
    """Run it in both ways, which must agree."""
    awaited = await run_process(spec)
    blocking = run_process_sync(spec)
    assert (awaited.status, awaited.exit_code, awaited.signal) == (
        blocking.status,
        blocking.exit_code,
        blocking.signal,
    )
    assert (awaited.stdout, awaited.stderr) == (blocking.stdout, blocking.stderr)
    return awaited


async def test_streams_and_exit_code() -> None:
    result = await both(shell("echo out; echo err >&2; exit 3"))
    assert (result.status, result.exit_code, result.signal) == ("exited", 3, None)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert (result.stdout_total_bytes, result.stderr_total_bytes) == (4, 4)
    assert result.duration_ms > 0
    assert result.pid > 1
    assert result.left_behind == ()


async def test_arguments_cwd_and_environment(tmp_path: Path) -> None:
    spec = shell(
        'printf "%s|%s|%s|%s" "$1" "$2" "$PWD" "$NAME"',
        "two words",
        "ümlaut",
        cwd=str(tmp_path),
        env={**PATH, "NAME": "välue", "PWD": ""},
    )
    result = await both(spec)
    assert result.stdout.decode() == f"two words|ümlaut|{tmp_path}|välue"


async def test_the_environment_is_the_childs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RYECORE_SECRET", "x")
    result = await both(ProcessSpec("env", cwd="/", env={**PATH, "A": "1"}))
    assert sorted(result.stdout.decode().split()) == ["A=1", f"PATH={PATH['PATH']}"]


async def test_bytes_pass_unchanged() -> None:
    every = bytes(range(256)) * 3
    result = await both(ProcessSpec("cat", cwd="/", env=PATH, stdin=every))
    assert result.stdout == every
    odd = os.fsdecode(b"\xff\xfe")
    result = await both(shell('printf %s "$1"', odd))
    assert result.stdout == b"\xff\xfe"


async def test_without_input_the_child_reads_the_end() -> None:
    result = await both(shell("cat; readlink /proc/self/fd/0"))
    assert result.stdout == b"/dev/null\n"


async def test_big_input_and_big_output_flow_at_once() -> None:
    content = os.urandom(1024) * (50 * 1024)
    spec = ProcessSpec(
        "cat", cwd="/", env=PATH, stdin=content, max_output_bytes=64 * MIB, timeout_s=60
    )
    result = await run_process(spec)
    assert result.stdout == content


async def test_a_child_need_not_read_its_input() -> None:
    result = await both(shell("exec 0<&-; echo done", stdin=b"x" * (5 * MIB)))
    assert (result.exit_code, result.stdout) == (0, b"done\n")


async def test_output_is_kept_up_to_the_bound_and_counted_beyond() -> None:
    spec = shell("head -c 3000000 /dev/zero; head -c 7 /dev/zero >&2", max_output_bytes=1000)
    result = await both(spec)
    assert (len(result.stdout), result.stdout_total_bytes) == (1000, 3_000_000)
    assert (len(result.stderr), result.stderr_total_bytes) == (7, 7)


async def test_a_log_gets_both_streams_as_they_come(tmp_path: Path) -> None:
    log, go_on = tmp_path / "log", tmp_path / "go on"
    os.mkfifo(go_on)
    script = f"echo one; cat '{go_on}' >&2; echo three"
    done: list[ProcessResult] = []

    async def run() -> None:
        done.append(await run_process(shell(script, log_path=log)))

    async with anyio.create_task_group() as group, watch(log) as watcher:
        group.start_soon(run)
        while not log.exists() or log.read_text() != "one\n":
            await watcher.changed()
        await anyio.Path(go_on).write_text("two\n")
    assert log.read_text() == "one\ntwo\nthree\n"
    assert log.stat().st_mode & 0o777 == 0o600
    assert (done[0].stdout, done[0].stderr) == (b"one\nthree\n", b"two\n")


async def test_a_log_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpawnFailed, match="No such file or directory"):
        await run_process(shell("true", log_path=tmp_path / "missing" / "log"))


async def test_a_log_that_cannot_be_written_stops_nothing() -> None:
    done = await run_process(shell("echo hello", log_path="/dev/full"))
    assert (done.exit_code, done.stdout) == (0, b"hello\n")


async def test_a_writer_of_much_is_not_slowed_down() -> None:
    size = (1024 if IS_SOAK else 256) * MIB
    spec = shell(f"head -c {size} /dev/zero", max_output_bytes=MIB, timeout_s=60)
    result = await run_process(spec)
    assert result.status == "exited"
    assert (len(result.stdout), result.stdout_total_bytes) == (MIB, size)


async def test_a_signal_is_reported() -> None:
    result = await both(shell("kill -SEGV $$"))
    assert (result.status, result.exit_code, result.signal) == ("signaled", None, signal.SIGSEGV)


async def test_the_child_leads_a_session_with_default_signals_and_no_other_descriptor() -> None:
    held = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(held, True)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGPIPE)}
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        script = "cat /proc/self/stat /proc/self/status; echo /proc/self/fd/*"
        result = await run_process(shell(script))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(held)
    stat, *status, fds = result.stdout.decode().splitlines()
    masks = dict(line.split() for line in status if line.startswith("Sig") and "/" not in line)
    assert {int(masks[f"Sig{name}:"], 16) for name in ("Blk", "Ign", "Cgt")} == {0}
    assert int(stat.split()[5]) == result.pid
    assert set(fds.split()) <= {f"/proc/self/fd/{n}" for n in (0, 1, 2, 3)}


@pytest.mark.parametrize(
    ("command", "cwd", "errno", "hint"),
    [
        ("/bin/missing", "/", ENOENT, ""),
        ("missing-program", "/", ENOENT, "PATH"),
        ("/etc/passwd", "/", EACCES, ""),
        ("/tmp", "/", EACCES, ""),
        ("/bin/true", "/missing/folder", ENOENT, "working directory"),
        ("/bin/true", "/etc/passwd", ENOTDIR, ""),
        ("./relative", "/", EINVAL, ""),
        ("", "/", EINVAL, ""),
        ("/bin/tr\0ue", "/", EINVAL, ""),
    ],
)
async def test_what_cannot_be_started_says_why(
    command: str, cwd: str, errno: int, hint: str
) -> None:
    fds, before = open_fds(), children()
    spec = ProcessSpec(command, cwd=cwd, env=PATH)
    with pytest.raises(SpawnFailed) as blocking:
        run_process_sync(spec)
    with pytest.raises(SpawnFailed) as awaited:
        await run_process(spec)
    assert str(blocking.value) == str(awaited.value)
    assert blocking.value.errno == errno
    assert blocking.value.command == command
    assert hint in blocking.value.next_step
    assert children() <= before
    assert open_fds() <= fds + 8  # the event loop and the reactor may have begun meanwhile


async def test_formats_and_interpreters_are_told_apart(tmp_path: Path) -> None:
    odd, script = tmp_path / "odd", tmp_path / "script"
    odd.write_bytes(b"\x00\x01 no program")
    script.write_text("#!/missing/interpreter\n")
    for path in (odd, script):
        path.chmod(0o700)
    with pytest.raises(SpawnFailed, match="#!") as failed:
        await run_process(ProcessSpec(str(odd), cwd="/", env=PATH))
    assert failed.value.errno == ENOEXEC
    with pytest.raises(SpawnFailed, match="interpreter") as failed:
        await run_process(ProcessSpec(str(script), cwd="/", env=PATH))
    assert failed.value.errno == ENOENT


async def test_too_many_arguments_are_an_error() -> None:
    with pytest.raises(SpawnFailed, match="Argument list too long"):
        await run_process(ProcessSpec("/bin/true", ("x" * 200_000,), cwd="/", env=PATH))


@pytest.mark.parametrize(
    "options", [{"timeout_s": -1.0}, {"drain_s": float("nan")}, {"max_output_bytes": -1}]
)
async def test_senseless_bounds_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(SpawnFailed, match="negative"):
        await run_process(shell("true", **options))


async def test_a_timeout_ends_the_group_and_keeps_the_output() -> None:
    result = await both(shell("echo begun; sleep 1000 & sleep 1000", timeout_s=0.2))
    assert (result.status, result.signal) == ("timed_out", signal.SIGTERM)
    assert result.stdout == b"begun\n"


async def test_who_ignores_term_dies_by_kill() -> None:
    script = "trap '' TERM; echo begun; while :; do sleep 1000; done"
    result = await both(shell(script, timeout_s=0.2, kill_grace_s=0.1))
    assert (result.status, result.signal) == ("timed_out", signal.SIGKILL)
    assert result.stdout == b"begun\n"


async def test_an_infinite_timeout_is_none() -> None:
    result = await both(shell("exit 0", timeout_s=float("inf")))
    assert result.status == "exited"


async def test_nothing_of_the_group_survives_the_leader() -> None:
    spec = shell("sleep 1000 >/dev/null 2>&1 & echo $!")
    wait_until_dead(int(run_process_sync(spec).stdout))
    result = await run_process(spec)
    assert result.status == "exited"
    assert result.duration_ms < 10_000
    wait_until_dead(int(result.stdout))


async def test_who_holds_the_pipe_is_waited_for_shortly() -> None:
    spec = shell("sleep 1000 & echo $!", drain_s=0.1)
    result = await run_process(spec)
    assert result.status == "exited"
    assert 100 <= result.duration_ms < 10_000
    wait_until_dead(int(result.stdout))


async def test_late_output_of_the_group_is_kept() -> None:
    result = await both(shell("(read line; echo $line) <<E &\nlate\nE\n", drain_s=30))
    assert result.stdout == b"late\n"


async def test_who_left_the_group_is_reported() -> None:
    spec = shell("setsid sleep 1000 & wait", timeout_s=0.3, drain_s=0.05)
    result = await run_process(spec)
    assert result.status == "timed_out"
    assert len(result.left_behind) == 1
    for pid in result.left_behind:
        assert is_alive(pid)
        os.kill(pid, signal.SIGKILL)


async def test_cancellation_ends_and_reaps_the_child(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    pids: list[int] = []

    async def read_pid() -> None:
        pids.extend(map(int, (await anyio.to_thread.run_sync(fifo.read_text)).split()))

    before = children()
    async with anyio.create_task_group() as outer:
        outer.start_soon(read_pid)
        async with anyio.create_task_group() as group:
            group.start_soon(run_process, shell('sleep 1000 & echo $$ $! > "$1"; wait', str(fifo)))
            while not pids:
                await anyio.sleep(0.001)
            group.cancel_scope.cancel()
        assert children() == before
        assert not is_alive(pids[0])
        wait_until_dead(pids[1])


async def test_a_cancelled_call_starts_nothing() -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_process(shell("exit 0"))
    assert scope.cancelled_caught


async def test_many_tasks_share_one_mailbox_and_some_are_cancelled() -> None:
    results: list[ProcessResult] = []

    async def run(number: int) -> None:
        if number % 5 == 0:
            with anyio.move_on_after(0.01):
                await run_process(shell("exec sleep 1000", kill_grace_s=0.1))
        else:
            results.append(await run_process(shell("sleep 0.0$1; exit $1", str(number % 5))))

    async with anyio.create_task_group() as group:
        for number in range(40):
            group.start_soon(run, number)
    assert sorted(result.exit_code or 0 for result in results) == sorted([1, 2, 3, 4] * 8)


def test_asyncios_own_cancel_is_held_back_until_the_child_is_reaped() -> None:
    async def main() -> None:
        before = children()
        script = "trap '' TERM; while :; do sleep 1000; done"
        task = asyncio.create_task(run_process(shell(script, kill_grace_s=0.2)))
        while children() == before:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children() == before

    asyncio.run(main())


async def test_what_the_first_caller_knew_is_not_kept_for_the_later_ones() -> None:
    class Known:
        pass

    variable: ContextVar[Known] = ContextVar("known")

    async def first() -> weakref.ref[Known]:
        known = Known()
        variable.set(known)
        await run_process(shell("exit 0"))
        return weakref.ref(known)

    seen: list[weakref.ref[Known]] = []

    async def keep() -> None:
        seen.append(await first())

    async with anyio.create_task_group() as group:
        group.start_soon(keep)
    gc.collect()
    assert seen[0]() is None


def test_two_event_loops_in_two_threads() -> None:
    failures: list[BaseException] = []

    async def work() -> None:
        async def one(number: int) -> None:
            result = await run_process(shell("echo $1", str(number)))
            assert result.stdout == f"{number}\n".encode()

        async with anyio.create_task_group() as group:
            for number in range(25):
                group.start_soon(one, number)

    def run(backend: str) -> None:
        try:
            anyio.run(work, backend=backend)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("asyncio", "trio") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_detached_runs_outlive_the_call_and_write_to_their_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    fresh = tmp_path / "fresh"
    script = "cat; echo err >&2; echo session $(cut -d' ' -f6 /proc/self/stat)"
    spec = shell(script, stdin=b"payload\n")
    for path in (log, fresh):
        identity = spawn_detached(spec, path)
        wait_until_dead(identity.pid)
        text = path.read_text().removeprefix("before\n")
        assert text == f"payload\nerr\nsession {identity.pid}\n"
    assert fresh.stat().st_mode & 0o777 == 0o600
    assert log.read_text().startswith("before\n")


def test_a_detached_run_is_known_by_its_identity(tmp_path: Path) -> None:
    identity = spawn_detached(shell("exec sleep 1000"), tmp_path / "log")
    assert process_status(identity) == "running"
    assert kill_process(identity) == "terminated"
    assert process_status(identity) in ("zombie", "dead")
    assert kill_process(identity) == "already_dead"


def test_kill_insists(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    script = "trap '' TERM; echo > $1; while :; do sleep 1000; done"
    identity = spawn_detached(shell(script, str(fifo)), tmp_path / "log")
    fifo.read_text()
    assert kill_process(identity, grace_s=0.1) == "killed"


def test_a_reused_number_is_never_signalled(tmp_path: Path) -> None:
    identity = spawn_detached(shell("exec sleep 1000"), tmp_path / "log")
    fakes = [
        ProcessId(identity.boot_id, identity.pid_namespace, identity.pid, 1),
        ProcessId("another-boot", identity.pid_namespace, identity.pid, identity.start_ticks),
    ]
    for fake in fakes:
        assert process_status(fake) == "dead"
        assert kill_process(fake) == "already_dead"
    elsewhere = ProcessId(identity.boot_id, 1, identity.pid, identity.start_ticks)
    with pytest.raises(ProcessError, match="namespace"):
        process_status(elsewhere)
    with pytest.raises(ProcessError, match="namespace"):
        kill_process(elsewhere)
    assert process_status(identity) == "running"
    assert kill_process(identity) == "terminated"


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_numbers_that_mean_everybody_are_refused(pid: int) -> None:
    own = current_process()
    fake = ProcessId(own.boot_id, own.pid_namespace, pid, own.start_ticks)
    with pytest.raises(ProcessError, match="not the number"):
        kill_process(fake)


def test_the_current_process_is_running() -> None:
    assert current_process().pid == os.getpid()
    assert process_status(current_process()) == "running"


@pytest.mark.parametrize("folder", ["/missing/folder/log", "/"])
def test_a_log_that_cannot_be_written_is_an_error(folder: str) -> None:
    with pytest.raises(SpawnFailed, match="append to"):
        spawn_detached(shell("exit 0"), folder)


def test_a_detached_run_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    before = children()
    with pytest.raises(SpawnFailed, match="execute"):
        spawn_detached(ProcessSpec("/bin/missing", cwd="/", env=PATH), tmp_path / "log")
    assert children() == before


def test_python_is_run_like_any_program() -> None:
    code = "import sys; print(sys.stdin.read().upper())"
    spec = ProcessSpec(sys.executable, ("-Ic", code), cwd="/", env=PATH, stdin=b"loud")
    assert run_process_sync(spec).stdout == b"LOUD\n"
