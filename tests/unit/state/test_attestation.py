"""State is this user's own, or is moved aside unread."""

import json
import os
import shutil
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from ryecore.errors import LinkLeavesSpace, StateError, UnattestedState
from ryecore.items.files import write_atomically
from ryecore.state.attestation import (
    AttestedFolder,
    attested_folder,
    find_attested_folder,
    set_aside,
)
from ryecore.state.database import Database
from ryecore.state.records import load_run_key, sign_record
from ryecore.state.schema import MIGRATIONS
from ryecore.state.store import ThreadStore
from ryecore.state.waiting import run_blocking
from tests.forking import forked_script


def place(tmp_path: Path, project: str = "project", user: str = "user") -> AttestedFolder:
    return attested_folder(tmp_path / project / ".ai" / "state", "threads", tmp_path / user)


def opened(tmp_path: Path, project: str = "project", user: str = "user") -> Path:
    return place(tmp_path, project, user).path


def aside(tmp_path: Path, project: str = "project") -> list[Path]:
    return sorted((tmp_path / project / ".ai" / "state").glob("threads.unattested-*"))


def test_the_folder_is_made_once_and_kept(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    (folder / "mine").write_text("x")
    assert opened(tmp_path) == folder
    assert (folder / "mine").exists()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_is_trusted_has_a_name_that_nobody_can_know(tmp_path: Path) -> None:
    first, second = place(tmp_path), place(tmp_path, "other")
    assert first.private.parent == first.path
    assert len(first.private.name) == 33
    assert first.private.name != second.private.name
    assert place(tmp_path) == first
    assert first.private.stat().st_mode & 0o777 == 0o700


def test_a_pull_that_replaces_the_attestation_moves_all_aside(tmp_path: Path) -> None:
    mine = place(tmp_path)
    (mine.private / "threads.db").write_text("mine")
    theirs = place(tmp_path, "theirs", user="somebody else")
    shutil.copy(theirs.path / "attested.json", mine.path / "attested.json")
    with pytest.warns(UserWarning, match="was moved to"):
        after = place(tmp_path)
    assert after.private.name not in (mine.private.name, theirs.private.name)
    assert list(after.private.iterdir()) == []
    (kept,) = aside(tmp_path)
    assert (kept / mine.private.name / "threads.db").read_text() == "mine"


@pytest.mark.parametrize("ignored", [None, "", "!*\n"])
def test_it_is_kept_out_of_git_whatever_a_clone_says(tmp_path: Path, ignored: str | None) -> None:
    if ignored is not None:
        theirs = tmp_path / "project/.ai/state/.gitignore"
        theirs.parent.mkdir(parents=True)
        theirs.write_text(ignored)
    mine = place(tmp_path)
    (mine.private / "threads.db").write_text("mine")
    subprocess.run(["git", "init", "-q", tmp_path / "project"], check=True)
    status = subprocess.run(
        ["git", "-C", tmp_path / "project", "status", "--porcelain", "-uall"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert [line for line in status.stdout.splitlines() if "/.gitignore" not in line] == []


def test_state_of_a_project_whose_ai_folder_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """A clone with `.ai -> ../../.ai` would keep its threads in the user's own folder."""
    (tmp_path / "home/.ai").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.ai").symlink_to(tmp_path / "home/.ai")
    with pytest.raises(LinkLeavesSpace):
        place(tmp_path)
    assert list((tmp_path / "home/.ai").iterdir()) == []


def test_a_moved_project_keeps_its_state(tmp_path: Path) -> None:
    folder = opened(tmp_path)
    (folder / "mine").write_text("x")
    (tmp_path / "project").rename(tmp_path / "moved")
    assert (opened(tmp_path, "moved") / "mine").exists()


@pytest.mark.parametrize("what", ["a FIFO", "a device", "nested", "huge"])
def test_what_stands_in_place_of_an_attestation_is_no_attestation(
    tmp_path: Path, what: str
) -> None:
    folder = tmp_path / "project/.ai/state/threads"
    folder.mkdir(parents=True)
    record = folder / "attested.json"
    match what:
        case "a FIFO":
            os.mkfifo(record)
        case "a device":
            record.symlink_to("/dev/zero")
        case "nested":
            record.write_text("[" * 4000)
        case _:
            record.write_text("[" + " " * 5000 + "]")
    with pytest.warns(UserWarning, match=r"was moved to"):
        fresh = place(tmp_path)
    ignoring = fresh.path / ".gitignore"
    assert set(fresh.path.iterdir()) == {record, fresh.private, ignoring}
    assert len(aside(tmp_path)) == 1


def test_somebody_elses_state_in_a_clone_is_set_aside_unread_by_whoever_starts(
    tmp_path: Path,
) -> None:
    folder = opened(tmp_path, user="somebody else")
    (folder / "threads.db").write_text("poison")
    shutil.copytree(tmp_path / "project", tmp_path / "clone")
    with pytest.warns(UserWarning, match=r"not made by you on this machine.*was moved to"):
        clone = opened(tmp_path, "clone")
    assert not (clone / "threads.db").exists()
    (kept,) = aside(tmp_path, "clone")
    assert (kept / "threads.db").read_text() == "poison"
    assert opened(tmp_path, "clone") == clone
    assert len(aside(tmp_path, "clone")) == 1


def names_below(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


@pytest.mark.parametrize("how", ["look", "start"])
@pytest.mark.parametrize("whose", ["copied", "restored", "foreign", "altered"])
def test_state_that_may_be_in_its_place_is_never_moved(
    tmp_path: Path, how: str, whose: str
) -> None:
    user, project = "user", "project"
    first = place(tmp_path)
    (first.path / "mine").write_text("x")
    match whose:
        case "copied":
            project = "copy"
            shutil.copytree(tmp_path / "project", tmp_path / "copy")
        case "restored":
            shutil.copytree(first.path, tmp_path / "backup")
            shutil.rmtree(first.path)
            (tmp_path / "room").mkdir()  # takes the number that the folder had
            shutil.copytree(tmp_path / "backup", first.path)
        case "foreign":
            user = "root's"
        case _:
            path = first.path / "attested.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    state = tmp_path / project / ".ai/state"
    before = names_below(state)
    use = attested_folder if how == "start" else find_attested_folder
    with pytest.raises(UnattestedState, match="rye threads adopt") as caught:
        use(state, "threads", tmp_path / user)
    assert names_below(state) == before
    reasons = {"restored": "copied", "altered": "foreign"}
    assert caught.value.reason == reasons.get(whose, whose)


def test_looking_makes_nothing_not_even_a_key(tmp_path: Path) -> None:
    state = tmp_path / "project/.ai/state"
    assert find_attested_folder(state, "threads", tmp_path / "user") is None
    assert list(tmp_path.iterdir()) == []
    (state / "threads").mkdir(parents=True)
    assert find_attested_folder(state, "threads", tmp_path / "user") is None
    (state / "threads/some").mkdir()
    with pytest.raises(UnattestedState, match="attested by nobody"):
        find_attested_folder(state, "threads", tmp_path / "user")
    assert not (tmp_path / "user").exists()


@pytest.mark.parametrize("how", ["look", "start"])
def test_state_that_a_process_uses_is_left_and_the_process_named(tmp_path: Path, how: str) -> None:
    theirs = ThreadStore.open(tmp_path / "project/.ai", tmp_path / "their user space")
    run_blocking(theirs.registry.register("t", "tool:x"))
    state = tmp_path / "project/.ai/state"
    copy = tmp_path / "copy/.ai/state"
    shutil.copytree(state, copy)
    (database,) = copy.rglob("threads.db")
    with Database(database, MIGRATIONS).look():
        use = attested_folder if how == "start" else find_attested_folder
        with pytest.raises(UnattestedState, match=rf"in use by this process itself, {os.getpid()}"):
            use(copy, "threads", tmp_path / "user")
        with pytest.raises(UnattestedState, match=r"stays where it is.*rye threads cancel"):
            set_aside(copy / "threads")
    run_blocking(theirs.registry.register("u", "tool:x"))  # whoever made it goes on


def test_a_folder_with_records_of_ones_own_is_not_set_aside(tmp_path: Path) -> None:
    key = load_run_key(tmp_path / "user")
    folder = tmp_path / "project/.ai/state/threads"
    (folder / "t").mkdir(parents=True)
    write_atomically(
        folder / "t/thread.json",
        json.dumps(sign_record("thread", {"thread_id": "t"}, key)).encode(),
    )
    with pytest.raises(UnattestedState, match="attested by nobody"):
        place(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.root
def test_another_users_folder_is_not_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "project/.ai/state/threads"
    (folder / "some").mkdir(parents=True)
    os.chown(folder, 1234, 1234)
    with pytest.raises(UnattestedState):
        place(tmp_path)
    assert (folder / "some").is_dir()
    assert aside(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"inode": "x"}', b"{" * 9999])
def test_an_attestation_that_is_none_counts_for_nothing(tmp_path: Path, content: bytes) -> None:
    folder = opened(tmp_path)
    (folder / "attested.json").write_bytes(content)
    with pytest.warns(UserWarning, match="was moved to"):
        opened(tmp_path)


def test_an_empty_folder_needs_no_warning(tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".ai" / "state" / "threads"
    folder.mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened(tmp_path) == folder
    assert aside(tmp_path) == []


@pytest.mark.parametrize("name", ["state", "state/threads"])
def test_a_link_is_refused_and_nothing_is_written_behind_it(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = tmp_path / "project" / ".ai" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(StateError, match=r"is a link.*Remove it"):
        opened(tmp_path)
    assert os.listdir(elsewhere) == []


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "project" / ".ai" / "state"
    state.mkdir(parents=True)
    (state / "threads").write_text("")
    with pytest.raises(StateError, match="is no folder"):
        opened(tmp_path)


def test_a_project_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "project").write_text("")
    with pytest.raises(StateError, match=r"can't be used.*move it away"):
        opened(tmp_path)


def test_eight_processes_at_once_make_one_folder(tmp_path: Path) -> None:
    foreign = tmp_path / "project" / ".ai" / "state" / "threads"
    foreign.mkdir(parents=True)
    (foreign / "threads.db").write_text("poison")
    script = (
        "import sys, warnings; from pathlib import Path\n"
        "from ryecore.state.attestation import attested_folder\n"
        "warnings.simplefilter('ignore')\n"
        "sys.stdin.readline()\n"
        "folder = attested_folder(Path(sys.argv[1]), 'threads', Path(sys.argv[2]))\n"
        "print((folder.path / 'attested.json').read_text())\n"
    )
    running = [
        forked_script(
            tmp_path, script, foreign.parent, tmp_path / "user",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for _ in range(8)
    ]  # fmt: skip
    for one in running:  # each waits for this line, so that they begin together
        assert one.stdin is not None
        one.stdin.write(b"go\n")
        one.stdin.flush()
    said = {one.communicate(timeout=60)[0] for one in running}
    assert len(said) == 1
    assert len(aside(tmp_path)) == 1


@pytest.mark.filterwarnings("ignore:.*was moved to")
def test_a_folder_that_is_set_aside_while_others_look_at_it_is_made_once(tmp_path: Path) -> None:
    for project in map(str, range(10)):
        foreign = tmp_path / project / ".ai" / "state" / "threads"
        foreign.mkdir(parents=True)
        (foreign / "threads.db").write_text("poison")
        together = Barrier(8)

        def begin(project: str = project, together: Barrier = together) -> AttestedFolder:
            together.wait()
            return place(tmp_path, project)

        with ThreadPoolExecutor(8) as pool:
            folders = [one.result() for one in [pool.submit(begin) for _ in range(8)]]
        assert len(set(folders)) == 1
        assert len(aside(tmp_path, project)) == 1
