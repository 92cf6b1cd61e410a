"""The order of tests that share a server."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.sharing import begin_with_servers


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize(("ray", "postgres"), [(0, 0), (2, 3), (0, 9), (12, 1)])
def test_a_share_begins_with_the_tests_of_one_server(workers: int, ray: int, postgres: int) -> None:
    fixtures = [()] * 7 + [("ray_cluster", "postgres_address")] * ray
    fixtures += [("tmp_path", "postgres_address")] * postgres
    items: list[Any] = [SimpleNamespace(fixturenames=names) for names in (*fixtures, ())]

    ordered: list[Any] = begin_with_servers(items, workers)

    assert sorted(map(id, ordered)) == sorted(map(id, items))
    names = [one.fixturenames for one in ordered]
    assert all("ray_cluster" in one for one in names[:ray])
    if workers > 1:
        begin = max(ray, len(items) // workers)
        assert all("postgres_address" in one for one in names[begin : begin + postgres])
