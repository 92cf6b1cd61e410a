"""The long run: make soak."""

import asyncio

import pytest

from ryecore.lillux import run_process
from tests.matrix import IS_SOAK
from tests.unit.lillux.system import children, open_fds, shell


@pytest.mark.skipif(not IS_SOAK, reason="long; run with make soak")
def test_ten_thousand_runs_leave_no_descriptor_and_no_process() -> None:
    async def main() -> None:
        fds = 0
        for turn in range(100):
            runs = [run_process(shell("echo a; exit $1", str(n % 7))) for n in range(100)]
            results = await asyncio.gather(*runs)
            assert [result.exit_code for result in results] == [n % 7 for n in range(100)]
            fds = fds or open_fds()
            assert open_fds() <= fds, turn  # fewer, where garbage of an earlier test had some
        assert not children()

    asyncio.run(main())
