"""The long run: make soak."""

import asyncio
import os

import pytest

from ryecore.lillux import run_process
from tests.integration.test_processes import shell, zombies_and_children


@pytest.mark.skipif("not os.environ.get('RYE_SOAK')", reason="long; run with make soak")
def test_ten_thousand_runs_leave_no_descriptor_and_no_process() -> None:
    async def main() -> None:
        fds = 0
        for turn in range(100):
            runs = [run_process(shell("echo a; exit $1", str(n % 7))) for n in range(100)]
            results = await asyncio.gather(*runs)
            assert [result.exit_code for result in results] == [n % 7 for n in range(100)]
            fds = fds or len(os.listdir("/proc/self/fd"))
            assert len(os.listdir("/proc/self/fd")) == fds, turn
        assert not zombies_and_children()

    asyncio.run(main())
