"""What the integration tests share."""

import sys
from collections.abc import Iterator

import pytest

from tests.forking import SERVERS, forking_python
from tests.warm_hosts import Hosts


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """A server of hosts, each of which lives a function of the test's module."""
    server = Hosts(request.module.__name__)
    yield server
    server.close()


@pytest.fixture(scope="session")
def forking_interpreter(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that forks MCP connectors where the SDK is imported already."""
    return forking_python(tmp_path_factory.mktemp("interpreter"), "-EPB", SERVERS)


@pytest.fixture
def forked_connectors(
    request: pytest.FixtureRequest, forking_interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fork the connectors of a test: what they answer is the same.

    Tests of how their processes start and end have fresh ones: they are marked
    `fresh_processes`, where their module uses this fixture.
    """
    if request.node.get_closest_marker("fresh_processes"):
        return
    monkeypatch.setattr(sys, "executable", forking_interpreter)
