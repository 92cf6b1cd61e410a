"""The page on deployment: what its files say is run here as processes, without containers."""

import re
from contextlib import closing
from typing import Any

import anyio
import pytest
from attrs import evolve
from ruamel.yaml import YAML

from ryecore.lillux.processes import current_process
from ryecore.state.run_queue import WorkerRecord
from tests.forking import ROOT
from tests.postgres import needs_dbos, needs_server
from tests.queue_workers import Workers, write_remotes
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")
pytestmark = [pytest.mark.anyio, needs_server, needs_dbos]

WORKER = WorkerRecord(
    "", "default", concurrency=1, host="elsewhere", project="", process=current_process()
)
PAGE = (ROOT / "docs/how-to/deploy-on-several-machines.md").read_text()


def file_of_page(name: str) -> str:
    """A file that the page shows."""
    [body] = re.findall(rf'^```\w+ title="{name}"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    return str(body)


def services() -> dict[str, Any]:
    """The services of the page's compose.yaml."""
    read: dict[str, Any] = YAML(typ="safe").load(file_of_page("compose.yaml"))
    assert set(read["volumes"]) == {
        volume.partition(":")[0] for one in read["services"].values() for volume in one["volumes"]
    }
    return dict(read["services"])


def test_the_image_has_the_extras_that_the_commands_need() -> None:
    [extras] = re.findall(r"ryecore\[(.*?)\]", file_of_page("Dockerfile"))
    known = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(extras.split(",")) <= set(known)
    assert "dbos" in extras


async def polls_every(state: str, seconds: float) -> None:
    """Wait until the workers of the queue ask for runs at an interval."""
    query = f"SELECT polling_interval_sec FROM {state.rpartition('=')[2]}_dbos.queues"
    with psycopg.connect(state.partition("&schema")[0], autocommit=True) as server:
        with anyio.fail_after(15):
            while server.execute(query).fetchall() != [(seconds,)]:
                await anyio.sleep(0.05)


async def test_its_workers_run_what_a_caller_puts_into_the_queue(
    workspace: Workspace, postgres_address: str
) -> None:
    said = services()["worker"]
    environ = said["environment"]
    assert environ["PGPASSWORD"] == services()["database"]["environment"]["POSTGRES_PASSWORD"]
    schema = re.fullmatch(r"postgresql://rye@database/agents\?schema=(\w+)", environ["RYE_STATE"])
    assert schema is not None
    state = f"{postgres_address}&schema={schema[1]}_deployed"
    workspace.environ["RYE_STATE"] = state
    planned = PlannedWorkspace(workspace)
    planned.write("short", ["mark", {"text": "short"}])
    write_remotes(workspace, state)
    rye, node, work, *options = said["command"]
    assert (rye, node, work) == ("rye", "node", "work")
    with closing(Workers(planned)) as workers:
        for _ in range(said["deploy"]["replicas"]):
            workers.start(*options)
        async with planned.open(state=state) as host:
            with anyio.fail_after(30):
                done = await host.execute(
                    "directive:acme/short", thread="fork", target="remote:queue"
                )
            assert done.success, done.error
            status = (await host.cluster.status()).to_dict()
            queue = await host.cluster.queue()
            for number in range(10 - said["deploy"]["replicas"]):  # as where there are ten
                await queue.enter(evolve(WORKER, worker_id=f"w{number}"))
            await polls_every(state, 0.05 * 10 / 4)
    [queue] = status["queues"]
    assert queue["name"] == "default"
    assert len(status["workers"]) == said["deploy"]["replicas"]
