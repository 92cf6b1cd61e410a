"""The order in which the workers of a test run find the tests that share a server."""

from collections.abc import Sequence
from itertools import islice

import pytest

__all__ = ["begin_with_servers"]

_SERVERS = ("ray_cluster", "postgres_address")
"""Fixtures that each worker starts for itself, the costliest one first."""


def begin_with_servers(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Put the tests of a server where the share of one worker begins.

    Of `--dist=worksteal` each worker has an equal share, and one that has finished takes from the
    end of another one's. So what a share begins with is run by its worker, and one worker alone
    starts the server.
    """
    first: dict[str, list[pytest.Item]] = {name: [] for name in _SERVERS}
    others: list[pytest.Item] = []
    for one in items:
        uses = getattr(one, "fixturenames", ())
        first.get(next((name for name in _SERVERS if name in uses), ""), others).append(one)
    begins = list(first.values())[:workers]
    others = [one for more in list(first.values())[workers:] for one in more] + others
    left, ordered = iter(others), list[pytest.Item]()
    for number in range(workers):
        size = (len(items) - len(ordered)) // (workers - number)
        share = begins[number] if number < len(begins) else []
        ordered += [*share, *islice(left, max(0, size - len(share)))]
    return [*ordered, *left]
