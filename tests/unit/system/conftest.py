"""What the tests of the system's tools share."""

from collections.abc import Iterator

import pytest

from tests.unit.system.tools import end_templates


@pytest.fixture(scope="package", autouse=True)
def _own_templates() -> Iterator[None]:
    """End the processes from which calls were forked, once other tests follow."""
    yield
    end_templates()
