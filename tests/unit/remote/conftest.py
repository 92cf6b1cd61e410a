"""One node for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.served_node import ServedNode, served_node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedNode]:
    """A node that runs, with no callers yet."""
    with served_node(tmp_path_factory.mktemp("operator") / "node") as served:
        yield served
