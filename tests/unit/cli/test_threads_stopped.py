"""rye threads verify while a stopped process holds a transcript."""

from pathlib import Path

from ryecore.state.records import load_run_key
from ryecore.state.transcript import Transcript
from tests.house import House
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_threads_adopt import DURABILITY, made_threads, threads_folder
from tests.unit.state.test_locking import HOLD_GATE, holder


def test_what_a_stopped_owner_could_not_close_is_unattested_and_not_altered(
    house: House, run: Run
) -> None:
    store = made_threads(house.project, house.user)
    path: Path = threads_folder(house) / "runs/transcript.jsonl"
    head = store.registry.get_thread("runs").transcript_head
    key = load_run_key(house.user / ".ai")
    transcript, _ = Transcript.resume(path, "runs", key, DURABILITY, head=head)
    with transcript:
        transcript.record("tool_call", {})
    store.registry.settle("runs", "error", {})  # as one does who found it dead
    store.close()
    with holder(HOLD_GATE, path, stopped=True):
        verified = run("threads", "verify", "runs")
    assert verified.code == 0, verified.out
    assert "unattested" in verified.out
