"""A call that doesn't end by itself is ended warm as it is cold."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from ryecore import CallContext, CancelToken, Rye, SyncRye
from ryecore.errors import CallCancelled
from tests.conformance.starts.starting import VARIANTS, Starts, cases_of, started
from tests.conformance.starts.tools import waits
from tests.matrix import in_turn
from tests.warm_hosts import has_starting
from tests.workspace import Workspace

CASES = [name for name in cases_of(waits) if name != "nothing"]
TIMEOUT_S = 1.5


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    with Starts(Workspace(tmp_path_factory.mktemp("bounds"))) as made:
        yield made


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def timed_out(rye: SyncRye, ref: str, case: str, place: Path) -> tuple[str, tuple[object, ...]]:
    """How a call was started, and what anybody saw of its end."""
    place.mkdir(parents=True)
    given = {"case": case, "place": str(place)}
    done = rye.execute(ref, given, trace=True, timeout_s=TIMEOUT_S)
    left = len(done.metadata.get("left_behind_pids", ()))
    files = {path.name: path.read_text() for path in place.iterdir()}
    return started(done), (done.status, done.data, done.error, left, files)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_call_that_takes_too_long(starts: Starts, variant: str, tmp_path: Path) -> None:
    cases = [case for case, one in in_turn(CASES, VARIANTS) if one == variant]
    ref = starts.tool(waits, variant)
    starts.warmed(ref, {"case": "nothing"})
    ryes = {"cold": starts.cold_rye, "warm": starts.rye}
    with ThreadPoolExecutor(2 * len(cases)) as pool:
        found = {
            (case, name): pool.submit(timed_out, rye, ref, case, tmp_path / name / case)
            for case in cases
            for name, rye in ryes.items()
        }
    for case in cases:
        how, cold = found[case, "cold"].result()
        assert how == "cold"
        how, warm = found[case, "warm"].result()
        assert how == "warm"
        assert (case, warm) == (case, cold)


async def cancelled(rye: Rye, ref: str, case: str, place: Path) -> tuple[object, ...]:
    """What comes of a call that is cancelled once the tool runs."""
    place.mkdir(parents=True)
    begun = place / "begun"
    os.mkfifo(begun)
    token = CancelToken()
    given = {"case": case, "place": str(place), "begun": str(begun)}
    ended: list[Any] = []

    async def call() -> None:
        with pytest.raises(CallCancelled) as caught:
            await rye.execute(ref, given, ctx=CallContext(cancellation=token))
        ended.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        pid = await anyio.to_thread.run_sync(begun.read_text)
        token.cancel()
    assert not Path("/proc", pid).exists()
    return (*ended, *sorted(path.name for path in place.iterdir()))


@pytest.mark.anyio
@pytest.mark.parametrize("variant", VARIANTS)
async def test_a_call_that_is_cancelled(workspace: Workspace, variant: str, tmp_path: Path) -> None:
    starts = Starts(workspace)
    ref = starts.tool(waits, variant)
    starts.cold_rye.close()
    starts.rye.close()
    place = tmp_path / "places"
    async with workspace.open(warm_memory_mib=0) as cold, workspace.open() as warm:
        with anyio.fail_after(60):
            while started(await warm.execute(ref, {"case": "nothing"}, trace=True)) != "warm":
                while has_starting(warm):
                    await anyio.sleep(0.005)
        for case in ("sleeps", "hears", "computes", "waits_for_a_child"):
            as_cold = await cancelled(cold, ref, case, place / "cold" / case)
            assert await cancelled(warm, ref, case, place / "warm" / case) == as_cold
