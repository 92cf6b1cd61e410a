"""What the tests of warm starts share."""

from collections.abc import Iterator

import pytest

from ryecore.lillux import WarmPool

from .system import children, leave_out_children
from .warm import MIB


@pytest.fixture(autouse=True)
def _only_own_children() -> Iterator[None]:
    with leave_out_children():
        yield


@pytest.fixture
def pool() -> Iterator[WarmPool]:
    """A pool that leaves nothing."""
    before = children()
    pool = WarmPool(256 * MIB)
    yield pool
    assert pool.close()
    assert pool.stats() == ()
    assert children() == before
