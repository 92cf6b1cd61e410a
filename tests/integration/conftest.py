"""What the integration tests share."""

from collections.abc import Iterator
from typing import Any

import pytest

from ryecore.state.store import ThreadStore
from tests.postgres import own_schema
from tests.queue_workers import Workers, write_remotes
from tests.thread_host import PlannedWorkspace
from tests.warm_hosts import Hosts
from tests.workspace import Workspace


@pytest.fixture(scope="module")
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """A server of hosts, each of which lives a function of the test's module."""
    server = Hosts(request.module.__name__)
    yield server
    server.close()


@pytest.fixture
def state(postgres_address: str) -> str:
    """The address of a schema of the test's own."""
    return own_schema(postgres_address)


@pytest.fixture
def store(workspace: Workspace, state: str) -> Iterator[ThreadStore]:
    """The threads of a workspace."""
    opened = ThreadStore.open(workspace.path(""), workspace.path("", "user"), state=state)
    yield opened
    opened.close()


@pytest.fixture
def other(state: str) -> Iterator[Any]:
    """Somebody else's connection to the same schema."""
    psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
    address, _, schema = state.partition("&schema=")
    with psycopg.connect(address, autocommit=True, options=f"-c search_path={schema}") as opened:
        yield opened


@pytest.fixture
def planned(workspace: Workspace, state: str) -> PlannedWorkspace:
    """A workspace whose remote `queue` is a queue of its shared state."""
    workspace.environ["RYE_STATE"] = state
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": "once"}], ["gate", {"name": "work"}])
    planned.write("short", ["mark", {"text": "short"}])
    write_remotes(workspace, state)
    return planned


@pytest.fixture
def workers(planned: PlannedWorkspace) -> Iterator[Workers]:
    """Workers of the workspace's queue."""
    made = Workers(planned)
    yield made
    made.close()
