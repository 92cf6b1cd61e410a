"""A disk that is full, and a folder that can't be written, in the middle of a thread."""

import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from attrs import asdict

from ryecore import AgentRunnerDeps
from ryecore.errors import StateError
from ryecore.llm.cost import Price
from ryecore.llm.request import LlmRequest
from ryecore.llm.result import Usage
from ryecore.policy.budget import Amount
from ryecore.state.transcript_check import read_records
from ryecore.testing import FunctionProvider, Turn, call, cut, say
from ryecore.threads.thread import Thread
from ryecore.tools import ToolRegistry, tool
from tests.graphs import graph
from tests.integration.test_thread_stopping import PATIENCE_S, settled
from tests.small_disk import fill_disk, mount_small_disk
from tests.thread_host import COST, USAGE, PlannedWorkspace
from tests.workspace import Workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def on_small_disk(tmp_path: Path) -> Iterator[PlannedWorkspace]:
    """A workspace whose project stands on a file system of 2 MiB."""
    workspace = Workspace(tmp_path)
    with mount_small_disk(workspace.project, "2m"):
        yield PlannedWorkspace(workspace)


async def test_a_full_disk_ends_a_thread_with_what_to_do_and_nothing_is_doubled(
    on_small_disk: PlannedWorkspace,
) -> None:
    planned = on_small_disk
    ref = planned.write(
        "long", ["mark", {"text": "one"}], ["gate", {"name": "full"}], ["mark", {"text": "two"}]
    )
    with anyio.fail_after(PATIENCE_S):
        async with planned.open() as rye:
            thread = await rye.start(ref)
            await planned.begun("full")
            filler = await anyio.to_thread.run_sync(fill_disk, planned.workspace.project)
            planned.allow("full")
            with pytest.raises(StateError) as caught:
                await thread.result()
            assert "disk" in str(caught.value)
            assert caught.value.next_step
            with pytest.raises(StateError, match="disk"):  # nor does another one begin
                await rye.execute(ref, thread="fork")
            filler.unlink()
        # The Rye that could not write the end has written it now.
        statuses = settled(planned)
        assert set(statuses.values()) == {"error"}
        async with planned.open() as rye:
            done = await rye.threads.resume(thread.thread_id)
            assert done.ended == "completed", done
    assert (planned.root / "marks").read_text().split() == ["one", "two"]
    settled(planned)


async def test_whose_process_dies_on_a_full_disk_is_found_dead_once_there_is_room(
    on_small_disk: PlannedWorkspace,
) -> None:
    planned = on_small_disk
    ref = planned.write("long", ["gate", {"name": "full"}], ["mark", {"text": "two"}])
    process = planned.host([ref], stderr=subprocess.PIPE)
    with anyio.fail_after(PATIENCE_S):
        await planned.begun("full")
        filler = await anyio.to_thread.run_sync(fill_disk, planned.workspace.project)
        planned.allow("full")
        _, said = await anyio.to_thread.run_sync(process.communicate)
        assert b"StateError" in said
        filler.unlink()
        async with planned.open() as rye:
            assert await rye.threads.list() == ()  # who looks ends it
            (row,) = await rye.threads.list(all=True)
            assert row.status == "error"
            assert (await rye.threads.resume(row.thread_id)).ended == "completed"
    assert (planned.root / "marks").read_text() == "two\n"
    settled(planned)


@pytest.fixture
def bound(workspace: Workspace) -> Iterator[tuple[PlannedWorkspace, list[str]]]:
    """A workspace, and what makes a program obey the permissions of files, as root doesn't."""
    planned, threads = PlannedWorkspace(workspace), workspace.path("state/threads")
    prefix: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and setpriv, which forbids it, is missing")
        prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner"]
    yield planned, prefix
    for folder in (threads, *threads.rglob("*")):
        if folder.is_dir():
            folder.chmod(stat.S_IRWXU)


async def test_a_folder_that_becomes_read_only_keeps_no_thread_from_its_end(
    bound: tuple[PlannedWorkspace, list[str]],
) -> None:
    planned, prefix = bound
    child = planned.write("child", ["mark", {"text": "child"}])
    fork = ["rye_execute", {"item_id": child, "thread": "fork"}]
    ref = planned.write("parent", ["gate", {"name": "locked"}], fork, ["mark", {"text": "end"}])
    process = subprocess.Popen(
        [*prefix, *planned.command([ref])],
        env=planned.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with anyio.fail_after(PATIENCE_S):
        await planned.begun("locked")
        threads = planned.workspace.path("state/threads")
        for folder in (threads, *threads.rglob("[!.]*")):
            if folder.is_dir():
                folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        planned.allow("locked")
        out, said = await anyio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0, said
    assert "can't be made" in out  # the child can't begin, and the model is told why
    assert (planned.root / "marks").read_text() == "end\n"
    assert settled(planned) == {"parent": "completed", "child": "error"}


@tool
async def mark(text: str) -> str:
    """Leave no mark."""
    return text


@pytest.mark.root
@pytest.mark.parametrize("kind", ["thread", "graph"])
@pytest.mark.parametrize("how", ["answered", "cut", "overspent"])
async def test_what_a_full_disk_kept_unsettled_is_charged_once_and_for_what_it_was(
    on_small_disk: PlannedWorkspace, kind: str, how: str
) -> None:
    """The disk is full from within the second request to the very end."""
    planned, fillers = on_small_disk, list[Path]()

    def model(request: LlmRequest) -> Turn:
        if len(request.messages) < 3:
            return call("mark", {"text": "one"})
        (registry,) = planned.workspace.project.rglob("threads.db")
        with closing(sqlite3.connect(registry)) as database:  # no room is left in its log either
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fillers.append(fill_disk(planned.workspace.project))
        match how:
            case "cut":
                return say("tw") + cut()
            case "overspent":
                return say("two", usage=Usage(1000, 60_000))
            case _:
                return say("two")

    provider = FunctionProvider(model, provider_id="scripted", usage=USAGE)
    agent = AgentRunnerDeps(
        resolve_provider={"scripted": provider}.get,
        key_for=lambda _: "sk-host-0123456789abcdef",
        registry=ToolRegistry([mark]),
        price_of=lambda *_: Price("1", "5"),
    )
    ref = planned.write("twice") if kind == "thread" else _asking(planned.workspace)
    with anyio.fail_after(PATIENCE_S):
        async with planned.open(agent=agent) as rye:
            run = await (rye.start(ref) if kind == "thread" else rye.graphs.start(ref))
            with pytest.raises(StateError, match="disk"):
                await run.result()
            fillers[0].unlink()
        # The Rye wrote what it owed when it was closed.
        thread_id = run.thread_id if isinstance(run, Thread) else run.run_id
        store = planned.store()
        first, second = await store.ledger.charges(thread_id)
        assert first.actual.spend_microcents == COST
        assert second.mark == ("estimated" if how == "cut" else "counted")
        is_over = second.actual.spend_microcents > second.held.spend_microcents
        assert is_over == (how == "overspent")
        account = await store.ledger.account(thread_id)
        assert account.own == first.actual + second.actual
        assert account.held == Amount()
        row = await store.registry.get_thread(thread_id)
        assert row.cost.spend_microcents == account.own.spend_microcents
        transcript = planned.workspace.path(f"state/threads/{thread_id}/transcript.jsonl")
        told = [one.payload for one in read_records(transcript) if one.type == "budget_overspent"]
        assert [one["spent"] for one in told] == ([asdict(second.actual)] if is_over else [])
        assert [one["held"] for one in told] == ([asdict(second.held)] if is_over else [])
        async with planned.open() as rye:
            assert (await rye.threads.verify(thread_id)).ok
    settled(planned)


def _asking(workspace: Workspace) -> str:
    ask = {"type": "agent", "agent_ref": "writer", "prompt_template": "Go."}
    writer = {"provider": "scripted", "model": "m-1", "tools": ["mark"]}
    permissions = ("rye.execute.*",)
    return graph(workspace, {"ask": ask}, permissions=permissions, agents={"writer": writer})
