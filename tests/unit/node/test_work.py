"""How often workers of a queue ask for runs."""

import pytest

pytest.importorskip("dbos", reason="needs the extra dbos")
from ryecore.node.work import poll_interval_s


def test_all_workers_together_ask_as_often_as_one_and_each_once_a_second() -> None:
    assert [poll_interval_s(one) for one in (0, 1, 2, 20, 1_000)] == [0.05, 0.05, 0.1, 1.0, 1.0]
