"""What a run's dead process has left is closed by whoever finds it dead, and can be proved."""

from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import StateError, ThreadConflict
from ryecore.graph.journal.positions import PositionStore
from ryecore.graph.journal.recovery import read_run
from ryecore.graph.schedule import Position
from ryecore.lillux.processes import current_process
from ryecore.state.model import ThreadRecord
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import THREAD_FILE, ThreadFile, read_thread_file, write_thread_file
from ryecore.state.transcript_format import Head
from ryecore.state.waiting import run_blocking
from tests.graphs import graph
from tests.scripted_host import ScriptedHost
from tests.unit.graph.small_run import RUN, create_journal

pytestmark = pytest.mark.anyio


def dead_run(host: ScriptedHost) -> tuple[ThreadStore, Path]:
    """A run as a dead process leaves it: in its second node, with a torn line."""
    store, key = host.store(), load_run_key(host.workspace.user / ".ai")
    owner = evolve(current_process(), pid=2**22 - 3, start_ticks=1)  # nobody is called that
    run_blocking(store.registry.register(RUN, "tool:acme/flow", owner=owner))
    run_blocking(store.registry.claim(RUN, owner))
    folder = store.make_folder(RUN)
    row = run_blocking(store.registry.get_thread(RUN))
    write_thread_file(folder / THREAD_FILE, _file(row), key)

    def set_head(head: Head) -> None:
        run_blocking(store.registry.set_head(RUN, (head.offset, head.digest)))

    objects = store.folder.parent / "objects"
    journal = create_journal(folder, objects, RUN, key, "process", set_head=set_head)
    journal.tell("run_started", {"inputs": {}})
    journal.checkpoint(Position("send", 1, {"count": 1}))
    journal.tell("node_started", {"node": "send", "step": 1})
    journal.close()
    with (folder / "transcript.jsonl").open("ab") as file:
        file.write(b'{"timestamp": 1.0, "thr')
    return store, folder


def _file(row: ThreadRecord) -> ThreadFile:
    return ThreadFile(
        thread_id=RUN,
        item_id="tool:acme/flow",
        directive="acme/flow",
        item_hash="0" * 64,
        status="running",
        created_at=row.created_at,
        updated_at=row.created_at,
        model=None,
        limits={},
        capabilities=(),
    )


async def test_a_dead_run_is_closed_proved_and_can_be_gone_on_from(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    store, folder = dead_run(host)
    async with host.open() as rye:
        report = await rye.threads.show(RUN)
        proof = await rye.threads.verify(RUN)
    assert report.status == "error"
    assert proof.ok
    assert [turn.state for turn in proof.turns] == ["attested", "unattested"]
    shown = proof.render(RUN).plain()
    assert ("step 2" in shown, "turn" in shown) == (True, False)
    assert host.records(RUN, "run_error")
    assert not host.records(RUN, "thread_error")
    key = load_run_key(host.workspace.user / ".ai")
    assert read_thread_file(folder / THREAD_FILE, key.public, RUN)["status"] == "error"

    head = (await store.registry.get_thread(RUN)).transcript_head
    found = await read_run(store.records, PositionStore(store.objects(RUN), RUN), RUN, head)
    assert found.position == Position("send", 1, {"count": 1})
    assert found.in_flight == "send"


async def test_a_run_that_could_not_begin_is_closed_by_itself_and_proved(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    ref = graph(
        host.workspace, {"done": {"type": "return", "output": "${state.x}"}}, state={"x": 0}
    )
    async with host.open() as rye:
        with pytest.raises(StateError, match="'x' holds what JSON lacks") as refused:
            await rye.graphs.step(ref, "done", state={"x": {1, 2}})
        run_id = str(refused.value.facts["thread_id"])
        proof = await rye.threads.verify(run_id)
        assert (proof.ok, proof.unattested_records) == (True, 0)
        assert "'x' holds" in host.records(run_id, "run_error")[0].payload["error"]
        with pytest.raises(StateError, match="nothing to resume from"):
            await rye.graphs.resume(run_id)


async def test_a_run_that_was_killed_says_so_in_all_its_files(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    host.workspace.shell("acme/wait", "sleep 60")
    ref = graph(host.workspace, {"wait": {"action": {"item_id": "tool:acme/wait"}}})
    async with host.open() as rye:
        run = await rye.graphs.start(ref)
        async for event in run.events():
            if event.type == "node_started":
                break
        await run.kill()
        await run.result()
        assert await run.status() == "killed"
        assert (await rye.threads.verify(run.run_id)).ok
    assert host.records(run.run_id, "run_killed")
    key = load_run_key(host.workspace.user / ".ai")
    file = host.store().folder_of(run.run_id) / THREAD_FILE
    assert read_thread_file(file, key.public, run.run_id)["status"] == "killed"


async def test_an_altered_run_is_told(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    _, folder = dead_run(host)
    path = folder / "transcript.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"inputs":{}', b'"inputs":[]'))
    async with host.open() as rye:
        proof = await rye.threads.verify(RUN)
    assert not proof.ok
    assert proof.turns[0].state == "altered"
    assert proof.problems[0].startswith("Step 1 (lines 1 to ")


async def test_a_run_has_no_conversation_to_replay_or_resume(tmp_path: Path) -> None:
    host = ScriptedHost(tmp_path)
    dead_run(host)
    async with host.open() as rye:
        with pytest.raises(ThreadConflict, match="no conversation") as refused:
            await rye.threads.replay(RUN)
        with pytest.raises(ThreadConflict, match="no conversation"):
            await rye.threads.resume(RUN, "Go on.")
    assert str(refused.value.next_step).endswith(f"rye graph show {RUN}")


async def test_whoever_goes_on_closes_what_the_finder_could_not(tmp_path: Path) -> None:
    """Its finder died between the end of its row and that of its files."""
    host = ScriptedHost(tmp_path)
    store, folder = dead_run(host)
    assert await store.registry.settle_abandoned(await store.registry.list_active()) == (RUN,)
    key = load_run_key(host.workspace.user / ".ai")
    assert read_thread_file(folder / THREAD_FILE, key.public, RUN)["status"] == "running"
    record = await store.look_closed(RUN)
    assert read_thread_file(folder / THREAD_FILE, key.public, RUN)["status"] == "error"
    last = host.records(RUN)[-1]
    assert last.type == "checkpoint"
    assert record.transcript_head == (last.payload["offset"], last.payload["digest"])
    content = (folder / "transcript.jsonl").read_bytes()
    assert await store.look_closed(RUN) == record
    # Or died later, before its file said so: what is closed is not closed once more.
    write_thread_file(folder / THREAD_FILE, _file(record), key)
    assert (await store.look_closed(RUN)).transcript_head == record.transcript_head
    assert read_thread_file(folder / THREAD_FILE, key.public, RUN)["status"] == "error"
    assert (folder / "transcript.jsonl").read_bytes() == content
    store.close()
