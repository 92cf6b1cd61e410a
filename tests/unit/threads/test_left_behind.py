"""What a dead thread has left is closed by whoever finds it dead."""

import json
from pathlib import Path

import pytest
from attrs import evolve

from ryecore.lillux.processes import current_process
from ryecore.state.records import load_run_key, sign_record
from ryecore.state.thread_file import read_thread_file
from ryecore.state.transcript import Transcript
from ryecore.testing import call, say
from tests.stage import Stage

pytestmark = pytest.mark.anyio


async def test_a_torn_line_is_dropped_and_the_tail_is_signed_as_unattested(tmp_path: Path) -> None:
    """A thread as a dead process leaves it: running, with one record and a torn one unsigned."""
    stage = Stage(tmp_path, call("add", {"a": 1, "b": 2}), say("3"))
    done = await stage.run(stage.write("acme/x"))
    store, key = stage.store(), load_run_key(stage.house.user / ".ai")
    owner = evolve(current_process(), pid=2**22 - 3, start_ticks=1)  # nobody is called that
    thread_id = "acme/x/x-1"
    store.registry.register(thread_id, "directive:acme/x", owner=owner)
    store.registry.claim(thread_id, owner)
    folder = store.make_folder(thread_id)
    path = folder / "transcript.jsonl"
    with Transcript.create(path, thread_id, key, "process") as transcript:
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
    async with stage.open() as rye:
        report = await rye.threads.show(thread_id)
        proof = await rye.threads.verify(thread_id)
    assert report.status == "error"
    assert proof.ok
    assert [turn.state for turn in proof.turns] == ["attested", "unattested"]
    assert stage.records(thread_id, "thread_error")
    assert read_thread_file(folder / "thread.json", key.public, thread_id)["status"] == "error"
