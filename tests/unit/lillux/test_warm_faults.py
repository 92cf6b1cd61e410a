"""Whatever dies, hangs, lies or changes: a warm call is right, or it starts cold."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from ryecore.lillux import ProcessResult, ProcessSpec, WarmPool, run_process, run_process_sync
from tests.interpreter import PYTHON
from tests.loops import ON_BOTH_LOOPS
from tests.matrix import IS_SOAK
from tests.warm_hosts import is_alive, state_of

from .system import PATH, children, open_fds, wait_for_fds, wait_until_dead
from .warm import (
    MIB,
    TEMPLATE,
    first_warm,
    one_spare,
    python,
    spare_pids,
    template_pid,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The reactor is the same on both loops."""
    return "asyncio"


ECHO = "import sys; sys.stdout.write(sys.stdin.read())"


def test_a_killed_template_is_replaced(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    killed = template_pid(pool)
    os.kill(killed, signal.SIGKILL)
    wait_until_dead(killed)
    assert run_process_sync(spec).stdout == b"input"
    assert first_warm(spec).stdout == b"input"
    assert template_pid(pool) != killed
    assert killed not in children()
    (stats,) = pool.stats()
    assert (stats.failures, stats.reason) == (1, "it ended")


def test_a_killed_spare_is_replaced(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    for _ in range(3):
        killed = one_spare(spec)
        os.kill(killed, signal.SIGKILL)
        wait_until_dead(killed)
        result = run_process_sync(spec)
        assert (result.stdout, result.exit_code) == (b"input", 0)
        assert first_warm(spec).pid != killed
        assert killed not in children()


async def test_a_call_that_never_began_begins_once(pool: WarmPool, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    body = f"{ECHO}\nwith open({str(begun)!r}, 'a') as out: out.write('once')"
    spec = python(pool, body)
    first_warm(spec)
    begun.unlink()
    spare = one_spare(spec)
    os.kill(spare, signal.SIGSTOP)
    while state_of(spare) != "T":
        await anyio.sleep(0.001)
    results: list[ProcessResult] = []

    async def call() -> None:
        results.append(await run_process(spec))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        # The next spare is there when this one has been given away.
        while not spare_pids(pool) - {spare}:
            await anyio.sleep(0.001)
        os.kill(spare, signal.SIGKILL)
    assert [(one.warm, one.stdout, one.exit_code) for one in results] == [(False, b"input", 0)]
    assert "never began" in (results[0].why_cold or "")
    assert begun.read_text() == "once"


async def test_a_call_that_begins_anew_has_the_rest_of_its_time(pool: WarmPool) -> None:
    body = "import sys, time\nif sys.stdin.read() == 'stay': time.sleep(60)"
    first_warm(python(pool, body))
    spare = one_spare(python(pool, body))
    os.kill(spare, signal.SIGSTOP)
    while state_of(spare) != "T":
        await anyio.sleep(0.001)
    begun = anyio.current_time()
    result = await run_process(python(pool, body, stdin=b"stay", timeout_s=3))
    assert (result.warm, result.status) == (False, "timed_out")
    assert anyio.current_time() - begun < 3.9  # it stood still for one of three seconds


async def test_a_killed_call_is_an_ordinary_end_and_outlives_its_template(
    pool: WarmPool, tmp_path: Path
) -> None:
    said, go_on = tmp_path / "said", tmp_path / "go on"
    os.mkfifo(said)
    os.mkfifo(go_on)
    body = (
        "import os, sys\nif sys.stdin.read() == 'stay':\n"
        f" with open({str(said)!r}, 'w') as out: out.write(str(os.getpid()))\n"
        f" print(open({str(go_on)!r}).read())"
    )
    first_warm(python(pool, body))
    results: list[ProcessResult] = []

    async def call() -> None:
        results.append(await run_process(python(pool, body, stdin=b"stay")))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        pid = int(await anyio.Path(said).read_text())
        os.kill(pid, signal.SIGKILL)
    assert (results[0].status, results[0].signal) == ("signaled", signal.SIGKILL)
    assert results[0].warm
    first_warm(python(pool, body))
    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.Path(said).read_text()
        template = template_pid(pool)
        os.kill(template, signal.SIGKILL)
        await anyio.to_thread.run_sync(wait_until_dead, template)
        await anyio.Path(go_on).write_text("alive")
    assert (results[1].warm, results[1].stdout) == (True, b"alive\n")


async def test_a_template_that_hangs_is_killed_and_who_waits_starts_cold(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    one_spare(spec)
    template = template_pid(pool)
    os.kill(template, signal.SIGSTOP)
    results: list[ProcessResult] = []

    async def call() -> None:
        results.append(await run_process(spec))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(call)
    assert {result.stdout for result in results} == {b"input"}
    assert sorted(result.warm for result in results) == [False, False, True]
    why = [result.why_cold for result in results if not result.warm]
    assert why == ["its template failed: it hangs"] * 2
    (stats,) = pool.stats()
    assert (stats.failures, stats.reason) == (1, "it hangs")
    assert not is_alive(template)


@ON_BOTH_LOOPS
async def test_a_call_that_waits_for_a_fork_can_be_cancelled(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    os.kill(one_spare(spec), signal.SIGSTOP)
    os.kill(template_pid(pool), signal.SIGSTOP)
    with anyio.move_on_after(0.05) as scope:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(run_process, python(pool, ECHO, kill_grace_s=0.05))
    assert scope.cancelled_caught
    assert len(children()) <= 2


async def test_a_template_killed_under_load_costs_no_call_and_leaves_nothing() -> None:
    before = children()
    for calls_before in (1, 5, 20) if IS_SOAK else (1, 20):
        pool = WarmPool(256 * MIB)
        spec = python(pool, ECHO)
        first_warm(spec)
        template, results = template_pid(pool), list[ProcessResult]()

        async def call(
            pool: WarmPool = pool,
            spec: ProcessSpec = spec,
            results: list[ProcessResult] = results,
            template: int = template,
            last: int = calls_before,
        ) -> None:
            results.append(await run_process(spec))
            if len(results) == last:
                try:
                    os.kill(template, signal.SIGKILL)
                except ProcessLookupError:  # it has starved beside the others, and nothing else
                    assert pool.stats()[0].reason == "it hangs"

        async with anyio.create_task_group() as group:
            for _ in range(24):
                group.start_soon(call)
        assert {(one.stdout, one.exit_code) for one in results} == {(b"input", 0)}
        assert pool.close()
        assert children() == before


def test_a_child_that_its_template_could_not_name_is_found(pool: WarmPool) -> None:
    told = b"control.send(answer)"
    assert told in TEMPLATE
    program = TEMPLATE.replace(told, b"os.kill(os.getpid(), 9) or " + told)
    spec = python(pool, ECHO, program=program)
    while not any(stats.failures for stats in pool.stats()):
        assert run_process_sync(spec).stdout == b"input"
    while children():
        # What is found is killed, and reaped when it is dead.
        assert run_process_sync(spec).stdout == b"input"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("import os; os.write(3, b'no\\0it has two\\nthreads')", "it has two threads"),
        (
            "print('loaded', flush=True); import os; os.write(3, b'ready\\0'); os.read(3, 9)",
            "prints",
        ),
        ("import os; os.write(3, b'hello'); os.read(3, 9)", "no sense"),
        ("import os; os.write(3, b'4711'); os.read(3, 9)", "no sense"),
        ("import os; os.write(3, b'ready\\0'); os._exit(0)", "it "),
        ("import os; os._exit(1)", "it "),
        (
            "import os\nfor _ in '12': os.read(3, 1 << 20)\nos.write(3, b'ready\\0')\n"
            "os.read(3, 9); os.write(3, b'1')\nos.read(3, 9)",
            "no sense",
        ),
        (
            "import os\nfor _ in '12': os.read(3, 1 << 20)\nos.write(3, b'ready\\0')\n"
            "os.read(3, 9); os.write(3, b'%d' % os.getppid())\nos.read(3, 9)",
            "not the host's child",
        ),
        (
            "import os\nfor _ in '12': os.read(3, 1 << 20)\nos.write(3, b'ready\\0')\n"
            "os.read(3, 9); os.write(3, b'%d' % os.getpid())\nos.read(3, 9)",
            "not asked for",
        ),
    ],
)
def test_a_template_that_is_none_harms_no_call(pool: WarmPool, template: str, reason: str) -> None:
    spec = python(pool, ECHO, template=template, env={**PATH, "KEY": "a secret"}, stdin=b"x1y2")
    while not any(stats.failures for stats in pool.stats()):
        result = run_process_sync(spec)
        assert (result.stdout, result.exit_code, result.warm) == (b"x1y2", 0, False)
    assert reason in pool.stats()[0].reason
    assert reason in (run_process_sync(spec).why_cold or "")
    assert pool.stats()[0].state == "failed"
    for text in (repr(pool.stats()), repr(pool), repr(spec)):
        assert "secret" not in text
        assert "x1y2" not in text


def test_a_fork_that_fails_has_its_call_start_cold(pool: WarmPool) -> None:
    template = (
        "import os\nfor _ in '12': os.read(3, 1 << 20)\nos.write(3, b'ready\\0')\n"
        "while os.read(3, 9): os.write(3, b'no\\0no processes')"
    )
    spec = python(pool, ECHO, template=template)
    while not any(stats.state == "ready" for stats in pool.stats()):
        run_process_sync(spec)
    for _ in range(5):
        assert run_process_sync(spec).stdout == b"input"
    assert pool.stats()[0].failures == 0


def test_a_changed_module_is_seen_by_the_next_call(pool: WarmPool, tmp_path: Path) -> None:
    module = tmp_path / "helping.py"
    module.write_text("VALUE = 1")
    env = {**PATH, "PYTHONPATH": str(tmp_path)}
    spec = python(pool, "import helping; print(helping.VALUE)", preload=["helping"], env=env)
    assert first_warm(spec).stdout == b"1\n"
    for value in (2, 3):
        module.write_text(f"VALUE = {value}")
        result = run_process_sync(spec)
        assert (result.stdout, result.warm) == (f"{value}\n".encode(), False)
    assert first_warm(spec).stdout == b"3\n"


def test_a_changed_program_is_what_the_next_call_runs(pool: WarmPool, tmp_path: Path) -> None:
    command = str(tmp_path / "python")
    shutil.copy(PYTHON, command)
    env = {**PATH, "PYTHONHOME": sys.base_prefix}
    spec = python(pool, ECHO, command=command, env=env)
    first_warm(spec)
    os.unlink(command)
    shutil.copy(PYTHON, command)
    assert not run_process_sync(spec).warm
    assert first_warm(spec).stdout == b"input"


def test_what_a_start_inherits_from_its_host_is_as_it_is_now(pool: WarmPool) -> None:
    body = "import os, resource; print(os.umask(0), resource.getrlimit(resource.RLIMIT_CORE))"
    spec = python(pool, body)
    before = first_warm(spec).stdout
    umask, limit = os.umask(0o077), resource.getrlimit(resource.RLIMIT_CORE)
    try:
        result = run_process_sync(spec)
        assert (result.stdout.startswith(b"63 "), result.warm) == (True, False)
        assert first_warm(spec).stdout == result.stdout
    finally:
        os.umask(umask)
    assert first_warm(spec).stdout == before
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, limit[1]))
        result = run_process_sync(spec)
        assert (b" (0, " in result.stdout, result.warm) == (True, limit[0] == 0)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limit)


def test_two_pools_and_two_starts_share_nothing(pool: WarmPool) -> None:
    other = WarmPool(256 * MIB)
    first_warm(python(pool, ECHO))
    assert not run_process_sync(python(other, ECHO)).warm
    assert not run_process_sync(python(pool, ECHO, env={**PATH, "A": "1"})).warm
    assert not run_process_sync(python(pool, ECHO, cwd="/tmp")).warm
    assert not run_process_sync(python(pool, ECHO + " ")).warm
    assert first_warm(python(pool, ECHO)).warm
    assert other.stats() == ()


def test_a_template_over_the_bound_is_refused_for_good() -> None:
    pool = WarmPool(MIB)
    spec = python(pool, ECHO)
    while not pool.stats() or pool.stats()[0].state != "refused":
        assert run_process_sync(spec).stdout == b"input"
    for _ in range(3):
        assert not run_process_sync(spec).warm
    (stats,) = pool.stats()
    assert (stats.state, stats.pid) == ("refused", 0)
    assert "memory" in stats.reason
    assert pool.close()


async def test_a_fork_of_the_host_has_a_pool_of_its_own(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    template, spare = template_pid(pool), one_spare(spec)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            results = [run_process_sync(spec).stdout for _ in range(3)]
            is_own = template not in children()
            is_closed = pool.close() and pool.stats() == () and not children()
            code = 0 if set(results) == {b"input"} and is_own and is_closed else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert is_alive(template)
    assert is_alive(spare)
    assert run_process_sync(spec).warm


HOST = """
import os, sys
from ryecore.lillux import WarmPool, run_process_sync
from tests.unit.lillux.system import children
from tests.unit.lillux.warm import MIB, first_warm, one_spare, python
pool = WarmPool(256 * MIB)
spec = python(pool, "")
first_warm(spec)
one_spare(spec)
print(*children(), flush=True)
sys.stdin.read()
"""


def test_a_killed_host_takes_its_pool_along() -> None:
    command = [sys.executable, "-c", HOST]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        pids = [int(pid) for pid in host.stdout.readline().split()]
        assert len(pids) == 2
        host.kill()
        for pid in pids:
            wait_until_dead(pid)


def test_a_host_that_ends_leaves_no_process() -> None:
    command = [sys.executable, "-c", HOST]
    done = subprocess.run(command, input=b"", stdout=subprocess.PIPE, check=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def run_host(script: str) -> str:
    """Return what a host of its own printed; its bounds are never undone."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SMALL = """
import resource
import anyio
from ryecore.lillux import WarmPool, run_process
from tests.unit.lillux.system import children, open_fds
from tests.unit.lillux.warm import MIB, first_warm, python
pool = WarmPool(256 * MIB)
spec = python(pool, "import sys; print(sys.stdin.read())")
first_warm(spec)
most = open_fds() + 30
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
results = []
async def call():
    results.append(await run_process(spec))
async def main():
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(call)
anyio.run(main)
print(*(result.stdout for result in results))
print("closed:", pool.close(), children())
"""


def test_a_host_without_descriptors_still_serves_every_call() -> None:
    answers, closed = run_host(SMALL).splitlines()
    assert answers.split() == [r"b'input\n'"] * 20
    assert closed == "closed: True set()"


FULL = """
import os, resource, sys
sys.path.insert(0, "")
from ryecore.lillux import WarmPool, run_process_sync
from tests.unit.lillux.system import children, open_fds
from tests.unit.lillux.warm import MIB, first_warm, one_spare, python
pool = WarmPool(256 * MIB)
first_warm(python(pool, "pass"))
one_spare(python(pool, "pass"))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
while True:
    try:
        taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        break
print(run_process_sync(python(None, "print(1)")).stdout)
"""


def test_what_was_forked_ahead_makes_room_for_a_call() -> None:
    assert run_host(FULL) == "b'1\\n'\n"


def test_somebody_else_reaps_what_the_pool_has_forked(pool: WarmPool) -> None:
    spec = python(pool, ECHO)
    first_warm(spec)
    fds = open_fds()  # with those that the first warm start of a process opens for good
    for pid in (one_spare(spec), template_pid(pool)):
        os.kill(pid, signal.SIGKILL)
        wait_until_dead(pid)
        with suppress(ChildProcessError):  # when the reactor was faster
            os.waitpid(pid, 0)
        assert run_process_sync(spec).stdout == b"input"
    assert first_warm(spec).stdout == b"input"
    assert pool.close()
    wait_for_fds(fds)
