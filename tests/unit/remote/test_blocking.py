"""Runs on nodes from blocking code: `SyncRye` in front of a real node."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ryecore.errors import ItemNotFound, RemoteUnavailable
from tests.remotes import connect
from tests.served_node import ServedNode, served_node
from tests.thread_host import COST, FACTORY, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.usefixtures("forked_walkers")


@pytest.fixture
def planned(workspace: Workspace) -> PlannedWorkspace:
    return PlannedWorkspace(workspace)


@pytest.fixture
def node(planned: PlannedWorkspace) -> Iterator[ServedNode]:
    """A node with the scripted models, for the author of the workspace."""
    with served_node(planned.root / "node", "--deps", FACTORY, environ=planned.environ) as served:
        connect(planned.workspace, served, timeout_s=1)
        yield served


def test_threads_and_changes_come_home(planned: PlannedWorkspace, node: ServedNode) -> None:
    ref = planned.write("work", ["mark", {"text": "there"}])
    tool = planned.workspace.shell("acme/make", "echo made > made.txt")
    with planned.workspace.sync() as rye:
        done = rye.execute(ref, thread="fork", target="remote:gpu")
        assert (done.status, done.error) == ("success", None)
        thread_id = str(done.to_dict()["thread_id"])
        assert rye.threads.account(thread_id).own.spend_microcents == 2 * COST
        assert rye.threads.verify(thread_id).ok
        made = rye.execute(tool, target="remote:gpu", pull=True)
        assert rye.threads.pull(str(made.to_dict()["thread_id"])).added == ("made.txt",)
        with pytest.raises(ItemNotFound, match="On gpu: tool:acme/missing"):
            rye.execute("tool:acme/missing", target="remote:gpu")
        node.process.kill()
        node.process.wait()
        with pytest.raises(RemoteUnavailable, match="gpu"):
            rye.execute(tool, target="remote:gpu")
    assert (planned.workspace.project / "made.txt").read_text() == "made\n"


def test_a_thread_is_cancelled_on_the_node(planned: PlannedWorkspace, node: ServedNode) -> None:
    ref = planned.write("wait", ["gate", {"name": "wait"}])
    with planned.workspace.sync() as rye:
        started = rye.execute(ref, thread="fork", target="remote:gpu", async_=True)
        thread_id = str(started.to_dict()["thread_id"])
        rye.threads.cancel(thread_id)
        assert rye.threads.wait(thread_id, timeout_s=60).status == "cancelled"


def test_ctrl_c_ends_the_tool_on_the_node(planned: PlannedWorkspace, node: ServedNode) -> None:
    pipe = planned.root / "pipe"
    os.mkfifo(pipe)
    ref = planned.workspace.shell("acme/stay", f"echo $$ > {pipe}; exec sleep 1000")
    found: list[int] = []

    def interrupt() -> None:
        found.append(int(pipe.read_text()))
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=interrupt)
    try:
        with planned.workspace.sync() as rye:
            sender.start()
            with pytest.raises(KeyboardInterrupt):
                rye.execute(ref, target="remote:gpu")
            assert not Path(f"/proc/{found[0]}").exists()
    finally:
        signal.signal(signal.SIGINT, before)
        sender.join(20)
