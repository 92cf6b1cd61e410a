"""Each module says what is public."""

import importlib
import pkgutil
import time

from ryecore import lillux
from ryecore.lillux import monotonic_ns, now_ns


def test_every_module_says_what_is_public() -> None:
    for module in pkgutil.iter_modules(lillux.__path__):
        names = importlib.import_module(f"ryecore.lillux.{module.name}")
        assert all(hasattr(names, name) for name in names.__all__)


def test_the_wall_clock_agrees_with_pythons() -> None:
    before = time.time_ns()
    now = now_ns()
    assert before <= now <= time.time_ns()


def test_the_monotonic_clock_never_goes_back() -> None:
    times = [monotonic_ns() for _ in range(100)]
    assert times == sorted(times)
