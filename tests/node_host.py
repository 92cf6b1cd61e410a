"""A node's runs, called directly, on a workspace's files."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from attrs import define

from ryecore import SigningKey, __version__
from ryecore.convert.strict import WIRE
from ryecore.lillux.keys import BoxKey
from ryecore.node.callers import Caller
from ryecore.node.content import NodeContent
from ryecore.node.database import open_node_database
from ryecore.node.hosts import HostOptions
from ryecore.node.runs import NodeRuns
from ryecore.remote.protocol.models import ExecuteBody, RunState
from ryecore.remote.protocol.reports import RunReport, read_report
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile
from ryecore.state.records import canonical_json
from tests.workspace import Workspace

__all__ = ["DirectNode", "direct_node", "snapshot_of"]


@define
class DirectNode:
    """The runs of a node in this process, and one caller of it: the workspace's author."""

    workspace: Workspace
    folder: Path
    key: SigningKey
    content: NodeContent
    runs: NodeRuns
    caller: Caller
    box_key: BoxKey

    def push(self) -> str:
        """Push the workspace's files; the id of the snapshot."""
        snapshot, objects = snapshot_of(self.workspace)
        content = self.content.of(self.caller)
        content.take(snapshot)
        for data in objects:
            content.put(data)
        return snapshot.id

    def body(self, item_id: str, thread_id: str = "one", **more: Any) -> ExecuteBody:
        """A request to run an item in what the workspace has now."""
        thread = "inline" if item_id.startswith("tool:") else "fork"
        known = {"parameters": {}, "thread": thread, "wait_s": 30.0, "ryecore": __version__}
        snapshot = more.pop("snapshot", None) or self.push()
        return ExecuteBody(
            thread_id=thread_id, item_id=item_id, snapshot=snapshot, **{**known, **more}
        )

    async def send(self, body: ExecuteBody, caller: Caller | None = None) -> RunState:
        """Send a request as the application does."""
        document = {name: one for name, one in WIRE.write(body).items() if name != "wait_s"}
        return await self.runs.execute(caller or self.caller, body, canonical_json(document))

    def report(self, state: RunState) -> RunReport:
        """The proved report of a run that has ended."""
        assert state.report is not None
        return read_report(state.report, self.key.public)


@asynccontextmanager
async def direct_node(
    workspace: Workspace, folder: Path, **options: Any
) -> AsyncIterator[DirectNode]:
    """Run a node's runs in this process, with `options` for its Ryes."""
    folder.mkdir(exist_ok=True)
    key_file = folder / "key.pem"
    if not key_file.exists():
        key_file.write_bytes(SigningKey.generate().pem)
    key = SigningKey.from_pem(key_file.read_bytes())
    database = open_node_database(folder)
    content = NodeContent(folder, max_object_bytes=2**30, min_free_bytes=0)
    host_options = HostOptions(environ=workspace.environ, **options)
    box_key = BoxKey.generate()
    caller = Caller(workspace.key.public, max_runs=4)
    runs = NodeRuns(
        key, database, content, host_options, box_key=box_key, find_caller=lambda _: caller
    )
    await runs.begin()
    try:
        yield DirectNode(workspace, folder, key, content, runs, caller, box_key)
    finally:
        await runs.aclose()
        database.close()


def snapshot_of(workspace: Workspace) -> tuple[Snapshot, list[bytes]]:
    """The files of a workspace as a snapshot, and their contents."""
    files: list[SnapshotFile] = []
    objects: list[bytes] = []
    spaces: tuple[tuple[Literal["project", "user"], Path], ...] = (
        ("project", workspace.project),
        ("user", workspace.user),
    )
    for space, root in spaces:
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            parts = name.split("/")
            if not path.is_file() or {"state", "cache", "signing"} & set(parts):
                continue
            content = path.read_bytes()
            objects.append(content)
            executable = bool(path.stat().st_mode & 0o100)
            sha256 = hashlib.sha256(content).hexdigest()
            files.append(SnapshotFile(space, name, sha256, len(content), executable))
    return Snapshot(tuple(sorted(files, key=lambda one: (one.space, one.path)))), objects
