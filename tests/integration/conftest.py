"""What the integration tests share."""

from collections.abc import Iterator

import pytest

from tests.warm_hosts import Hosts


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """A server of hosts, each of which lives a function of the test's module."""
    server = Hosts(request.module.__name__)
    yield server
    server.close()
