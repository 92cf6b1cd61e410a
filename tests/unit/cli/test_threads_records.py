"""rye threads adopt: state that was restored, copied or made by another user space."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from ryecore.lillux.processes import ProcessId, current_process
from ryecore.state.records import load_run_key
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import THREAD_FILE, ThreadFile, write_thread_file
from ryecore.state.transcript import Transcript
from ryecore.state.waiting import run_blocking
from tests.unit.cli.conftest import Run
from tests.workspace import Workspace


def made_threads(project: Path, user: Path) -> ThreadStore:
    """Three threads: one that has ended, one that runs here, and a tool's without a record."""
    store = ThreadStore.open(project / ".ai", user / ".ai")
    key = load_run_key(user / ".ai")
    for thread_id in ("done", "runs"):
        row = run_blocking(store.registry.register(thread_id, "directive:acme/x"))
        run_blocking(store.registry.claim(thread_id))
        file = ThreadFile(
            thread_id=thread_id,
            item_id="directive:acme/x",
            directive="acme/x",
            item_hash="0" * 64,
            status="running",
            created_at=row.created_at,
            updated_at=row.created_at,
            model=None,
            limits={},
            capabilities=(),
        )
        folder = store.make_folder(thread_id)
        write_thread_file(folder / THREAD_FILE, file, key)
        path = folder / "transcript.jsonl"
        with Transcript.create(path, thread_id, key) as transcript:
            transcript.append("thread_started", {})
            head = transcript.checkpoint(0)
        run_blocking(store.registry.set_head(thread_id, (head.offset, head.digest)))
    run_blocking(store.settle("done", "completed", {"data": 1}, 1))
    run_blocking(store.registry.register("tool", "tool:acme/work"))
    run_blocking(store.settle("tool", "completed", {"data": 2}, 0))
    return store


def threads_folder(workspace: Workspace) -> Path:
    return workspace.path("state/threads")


def restore(workspace: Workspace, name: str = "backup") -> None:
    """Put the state back as a backup does: all files, and other inodes."""
    shutil.move(workspace.path("state"), workspace.root / name)  # so that it keeps its inodes
    shutil.copytree(workspace.root / name, workspace.path("state"))


def statuses(run: Run) -> dict[str, str]:
    listed = run("threads", "list", "--all", "--json").json["threads"]
    return {one["thread_id"]: one["status"] for one in listed}


def change_row(workspace: Workspace, statement: str) -> None:
    (database,) = threads_folder(workspace).glob(".*/threads.db")
    with closing(sqlite3.connect(database, isolation_level=None)) as opened:
        opened.execute(statement)


def test_a_restored_backup_is_refused_by_who_looks_and_adopted_once_proved(
    workspace: Workspace, run: Run
) -> None:
    made_threads(workspace.project, workspace.user).close()
    restore(workspace)
    looked = run("threads", "list", "--all")
    assert looked.code == 2
    assert "a copy or a restored backup of your state" in looked.err
    assert "rye threads adopt" in looked.err
    assert run("threads", "adopt").code == 2, "nobody can be asked, and nobody said yes"

    adopted = run("threads", "adopt", "--yes", "--json")

    assert (adopted.code, adopted.json["adopted"]) == (0, True)
    assert (adopted.json["threads"], adopted.json["proved"]) == (3, 2)
    assert adopted.json["unsigned"] == ["tool"]
    # "runs" names this very process, which lives; what it runs is the original, not the copy.
    assert statuses(run) == {"done": "completed", "runs": "error", "tool": "completed"}
    assert run("threads", "verify", "done").code == 0
    assert "yours already" in run("threads", "adopt").out


def test_another_user_space_looks_and_leaves_the_running_thread_alone(
    workspace: Workspace, run_process: Run
) -> None:
    store = made_threads(workspace.project, workspace.user)
    other = {"USER_SPACE": str(workspace.root / "root's home")}
    for command in (
        ["list"],
        ["show", "runs"],
        ["cancel", "runs"],
    ):
        done = run_process("threads", *command, **other)
        assert done.code == 2
        assert "made by another user space" in done.err
        assert "in use by process" in done.err
    assert run_process("threads", "adopt", "--yes", **other).code == 2
    assert run_process("threads", "adopt", "--set-aside", "--yes", **other).code == 2
    assert store.is_in_place()
    assert run_blocking(store.look("runs")).status == "running"
    store.close()


def test_another_user_space_takes_over_with_the_key_that_the_user_confirms(
    workspace: Workspace, run: Run
) -> None:
    made_threads(workspace.project, workspace.user).close()
    key = load_run_key(workspace.user / ".ai").public
    other = {"USER_SPACE": str(workspace.root / "new home")}
    unnamed = run("threads", "adopt", "--yes", **other)
    assert unnamed.code == 2
    assert f"--run-key {key.fingerprint}" in unnamed.err
    assert run("threads", "adopt", "--yes", "--run-key", "0" * 16, **other).code == 2

    adopted = run("threads", "adopt", "--yes", "--run-key", key.fingerprint, **other)

    assert adopted.code == 0, adopted.err
    assert run("threads", "verify", "done", **other).code == 0
    assert run("threads", "list", "--all", **other).code == 0
    assert run("threads", "list", "--all").code == 2, "they are the other space's now"


def test_state_without_a_public_key_is_proved_with_the_file_of_the_key(
    workspace: Workspace, run: Run
) -> None:
    made_threads(workspace.project, workspace.user).close()
    path = threads_folder(workspace) / "attested.json"
    record = json.loads(path.read_text())
    del record["public_key"]
    path.write_text(json.dumps(record))
    other = {"USER_SPACE": str(workspace.root / "new home")}
    unknown = run("threads", "adopt", "--yes", **other)
    assert unknown.code == 2
    assert "run_key.pem" in unknown.err
    file = workspace.user / ".ai/state/keys/run_key.pem"
    assert run("threads", "adopt", "--yes", "--run-key", str(file), **other).code == 0


def altered_file(workspace: Workspace) -> None:
    path = threads_folder(workspace) / "done/thread.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "capabilities": ["rye.*"]}))


def altered_transcript(workspace: Workspace) -> None:
    path = threads_folder(workspace) / "done/transcript.jsonl"
    path.write_text(path.read_text().replace("thread_started", "thread_stopped"))


def another_item(workspace: Workspace) -> None:
    change_row(workspace, "UPDATE threads SET item_id = 'tool:rye/bash' WHERE thread_id = 'done'")


def no_head(workspace: Workspace) -> None:
    change_row(workspace, "UPDATE threads SET transcript_digest = 'x' WHERE thread_id = 'done'")


def strange_id(workspace: Workspace) -> None:
    change_row(workspace, "UPDATE threads SET thread_id = '../../x' WHERE thread_id = 'tool'")


def rule_for_later_rows(workspace: Workspace) -> None:
    change_row(
        workspace,
        "CREATE TRIGGER more AFTER INSERT ON accounts"
        " BEGIN UPDATE accounts SET spend_ceiling = 9000000000; END",
    )


def broken(workspace: Workspace) -> None:
    (database,) = threads_folder(workspace).glob(".*/threads.db")
    database.write_bytes(b"no database" * 999)


@pytest.mark.parametrize(
    "alter",
    [
        altered_file,
        altered_transcript,
        another_item,
        no_head,
        strange_id,
        rule_for_later_rows,
        broken,
    ],
)
def test_what_is_not_what_was_signed_is_not_taken_over(
    workspace: Workspace, run: Run, alter: Any
) -> None:
    made_threads(workspace.project, workspace.user).close()
    restore(workspace)
    alter(workspace)
    refused = run("threads", "adopt", "--yes")
    assert refused.code == 2
    assert "is not what was signed" in refused.err
    assert run("threads", "list").code == 2


def test_state_is_set_aside_and_taken_over_again(workspace: Workspace, run: Run) -> None:
    made_threads(workspace.project, workspace.user).close()
    restore(workspace)
    aside = Path(run("threads", "adopt", "--set-aside", "--yes", "--json").json["set_aside"])
    assert run("threads", "list", "--all").out == "no threads\n"
    ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai").close()  # a new one, empty
    assert run("threads", "adopt", aside.name, "--yes").code == 0
    assert set(statuses(run)) == {"done", "runs", "tool"}
    again = Path(run("threads", "adopt", "--set-aside", "--yes", "--json").json["set_aside"])
    store = ThreadStore.open(workspace.project / ".ai", workspace.user / ".ai")
    run_blocking(store.registry.register("new", "tool:acme/work"))
    store.close()
    assert "holds 1 threads already" in run("threads", "adopt", again.name, "--yes").err


@pytest.mark.parametrize("name", ["../x", "none", ".gitignore", "/etc"])
def test_only_a_folder_of_state_is_taken_over(workspace: Workspace, run: Run, name: str) -> None:
    made_threads(workspace.project, workspace.user).close()
    for more in ([], ["--set-aside"]):
        assert "There is no folder" in run("threads", "adopt", name, "--yes", *more).err


def test_a_takeover_that_was_killed_in_its_midst_is_made_again(
    workspace: Workspace, run: Run
) -> None:
    made_threads(workspace.project, workspace.user).close()
    (private,) = threads_folder(workspace).glob("." + "[0-9a-f]" * 32)
    private.rename(private.with_name("." + "a" * 32))
    assert run("threads", "list").code == 2
    assert run("threads", "adopt", "--yes").code == 0
    assert "done" in statuses(run)


def test_a_thread_of_another_machine_is_shown_with_it_and_without_a_folder_that_is_not_here(
    workspace: Workspace, run: Run
) -> None:
    store = made_threads(workspace.project, workspace.user)
    here = current_process()
    for thread_id, owner in (
        ("there", ProcessId("elsewhere", 1, 4242, 1)),
        ("contained", evolve(here, pid_namespace=1)),
        ("own", here),
    ):
        run_blocking(store.registry.register(thread_id, "directive:acme/x"))
        run_blocking(store.registry.claim(thread_id, owner))
    store.close()
    there = run("threads", "show", "there").out
    assert "process 4242  of another machine" in there
    assert "folder" not in there
    assert f"process {here.pid}  of another container" in run("threads", "show", "contained").out
    assert f"process {here.pid}\n" in run("threads", "show", "own").out
    shown = run("threads", "show", "there", "--json").json
    assert (shown["pid"], shown["machine"], shown["folder"]) == (4242, "another machine", None)
    done = run("threads", "show", "done", "--json").json
    assert done["machine"] is None
    assert done["folder"] == str(threads_folder(workspace) / "done")
    assert f"folder  {done['folder']}" in run("threads", "show", "done").out
