"""rye threads verify and transcript while a stopped process holds a transcript."""

from pathlib import Path

from ryecore.state.records import load_run_key
from ryecore.state.transcript import Transcript
from ryecore.state.waiting import run_blocking
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_threads_records import made_threads, threads_folder
from tests.unit.state.test_waiting import HOLD_GATE, holder
from tests.workspace import Workspace


def test_a_transcript_says_how_a_thread_ended_whose_log_could_not_be_closed(
    workspace: Workspace, run: Run
) -> None:
    store = made_threads(workspace.project, workspace.user)
    path: Path = threads_folder(workspace) / "runs/transcript.jsonl"
    assert "killed" not in run("threads", "transcript", "runs").out
    run_blocking(store.registry.settle("runs", "killed", {"error": "It was killed."}))
    store.close()
    with holder(HOLD_GATE, path, stopped=True):
        for options in ([], ["-f"]):
            lines = run("threads", "transcript", *options, "runs").out.splitlines()
            assert lines[-2].endswith("✗ killed"), lines
            assert lines[-1].strip() == "It was killed."
        only = run("threads", "transcript", "-f", "--types", "thread_started", "runs").out
        assert "killed" not in only
    assert run("threads", "transcript", "runs").out.count("✗ killed") == 1


def test_what_a_stopped_owner_could_not_close_is_unattested_and_not_altered(
    workspace: Workspace, run: Run
) -> None:
    store = made_threads(workspace.project, workspace.user)
    path: Path = threads_folder(workspace) / "runs/transcript.jsonl"
    head = run_blocking(store.registry.get_thread("runs")).transcript_head
    key = load_run_key(workspace.user / ".ai")
    transcript, _ = Transcript.resume(path, "runs", key, head=head)
    with transcript:
        transcript.record("tool_call", {})
    run_blocking(store.registry.settle("runs", "error", {}))  # as one does who found it dead
    store.close()
    with holder(HOLD_GATE, path, stopped=True):
        verified = run("threads", "verify", "runs")
    assert verified.code == 0, verified.out
    assert "unattested" in verified.out
