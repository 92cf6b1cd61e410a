"""Measure two things in turn, and print one JSON line a figure.

Absolute times drift between machines, so a figure counts as the ratio to its floor, which runs
interleaved with it.
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

__all__ = ["compare", "report", "report_ways"]


def compare(
    name: str,
    ours: Callable[[], object],
    floor: Callable[[], object],
    *,
    goal: str,
    rounds: int = 30,
    calls: int = 1,
    unit: str = "us",
) -> float:
    """Time two functions in turn and report the medians.

    Args:
        name: What is measured.
        ours: Ours.
        floor: The floor or the peer.
        goal: What the figure should reach, in words.
        rounds: How many rounds count; one more warms up.
        calls: How many calls make a round.
        unit: us or ms.

    Returns:
        The median of the rounds' ratios.
    """
    scale = {"us": 1e-3, "ms": 1e-6}[unit]
    samples: list[tuple[float, float]] = []
    # What stands already is not looked at again; fresh garbage is collected as in any process,
    # because a heap that only grows costs page faults.
    gc.collect()
    gc.freeze()
    try:
        for _ in range(rounds + 1):
            samples.append((_time(ours, calls) * scale, _time(floor, calls) * scale))
    finally:
        gc.unfreeze()
    counted = samples[1:]
    ratio = statistics.median(mine / base for mine, base in counted)
    report(
        name,
        statistics.median(mine for mine, _ in counted),
        unit,
        floor=statistics.median(base for _, base in counted),
        ratio=ratio,
        goal=goal,
    )
    return ratio


def report_ways(
    times: Mapping[str, Sequence[float]],
    floors: Sequence[float],
    goals: Mapping[str, str],
    unit: str,
) -> None:
    """Print the medians of several ways of doing one thing, beside their one floor."""
    base = statistics.median(floors)
    for name, samples in times.items():
        value = statistics.median(samples)
        report(name, value, unit, floor=base, ratio=value / base, goal=goals[name])


def _time(function: Callable[[], object], calls: int) -> float:
    started = time.perf_counter_ns()
    for _ in range(calls):
        function()
    return (time.perf_counter_ns() - started) / calls


def report(name: str, value: float, unit: str, **more: object) -> None:
    """Print a figure as one JSON line."""
    rounded = {
        key: round(item, 3) if isinstance(item, float) else item for key, item in more.items()
    }
    line = {"name": name, "value": round(value, 3), "unit": unit, **rounded}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
