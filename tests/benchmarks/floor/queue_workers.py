"""A worker of a queue, in a process of its own, that does nothing: in SQL, or with DBOS alone.

    python -m tests.benchmarks.floor.queue_workers sql|thread|dbos|pydantic ADDRESS

`thread` writes what a thread of two turns leaves, by hand.
`pydantic` runs an agent of pydantic-ai on DBOS instead: two turns with a call of a tool between.

It says `ready` once it takes jobs, and runs until it is killed.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable

import psycopg
from dbos import DBOS, DBOSConfig

from tests.benchmarks.floor.postgres_threads import BareThreads

POLL_S, CONCURRENCY = 0.05, 8
TAKE = (
    "UPDATE jobs SET status = 'taken', worker = %s WHERE id IN (SELECT id FROM jobs"
    " WHERE status = 'waiting' ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id"
)
END = "UPDATE jobs SET status = 'ended', ended_at = clock_timestamp() WHERE id = %s"


def by_hand(address: str, *, is_thread: bool = False) -> None:
    """Take jobs from a table, and end each; perhaps with what a thread leaves."""
    threads = BareThreads(address, "bare") if is_thread else None
    with psycopg.connect(address, autocommit=True) as server:
        print("ready", flush=True)
        while True:
            taken = server.execute(TAKE, (os.getpid(), CONCURRENCY)).fetchall()
            for (job,) in taken:
                if threads is not None:
                    threads.run(str(job), turns=2)
                server.execute(END, (job,))
            if not taken:
                time.sleep(POLL_S)


async def with_dbos(address: str, *, is_agent: bool = False) -> None:
    """Run empty workflows, or agents."""
    DBOS(
        config=DBOSConfig(
            name="floor", system_database_url=address, executor_id=str(os.getpid()),
            application_version="1", log_level="ERROR",
        )
    )  # fmt: skip

    run = _make_agent() if is_agent else None

    @DBOS.workflow(name="empty")
    async def empty(job: str) -> None:
        if run is not None:
            await run()

    DBOS.launch()
    await DBOS.register_queue_async(
        "floor", worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_S,
        on_conflict="always_update",
    )  # fmt: skip
    await asyncio.sleep(1.1)  # it looks for new queues once a second
    print("ready", flush=True)
    await asyncio.Event().wait()


def _make_agent() -> Callable[[], Awaitable[object]]:
    from pydantic_ai.durable_exec.dbos import DBOSAgent

    from tests.benchmarks.peers.pydantic_agents import LIMITS, make_agent
    from tests.benchmarks.peers.script import PROMPT

    agent = DBOSAgent(make_agent(1), name="adder")
    return lambda: agent.run(PROMPT, usage_limits=LIMITS)


if __name__ == "__main__":
    if sys.argv[1] in {"sql", "thread"}:
        by_hand(sys.argv[2], is_thread=sys.argv[1] == "thread")
    else:
        asyncio.run(with_dbos(sys.argv[2], is_agent=sys.argv[1] == "pydantic"))
