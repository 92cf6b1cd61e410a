"""The help desk of the benchmarks keeps tenants apart, and its approvals over a restart."""

import sys

from tests.benchmarks.services.__main__ import check


def test_the_help_desk_keeps_tenants_apart_and_its_approvals_over_a_restart() -> None:
    check(sys.executable, "ryecore_desk")
