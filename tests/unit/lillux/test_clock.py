import time

from ryecore.lillux import monotonic_ns, now_ns


def test_the_wall_clock_agrees_with_pythons() -> None:
    before = time.time_ns()
    now = now_ns()
    assert before <= now <= time.time_ns()


def test_the_monotonic_clock_never_goes_back() -> None:
    times = [monotonic_ns() for _ in range(100)]
    assert times == sorted(times)
