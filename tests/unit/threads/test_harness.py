"""The bounds of one thread."""

from decimal import Decimal

from attrs import evolve

from ryecore.policy import CancelToken
from ryecore.policy.limits import Limits
from ryecore.threads.harness import SafetyHarness


def test_other_limits_change_nothing_but_the_deadline() -> None:
    def clock() -> float:
        return 7.0

    harness = SafetyHarness(Limits(), frozenset({"rye.fetch.*"}), CancelToken(), 5.0, clock)
    limits = Limits(turns=3, duration_s=Decimal(10))

    assert harness.within(limits) == evolve(harness, limits=limits)
    assert harness.within(limits).deadline == 15.0
