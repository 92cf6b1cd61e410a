"""Waits before a next try."""

from hypothesis import given
from hypothesis import strategies as st

from ryecore.policy.backoff import backoff_s

TRIED = st.integers(1, 10_000)


@given(TRIED, st.floats(0.001, 60), st.floats(0.001, 600))
def test_waits_grow_and_stay_within_the_cap(tried: int, base_s: float, cap_s: float) -> None:
    assert 0 < backoff_s(tried, base_s, cap_s) <= cap_s
    assert backoff_s(tried, base_s, cap_s) <= backoff_s(tried + 1, base_s, cap_s)


@given(TRIED, st.floats())
def test_a_jitter_of_any_kind_takes_a_part_of_the_wait(tried: int, jitter: float) -> None:
    assert 0 <= backoff_s(tried, 0.25, 8.0, jitter) <= backoff_s(tried, 0.25, 8.0)


def test_the_first_waits_are_those_of_the_defaults() -> None:
    assert [backoff_s(tried, 0.25, 8.0) for tried in range(1, 8)] == [0.25, 0.5, 1, 2, 4, 8, 8]
