"""What callers and workers tell DBOS, which keeps the order of queues. Needs the extra dbos.

DBOS's tables are in a schema beside the state's. A workflow there holds the id of a run and nothing
else of it.

Source: docs/design/queues.md; ADR 041.
"""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import evolve
from dbos import DBOS, DBOSClient, EnqueueOptions, Queue, Serializer
from sqlalchemy import exc
from typing_extensions import override

from ryecore.errors import RyeError, StateUnreachable
from ryecore.frozen import frozen
from ryecore.state.postgres.address import PostgresAddress, join_url
from ryecore.state.run_queue import QueueEntry

__all__ = [
    "APPLICATION",
    "RUN",
    "VERSION",
    "IdSerializer",
    "QueueBounds",
    "QueueClient",
    "schema_of",
    "set_up",
    "unreachable",
    "url_of",
    "workflow_of",
]

APPLICATION: Final = "ryecore"
VERSION: Final = "ryecore-1"
"""The version of what workers take from a queue; a worker takes only that of its own."""

RUN: Final = "ryecore.run"
"""The name of the one workflow: it runs what has an id."""

_MOST_SCHEMA_CHARS: Final = 63

_ENTRY: Final = (
    'SELECT "{schema}".enqueue_workflow(workflow_name => ?, queue_name => ?,'
    " positional_args => ARRAY[to_json(CAST(? AS text))], workflow_id => ?, app_version => ?,"
    " priority => ?)"
)


@frozen
class QueueBounds:
    """The bounds of a queue, which the worker that began last sets for all.

    Attributes:
        concurrency: The most runs of one worker at once, from 1.
        total: The most runs of all workers at once; None for no bound.
        rate: The most runs that begin within `period_s`; None for no bound.
        period_s: The period of the rate, in seconds.
        begun: How many have begun in the last period, where there is a rate.
    """

    concurrency: int
    total: int | None = None
    rate: int | None = None
    period_s: float = 1.0
    begun: int = 0


class IdSerializer(Serializer):
    """Writes the ids of workflows as JSON, and of an error only its type."""

    @override
    def serialize(self, data: Any) -> str:
        return json.dumps(type(data).__name__ if isinstance(data, BaseException) else data)

    @override
    def deserialize(cls, serialized_data: str) -> Any:  # noqa: N805 - as DBOS names it
        return json.loads(serialized_data)

    @override
    def name(self) -> str:
        return "ryecore_json"


def schema_of(state: PostgresAddress) -> str:
    """Return the schema of DBOS's tables for a state: another one for each."""
    name = f"{state.schema}_dbos"
    if len(name) <= _MOST_SCHEMA_CHARS:
        return name
    ending = f"_{hashlib.sha256(state.schema.encode()).hexdigest()[:16]}_dbos"
    return state.schema[: _MOST_SCHEMA_CHARS - len(ending)] + ending


def url_of(state: PostgresAddress) -> str:
    """Return the address of a state as SQLAlchemy reads it."""
    parts = urlsplit(state.url)
    return join_url("postgresql+psycopg", parts.netloc, parts.path, parts.query)


def workflow_of(run_id: str, queue: str, priority: int) -> EnqueueOptions:
    """Return what DBOS gets of a run besides its argument, whoever puts it into the queue."""
    return {
        "workflow_name": RUN,
        "queue_name": queue,
        "workflow_id": run_id,
        "app_version": VERSION,
        "priority": priority,
    }


def set_up(state: PostgresAddress) -> None:
    """Make or upgrade DBOS's tables, if need be.

    Raises:
        StateUnreachable: The server can't be reached.
    """
    try:
        DBOS.migrate(url_of(state), schema=schema_of(state))
    except exc.OperationalError as problem:
        raise unreachable(state, problem) from None


def unreachable(state: PostgresAddress, problem: Exception) -> RyeError:
    """Return the error for a server that DBOS can't reach, without what the driver says of it."""
    return StateUnreachable(
        f"{state.shown} can't be reached: {type(problem).__name__}.",
        next_step="See that the server runs, and can be reached from here with psql.",
    )


class QueueClient:
    """The caller's end of the queues of one state. Its methods block, but for `entry`."""

    def __init__(self, state: PostgresAddress) -> None:
        self._state = state
        self._entry = _ENTRY.format(schema=schema_of(state))
        set_up(state)
        try:
            self._client = DBOSClient(
                system_database_url=url_of(state),
                dbos_system_schema=schema_of(state),
                serializer=IdSerializer(),
                application_name=APPLICATION,
                retry_connection_errors=False,
            )
        except exc.OperationalError as problem:
            raise unreachable(state, problem) from None

    def entry(self, run_id: str, queue: str, priority: int) -> QueueEntry:
        """Return the statement that does what `enqueue` does, for the transaction of the run's row.

        Source: https://docs.dbos.dev/explanations/system-tables.
        """
        return self._entry, (RUN, queue, run_id, run_id, VERSION, priority)

    def enqueue(self, run_id: str, queue: str, priority: int) -> None:
        """Put a run in a queue, unless it is there.

        Raises:
            StateUnreachable: The server can't be reached.
        """
        try:
            self._client.enqueue(workflow_of(run_id, queue, priority), run_id)
        except exc.DBAPIError as problem:
            raise unreachable(self._state, problem) from None

    def bounds(self) -> dict[str, QueueBounds]:
        """Return the bounds of each queue, and how many runs have begun in its rate's period.

        Raises:
            StateUnreachable: The server can't be reached.
        """
        try:
            return {one.name: self._bounds(one) for one in self._client.list_queues()}
        except exc.DBAPIError as problem:
            raise unreachable(self._state, problem) from None

    def _bounds(self, queue: Queue) -> QueueBounds:
        concurrency, limiter = queue.worker_concurrency, queue.limiter
        found = QueueBounds(concurrency or 0, queue.global_concurrency)
        if limiter is None:
            return found
        period_s = float(limiter["period"])
        since = datetime.now(UTC) - timedelta(seconds=period_s)
        begun = self._client.list_workflows(
            queue_name=queue.name,
            dequeued_after=since.isoformat(),
            load_input=False,
            load_output=False,
        )
        return evolve(found, rate=limiter["limit"], period_s=period_s, begun=len(begun))

    def close(self) -> None:
        """Close the connections."""
        self._client.destroy()
