"""Calls that are served by what a template has forked ahead are as those that start cold."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from ryecore.errors import SpawnFailed
from ryecore.lillux import ProcessResult, ProcessSpec, WarmPool, run_process, run_process_sync
from tests.loops import ON_BOTH_LOOPS
from tests.matrix import IS_SOAK
from tests.warm_hosts import is_alive, state_of

from .system import children, open_fds, wait_until_dead
from .warm import MIB, TEMPLATE, first_warm, one_spare, python, wait_for_spares_alone

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The reactor is the same on both loops."""
    return "asyncio"


ECHO = "import sys; sys.stdout.write(sys.stdin.read())"
AT_ONCE = 200 if IS_SOAK else 60


def seen(result: ProcessResult) -> tuple[object, ...]:
    return (
        result.status,
        result.exit_code,
        result.signal,
        result.stdout,
        result.stderr,
        result.stdout_total_bytes,
        result.stderr_total_bytes,
        result.left_behind,
    )


def test_the_third_call_at_the_earliest_is_warm(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first, second = run_process_sync(spec), run_process_sync(spec)
    assert (first.warm, second.warm) == (False, False)
    assert "second call" in (first.why_cold or "")
    assert "beside this call" in (second.why_cold or "")
    third = first_warm(spec)
    assert third.why_cold is None
    assert third.warm
    assert seen(third) == seen(first)
    (stats,) = pool.stats()
    assert (stats.state, stats.failures, stats.reason) == ("ready", 0, "")
    assert stats.forks >= 1
    assert 0 < stats.memory_bytes < 64 * MIB


GIVEN = "import ast, sys; exec(ast.literal_eval(sys.stdin.readline()), globals())"
BODIES = [
    ECHO,
    "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "import os; os._exit(7)",
    "def f():\n    raise KeyError('x')\nf()",
    "import os; os.closerange(0, 64); os._exit(0)",
    "import sys; sys.stdout.write('x' * 3_000_000)",
    "import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())",
    "import os; print(sorted(os.listdir('/proc/self/fd')))",
    "import signal; print([signal.getsignal(s) for s in range(1, 31)])",
    "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))",
    "import os; print(os.umask(0), os.getcwd(), sorted(os.environ), os.getppid())",
    "import sys; print(sys.argv, sys.flags, sys.path)",
    "pass",
]


async def test_a_warm_call_is_as_a_cold_one(pool: WarmPool) -> None:
    """One template serves them all: what is run comes with the call."""
    for body in BODIES:
        call = {"stdin": f"{body!r}\ninput".encode(), "max_output_bytes": 1000}
        cold = run_process_sync(python(None, GIVEN, **call))
        spec = python(pool, GIVEN, **call)
        warm = first_warm(spec)
        assert (warm.warm, cold.warm) == (True, False)
        assert seen(warm) == seen(cold), body
        assert seen(await run_process(spec)) == seen(cold), body


async def test_big_input_and_big_output_flow_at_once(pool: WarmPool) -> None:
    content = os.urandom(1024) * 8192
    body = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    first_warm(python(pool, body))
    result = await run_process(python(pool, body, stdin=content))
    assert result.warm
    assert result.stdout == content


async def test_without_input_or_memory_it_starts_cold(pool: WarmPool) -> None:
    for spec in (python(pool, "", stdin=b""), python(WarmPool(0), "")):
        assert [run_process_sync(spec).warm for _ in range(3)] == [False] * 3
    assert pool.stats() == ()


async def test_a_log_gets_what_a_warm_call_writes(pool: WarmPool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    spec = python(pool, ECHO, log_path=log)
    first_warm(spec)
    log.unlink()
    assert (await run_process(spec)).warm
    assert log.read_bytes() == b"input"


async def test_a_warm_call_has_its_time(pool: WarmPool) -> None:
    body = "import sys, time\nif sys.stdin.read() == 'stay': time.sleep(60)"
    first_warm(python(pool, body))
    result = await run_process(python(pool, body, stdin=b"stay", timeout_s=0.1))
    assert (result.status, result.warm, result.signal) == ("timed_out", True, signal.SIGTERM)
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN)\n" + body
    first_warm(python(pool, stubborn))
    spec = python(pool, stubborn, stdin=b"stay", timeout_s=0.3, kill_grace_s=0.1)
    result = await run_process(spec)
    assert (result.status, result.warm, result.signal) == ("timed_out", True, signal.SIGKILL)
    assert not is_alive(result.pid)


@ON_BOTH_LOOPS
async def test_a_cancelled_call_ends_its_child_first(pool: WarmPool, tmp_path: Path) -> None:
    said = tmp_path / "said"
    os.mkfifo(said)
    body = (
        "import os, sys, time\nif sys.stdin.read() == 'stay':\n"
        f" with open({str(said)!r}, 'w') as out: out.write(str(os.getpid()))\n time.sleep(60)"
    )
    first_warm(python(pool, body))
    pid = 0
    async with anyio.create_task_group() as group:
        group.start_soon(run_process, python(pool, body, stdin=b"stay"))
        pid = int(await anyio.Path(said).read_text())
        assert pid in children()
        group.cancel_scope.cancel()
    assert pid
    assert not is_alive(pid)
    assert run_process_sync(python(pool, body)).exit_code == 0


def test_a_child_that_leads_no_group_has_its_time_too(pool: WarmPool) -> None:
    body = "import sys, time\nif sys.stdin.read() == 'stay': time.sleep(60)"
    leaderless = TEMPLATE.replace(b"    call(setsid)\n", b"    pass\n")
    assert leaderless != TEMPLATE
    first_warm(python(pool, body, program=leaderless))
    stays = python(pool, body, program=leaderless, stdin=b"stay", timeout_s=0.2)
    result = run_process_sync(stays)
    assert (result.warm, result.status, result.signal) == (True, "timed_out", signal.SIGTERM)


async def test_what_a_call_leaves_in_its_group_is_ended(pool: WarmPool) -> None:
    body = "import os, time\npid = os.fork()\nif pid: print(pid)\nelse: time.sleep(60)"
    first_warm(python(pool, body, drain_s=0.05))
    result = run_process_sync(python(pool, body, drain_s=0.05))
    assert result.warm
    wait_until_dead(int(result.stdout))


def test_an_argument_that_is_not_there_is_refused(pool: WarmPool) -> None:
    spec = python(pool, "")
    wrong = ProcessSpec(spec.command, (), cwd="/", env={}, stdin=b"x", warm=spec.warm)
    with pytest.raises(SpawnFailed, match="no argument 1"):
        run_process_sync(wrong)


async def test_many_at_once(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    results: list[ProcessResult] = []

    async def call() -> None:
        results.append(await run_process(spec))

    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(call)
    assert {result.stdout for result in results} == {b"input"}
    assert len({result.pid for result in results if result.warm}) > AT_ONCE / 2
    (stats,) = pool.stats()
    assert stats.spares <= 16


def test_many_calls_leave_no_descriptor_and_no_child(pool: WarmPool) -> None:
    spec = python(pool, "")
    first_warm(spec)
    before = open_fds()
    warm = sum(run_process_sync(spec).warm for _ in range(AT_ONCE))
    assert warm > AT_ONCE - 10
    assert open_fds() <= before + 5
    (stats,) = wait_for_spares_alone(pool)
    assert stats.forks <= warm + 2 + stats.spares


async def test_a_child_that_is_stopped_before_its_call_has_it_start_cold(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    stopped = one_spare(spec)
    os.kill(stopped, signal.SIGSTOP)
    while state_of(stopped) != "T":
        await anyio.sleep(0.001)
    result = await run_process(spec)
    assert (result.stdout, result.exit_code, result.warm) == (b"input", 0, False)
    wait_until_dead(stopped)
    assert first_warm(spec).stdout == b"input"


async def test_a_pool_that_is_dropped_closes() -> None:
    run_process_sync(python(None, ""))  # what the reactor itself has open stays
    before, fds = children(), open_fds()
    pool = WarmPool(256 * MIB)
    first_warm(python(pool, ""))
    assert children() - before
    del pool
    with anyio.fail_after(30):
        # The reactor's own look at its surroundings stays open.
        while children() != before or open_fds() > fds + 3:
            await anyio.sleep(0.001)


async def test_a_closed_pool_starts_everything_cold_and_a_waiting_call_too(
    pool: WarmPool,
) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    results: list[ProcessResult] = []

    async def call() -> None:
        results.append(await run_process(spec))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(call)
        await anyio.sleep(0)
        assert await anyio.to_thread.run_sync(pool.close)
    assert {result.stdout for result in results} == {b"input"}
    assert not run_process_sync(spec).warm
    assert pool.close()
