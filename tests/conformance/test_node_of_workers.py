"""A node that hands its runs to a worker of a queue passes the suite that every node passes."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from ryecore.testing.node import NodeConformance, NodeUnderTest
from ryecore.testing.node.events import EventCases
from ryecore.testing.node.runs import RunCases
from tests.conformance.nodes import node_process
from tests.forking import ROOT, Forked
from tests.matrix import IS_SOAK
from tests.postgres import needs_dbos, needs_server
from tests.thread_host import FACTORY

pytestmark = [needs_server, needs_dbos]


@pytest.fixture(scope="module", autouse=True)
def server(postgres_address: str) -> None:
    """Make the server known to the nodes."""
    TestNodeOfWorkers.address = postgres_address


class TestNodeOfWorkers(NodeConformance):
    address: ClassVar[str]

    @contextmanager
    def open_node(self, folder: Path) -> Iterator[NodeUnderTest]:
        schema = f"n_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
        state = f"{self.address}&schema={schema}"
        with working(folder, state), node_process(folder, options=("--state", state)) as node:
            yield node


if not IS_SOAK:  # what a node does before it hands anything over is the same, and a start is long
    of_runs = {name for cases in (RunCases, EventCases) for name in vars(cases)}
    for name in dir(NodeConformance):
        if name.startswith("test_") and (name not in of_runs or name.endswith("node_ended")):
            setattr(TestNodeOfWorkers, name, None)


@contextmanager
def working(folder: Path, state: str) -> Iterator[None]:
    """A worker of the queue of a state, with a user space of its own."""
    home = folder / "home"
    (home / "project").mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = ["ryecore.cli", "node", "work", "--state", state, "--deps", FACTORY]
    command += ["--project", str(home / "project")]
    with Forked(command, env=environ, cwd=ROOT, stderr=subprocess.PIPE) as worker:
        assert worker.stderr is not None
        try:
            line = worker.stderr.readline().decode()
            assert "works as" in line, line + worker.stderr.read().decode()
            yield
        finally:
            worker.kill()
