"""The simulation of many threads on one server obeys what is known without one."""

import pytest
from attrs import evolve

from tests.benchmarks.cluster import Costs, Server, simulate


def test_threads_wait_for_models_alone_where_the_server_costs_nothing() -> None:
    costs = Costs(thread_ms=0, turn_ms=0, thread_bytes=0, turn_bytes=0)
    came = simulate(200, Server(4, sync_ms=0), costs)
    assert came.busy == came.log_bytes_a_second == came.lost == 0
    # By Little's law: 200 threads, of answers that take 4.7 s on average, those of trees above it.
    assert came.turns_a_second == pytest.approx(200 / 4.7 * 1.26, rel=0.15)


def test_a_full_server_does_half_as_much_of_what_costs_twice_as_much() -> None:
    costs = Costs(thread_ms=40, turn_ms=20)
    once = simulate(400, Server(1), costs, over_s=100)
    twice = simulate(400, Server(1), evolve(costs, thread_ms=80, turn_ms=40), over_s=100)
    assert once.busy == pytest.approx(1, abs=0.02)
    assert twice.turns_a_second == pytest.approx(once.turns_a_second / 2, rel=0.15)


def test_one_seed_comes_to_the_same_again() -> None:
    assert simulate(50, Server(4), Costs()) == simulate(50, Server(4), Costs())
