"""Many calls at once while their template starts: they wait for it, as long as that is sooner."""

import os
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from ryecore.lillux import ProcessResult, ProcessSpec, WarmPool, run_process
from tests.loops import ON_BOTH_LOOPS
from tests.matrix import IS_SOAK

from .warm import FORK_POINT, first_warm, python

pytestmark = pytest.mark.anyio

CORES = len(os.sched_getaffinity(0))
# So many wait for the longest time that any may.
BURST = 40 * CORES + 10
MOST_PATIENCE_S = 2
"""How long, at most, a call waits for a template that starts; `policy.rs` says so."""


@pytest.fixture
def anyio_backend() -> str:
    """The reactor is the same on both loops."""
    return "asyncio"


def counting(begun: Path) -> str:
    """A body that notes each call that begins, and answers with its input."""
    note = f"with open({str(begun)!r}, 'a') as out: out.write('x')"
    return f"{note}\nimport sys; sys.stdout.write(sys.stdin.read())"


async def burst(*specs: ProcessSpec) -> list[ProcessResult]:
    """Call all at once."""
    results: list[ProcessResult] = []

    async def call(spec: ProcessSpec) -> None:
        results.append(await run_process(spec))

    async with anyio.create_task_group() as group:
        for spec in specs:
            group.start_soon(call, spec)
    return results


@pytest.mark.parametrize("anyio_backend", ["asyncio", *(["trio"] if IS_SOAK else [])])
async def test_most_calls_of_a_first_burst_wait_for_the_template(
    pool: WarmPool, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    results = await burst(*[python(pool, counting(begun))] * BURST)
    assert {result.stdout for result in results} == {b"input"}
    assert sum(result.warm for result in results) > BURST / 2
    assert len(begun.read_text()) == BURST
    (stats,) = pool.stats()
    assert (stats.state, stats.failures) == ("ready", 0)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("import time; time.sleep(60)", "takes too long"),
        ("raise SystemExit", "it ended"),
        ("print('hello', flush=True); import time; time.sleep(60)", "prints something"),
        ("import os; os.write(3, b'no\\0two threads'); os.read(3, 1)", "two threads"),
    ],
)
async def test_calls_start_cold_where_their_template_never_gets_ready(
    pool: WarmPool, tmp_path: Path, template: str, why: str
) -> None:
    begun = tmp_path / "begun"
    spec = python(pool, counting(begun), template=template)
    results = await burst(*[spec] * (CORES + 10))
    assert {result.stdout for result in results} == {b"input"}
    assert not any(result.warm for result in results)
    assert any(why in (result.why_cold or "") for result in results)
    assert len(begun.read_text()) == CORES + 10


async def test_no_call_waits_after_a_template_has_failed(pool: WarmPool, tmp_path: Path) -> None:
    spec = python(pool, counting(tmp_path / "begun"), template="raise SystemExit")
    await burst(*[spec] * 3)
    while not any(stats.failures for stats in pool.stats()):
        await anyio.sleep(0.001)
    results = await burst(*[spec] * (CORES + 10))
    assert not any("too long" in (result.why_cold or "") for result in results)


async def test_no_call_waits_where_no_template_fits(tmp_path: Path) -> None:
    pool = WarmPool(1)
    results = await burst(*[python(pool, counting(tmp_path / "begun"))] * (CORES + 10))
    assert {result.stdout for result in results} == {b"input"}
    assert not any(result.warm for result in results)
    assert pool.close()


def awaiting(pipe: Path) -> str:
    """A line that waits for a byte in the pipe."""
    return f"import os; fd = os.open({str(pipe)!r}, os.O_RDONLY); os.read(fd, 1); os.close(fd)"


@ON_BOTH_LOOPS
async def test_a_waiting_call_can_be_cancelled(pool: WarmPool, tmp_path: Path) -> None:
    gate, held, said = (tmp_path / name for name in ("gate", "held", "said"))
    for pipe in (gate, held, said):
        os.mkfifo(pipe)
    ends = gate_end, held_end, said_end = [os.open(one, os.O_RDWR) for one in (gate, held, said)]
    # Each call says that it has begun, and some stay until they are released.
    body = (
        f"with open({str(said)!r}, 'w') as out: out.write('x')\n"
        f"import sys\nif sys.stdin.read() == 'stay':\n {awaiting(held)}"
    )
    first = CORES + 1

    async def cancel_what_waits(template: str) -> tuple[float, int]:
        """Return how long after its first call that was, and how many calls have begun."""
        began_s, begun = anyio.current_time(), 0
        async with anyio.create_task_group() as group:
            for _ in range(first):
                group.start_soon(run_process, python(pool, body, template=template, stdin=b"stay"))
            while begun < first:
                begun += len(await anyio.to_thread.run_sync(os.read, said_end, 100))
            async with anyio.create_task_group() as waiting:
                for _ in range(BURST):
                    waiting.start_soon(run_process, python(pool, body, template=template))
                await anyio.wait_all_tasks_blocked()
                waiting.cancel_scope.cancel()
            took_s = anyio.current_time() - began_s
            os.write(held_end, b"x" * first)
        os.set_blocking(said_end, False)
        with suppress(BlockingIOError):
            begun += len(os.read(said_end, BURST))
        os.set_blocking(said_end, True)
        return took_s, begun

    # A call waits for two seconds; a machine that needs longer for this tries again.
    for attempt in range(20):
        template = f"{awaiting(gate)}\n{FORK_POINT}\n{body}\n# {attempt}"
        took_s, begun = await cancel_what_waits(template)
        if took_s < MOST_PATIENCE_S:
            break
    assert took_s < MOST_PATIENCE_S
    assert begun == first  # and nothing of what was cancelled
    waits = python(pool, body, template=template)
    os.write(gate_end, b"x" * 100)
    assert first_warm(waits).exit_code == 0
    for end in ends:
        os.close(end)


async def test_a_waiting_call_keeps_its_timeout(pool: WarmPool) -> None:
    body = "import time; time.sleep(60)"
    results = await burst(*[python(pool, body, template=body, timeout_s=0.4)] * (CORES + 3))
    assert {result.status for result in results} == {"timed_out"}
    assert not any(result.warm for result in results)
