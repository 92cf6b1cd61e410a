"""What a dead thread has left is closed by whoever finds it dead."""

import json
import sqlite3
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.errors import StateError
from ryecore.lillux.processes import current_process
from ryecore.state.records import load_run_key, sign_record
from ryecore.state.thread_file import read_thread_file
from ryecore.state.transcript import Transcript
from ryecore.testing import call, say
from ryecore.tools import tool
from tests.scripted_host import ScriptedHost

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", ["error", "killed"])
async def test_a_torn_line_is_dropped_and_the_tail_is_signed_as_unattested(
    tmp_path: Path, status: str
) -> None:
    """A thread as a dead process leaves it: running, with one record and a torn one unsigned."""
    host = ScriptedHost(tmp_path, call("add", {"a": 1, "b": 2}), say("3"))
    done = await host.run(host.write("acme/x"))
    store, key = host.store(), load_run_key(host.workspace.user / ".ai")
    owner = evolve(current_process(), pid=2**22 - 3, start_ticks=1)  # nobody is called that
    thread_id = "acme/x/x-1"
    await store.registry.register(thread_id, "directive:acme/x", owner=owner)
    await store.registry.claim(thread_id, owner)
    folder = store.make_folder(thread_id)
    path = folder / "transcript.jsonl"
    with Transcript.create(path, thread_id, key) as transcript:
        transcript.record("cognition_in", {"turn": 0, "parts": []})
        transcript.checkpoint(0)
        transcript.record("model_call", {"turn": 1})
    with path.open("ab") as file:
        file.write(b'{"timestamp": 1.0, "thr')
    said = read_thread_file(
        store.folder_of(done.thread_id) / "thread.json", key.public, done.thread_id
    )
    running = {**said, "thread_id": thread_id, "status": "running"}
    (folder / "thread.json").write_text(json.dumps(sign_record("thread", running, key)))
    if status == "killed":
        await store.registry.request_cancel(thread_id, kill=True)
    async with host.open() as rye:
        report = await rye.threads.show(thread_id)
        proof = await rye.threads.verify(thread_id)
    assert report.status == status
    assert proof.ok
    assert [turn.state for turn in proof.turns] == ["attested", "unattested"]
    (end,) = host.records(thread_id, f"thread_{status}")
    assert end.payload["error"] == report.error
    assert report.error.startswith("It was killed." if status == "killed" else "The process ")
    assert read_thread_file(folder / "thread.json", key.public, thread_id)["status"] == status


async def test_a_thread_that_could_not_end_well_is_closed_and_resumed(tmp_path: Path) -> None:
    """Its account is gone at its end: what it was asked then stands behind no checkpoint."""

    @tool
    async def forget() -> str:
        """Lose the account of whoever asks."""
        with sqlite3.connect(next(host.workspace.root.rglob("threads.db"))) as database:
            database.execute("DELETE FROM accounts")
        return "lost"

    host = ScriptedHost(tmp_path, call("forget"), say("on"), say("well"), tools=[forget])
    ref = host.write("acme/x")
    async with host.open() as rye:
        with pytest.raises(StateError, match="account") as caught:
            await rye.execute(ref, thread="fork")
        thread_id = caught.value.facts["thread_id"]
        proof = await rye.threads.verify(thread_id)
        assert proof.ok, proof
        assert {turn.state for turn in proof.turns} == {"attested"}
        done = await rye.threads.resume(thread_id, "Go on.")
        assert done.ended == "completed", done


async def test_what_an_owner_could_not_close_is_closed_by_who_resumes_it(tmp_path: Path) -> None:
    """As after a disk that was full for the transcript, and not for the registry."""
    host = ScriptedHost(tmp_path, say("One."), say("Two."))
    done = await host.run(host.write("acme/x", permissions=""))
    thread_id, key = done.thread_id, load_run_key(host.workspace.user / ".ai")
    store = host.store()
    folder = store.folder_of(thread_id)
    said = read_thread_file(folder / "thread.json", key.public, thread_id)
    running = {**said, "status": "running"}
    (folder / "thread.json").write_text(json.dumps(sign_record("thread", running, key)))
    with (folder / "transcript.jsonl").open("r+b") as file:  # without its last checkpoint
        *kept, _ = file.readlines()
        file.truncate(sum(map(len, kept)))
    with sqlite3.connect(next(host.workspace.root.rglob("threads.db"))) as database:
        head = next(
            (one.payload["offset"], one.payload["digest"])
            for one in host.records(thread_id)
            if one.type == "checkpoint"
        )
        database.execute("UPDATE threads SET transcript_length = ?, transcript_digest = ?", head)
    async with host.open() as rye:
        again = await rye.threads.resume(thread_id, "More.")
        assert again.ended == "completed"
        assert (await rye.threads.verify(thread_id)).ok
    assert read_thread_file(folder / "thread.json", key.public, thread_id)["status"] == "completed"
