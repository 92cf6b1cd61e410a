"""Large results of a thread that is killed on one machine and continued on another."""

import hashlib
import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from ryecore.errors import StateUnreachable
from ryecore.lillux import watch
from tests.graphs import graph
from tests.integration.test_records_on_postgres import HOST, elsewhere
from tests.postgres import needs_server, own_schema
from tests.s3 import BUCKET, SECRET, needs_s3
from tests.thread_host import PlannedWorkspace
from tests.workspace import Workspace

pytestmark = [pytest.mark.anyio, needs_server]

LONG = "a long result " * 500
HANDLE = f"result://{hashlib.sha256(f'marked {LONG}'.encode()).hexdigest()}"
FORKED = """
import os, sys
from ryecore.state.s3.objects import S3Objects
store = S3Objects.open(sys.argv[1], os.environ)
name = store.put(b"x")
if os.fork() == 0:
    try:
        store.get(name)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.wait()
print(store.get(name))
"""


@pytest.fixture
def state(postgres_address: str) -> str:
    """The address of a schema of the test's own."""
    return own_schema(postgres_address)


@pytest.fixture(params=["state", pytest.param("s3", marks=needs_s3)])
def planned(
    request: pytest.FixtureRequest, workspace: Workspace, state: str, tmp_path: Path
) -> PlannedWorkspace:
    """A workspace whose rows are on a server, and its objects there or in a bucket."""
    workspace.environ["RYE_STATE"] = state
    if request.param == "s3":
        workspace.environ |= request.getfixturevalue("s3_environ")
        workspace.environ["RYE_OBJECTS"] = f"s3://{BUCKET}/{tmp_path.name}"
    return PlannedWorkspace(workspace)


async def test_a_large_result_is_read_by_a_thread_that_is_resumed_elsewhere(
    planned: PlannedWorkspace,
) -> None:
    work, read = ["mark", {"text": LONG}], ["read_artifact", {"handle": HANDLE, "length": 60}]
    planned.write("work", work, ["gate", {"name": "work"}], read)
    host = planned.fork(HOST, str(planned.root))
    with anyio.fail_after(60):
        await planned.begun("work")
    host.send_signal(signal.SIGKILL)
    host.wait()
    there = elsewhere(planned)
    there.workspace.environ |= planned.workspace.environ
    there.allow("work")

    async with there.open(recover=True) as rye:
        [recovered] = rye.recovered
        assert recovered.run is not None
        done = await recovered.run.result()

    assert done.success
    assert (
        json.loads(str(done.data))[-1]
        == f"[characters 0 to 60 of {len(LONG) + 7}]\n" + (f"marked {LONG}"[:60])
    )
    for machine in (planned, there):
        assert not [*(machine.workspace.project / ".ai/state").rglob("artifacts")]
        for path in machine.root.rglob("*"):  # keys are in no file
            if path.is_file() and "RYE_OBJECTS" in machine.workspace.environ:
                assert SECRET.encode() not in path.read_bytes(), path


async def test_a_graph_that_is_killed_is_resumed_elsewhere_with_its_large_values(
    planned: PlannedWorkspace,
) -> None:
    workspace = planned.workspace
    workspace.shell("acme/much", f"printf '{{\"text\": \"%s\"}}' '{LONG}'")
    workspace.shell("acme/pay", 'touch "$1/../begun"; test -e "$1/../open" || exec sleep 300')
    nodes = {
        "much": {
            "action": {"item_id": "tool:acme/much"},
            "assign": {"much": "${result.text}"},
            "next": "pay",
        },
        "pay": {"action": {"item_id": "tool:acme/pay"}, "next": "end"},
        "end": {"type": "return", "output": "${state.much}"},
    }
    ref = graph(workspace, nodes, state={"much": ""})
    command = ("ryecore.cli", "graph", "run", ref, "--quiet", "--project", str(workspace.project))
    walker = planned.fork(*command)
    with anyio.fail_after(60):
        async with watch(planned.root) as watcher:
            while not (planned.root / "begun").exists():
                await watcher.changed()
    walker.send_signal(signal.SIGKILL)
    walker.wait()
    there = elsewhere(planned)
    there.workspace.environ |= workspace.environ
    (there.root / "open").touch()

    async with there.open() as rye:
        (dead,) = await rye.graphs.list()
        view = await rye.graphs.show(dead.thread_id)
        assert (view.problem, view.state) == ("", {"much": LONG})
        done = await rye.graphs.resume(dead.thread_id, rerun=True)
        assert (done.status, done.output) == ("success", LONG)

    for machine in (planned, there):
        kept = machine.workspace.project / ".ai/state/objects"
        assert not [one for one in kept.rglob("*") if one.is_file() and len(one.name) == 64]


@needs_s3
async def test_a_detached_thread_has_the_keys_of_its_host(
    workspace: Workspace, s3_environ: Mapping[str, str], tmp_path: Path
) -> None:
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": LONG}])
    workspace.environ |= s3_environ
    address = f"s3://{BUCKET}/{tmp_path.name}"
    async with planned.open(objects=address) as rye:
        started = await rye.execute("directive:acme/work", thread="fork", async_=True)
        thread_id = started.to_dict()["thread_id"]
        ended = await rye.threads.wait(thread_id, timeout_s=60)

    assert ended.status == "completed"
    kept = Path(s3_environ["RYE_TEST_S3_FOLDER"], tmp_path.name, "threads", thread_id)
    assert [one.name for one in kept.iterdir()] == [HANDLE.removeprefix("result://")]


@needs_s3
async def test_a_bucket_that_is_away(
    workspace: Workspace, s3_environ: Mapping[str, str], tmp_path: Path
) -> None:
    planned = PlannedWorkspace(workspace)
    planned.write("work", ["mark", {"text": LONG}])
    nodes = {"end": {"type": "return", "output": "done"}}
    ref = graph(workspace, nodes, state={})
    workspace.environ |= s3_environ
    workspace.environ["AWS_ENDPOINT_URL_S3"] = "http://127.0.0.1:1"
    async with planned.open(objects=f"s3://{BUCKET}/{tmp_path.name}") as rye:
        done = await rye.execute("directive:acme/work", thread="fork")
        assert done.status == "success"
        assert "marked a long result" in str(done.data)
        assert HANDLE not in str(done.data)
        with pytest.raises(StateUnreachable, match="can't be written: no answer") as away:
            await rye.graphs.run(ref)
    assert "the service runs" in away.value.next_step


@needs_s3
def test_the_doctor_looks_at_the_bucket(
    workspace: Workspace, s3_environ: Mapping[str, str], tmp_path: Path
) -> None:
    planned = PlannedWorkspace(workspace)
    workspace.environ |= s3_environ
    workspace.environ["RYE_OBJECTS"] = f"s3://{BUCKET}/{tmp_path.name}"

    def doctor(**environ: str) -> str:
        command = ["ryecore.cli", "doctor", "--project", str(workspace.project)]
        options = {"env": {**planned.environ, **environ}, "stdout": subprocess.PIPE}
        with planned.fork(*command, **options) as process:
            return " ".join(process.communicate()[0].decode().split())

    assert f"✓ objects Large results are in s3://{BUCKET}/{tmp_path.name} (at 127" in doctor()
    refused = doctor(AWS_SECRET_ACCESS_KEY="wr0ng")
    assert "can't be listed: SignatureDoesNotMatch. next: See AWS_ACCESS_KEY_ID" in refused
    assert "wr0ng" not in refused


@needs_s3
async def test_a_tool_gets_no_keys(
    workspace: Workspace, s3_environ: Mapping[str, str], tmp_path: Path
) -> None:
    workspace.environ |= s3_environ
    workspace.environ["RYE_OBJECTS"] = f"s3://{BUCKET}/{tmp_path.name}"
    workspace.shell("acme/env", "env")

    async with workspace.open() as rye:
        shown = json.dumps((await rye.execute("tool:acme/env")).data)

    assert "PATH=" in shown
    assert SECRET not in shown
    assert "RYE_OBJECTS" not in shown


@needs_s3
def test_a_child_that_is_forked_from_a_user_of_a_bucket_is_refused(
    workspace: Workspace, s3_environ: Mapping[str, str], tmp_path: Path
) -> None:
    planned = PlannedWorkspace(workspace)
    workspace.environ |= s3_environ
    program = planned.fork(FORKED, f"s3://{BUCKET}/{tmp_path.name}", stdout=-1)
    printed = program.communicate(timeout=30)[0].decode().splitlines()

    assert printed[0].startswith("StateError This process was forked")
    assert printed[1] == "b'x'"
