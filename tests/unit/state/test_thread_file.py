"""thread.json: signed, whole, and of the thread that it says."""

import json
import os
import stat
from pathlib import Path

import pytest
from attrs import evolve, fields

from ryecore import SigningKey
from ryecore.errors import LinkLeavesSpace, StateError
from ryecore.state.exports import EXPORT_KIND, document_holds, export_path
from ryecore.state.model import Cost, Durability
from ryecore.state.records import holds, load_run_key, sign_record
from ryecore.state.store import ThreadStore
from ryecore.state.thread_file import ThreadFile, read_thread_file, write_thread_file
from ryecore.state.waiting import run_blocking

KEY = SigningKey.generate()
THREAD = ThreadFile(
    thread_id="agency/discover-1739820456",
    item_id="directive:agency/discover",
    directive="agency/discover",
    item_hash="a" * 64,
    status="running",
    created_at="2026-02-17T10:00:56.000Z",
    updated_at="2026-02-17T10:00:57.000Z",
    model="fake/m",
    limits={"turns": 10, "spend": 0.1},
    capabilities=("rye.execute.tool.acme.*",),
    cost=Cost(2, 30, 4, 1_234_567),
)


def test_an_ended_thread_keeps_all_else() -> None:
    thread = evolve(THREAD, parent_id="p", root_id="r", chain_root_id="c", continuation_of="b")
    cost, now = Cost(3, 40, 5, 1), "2026-02-17T10:01:00.000Z"
    expected = evolve(thread, status="completed", cost=cost, updated_at=now)
    assert thread.ended("completed", cost, now) == expected
    given = {one.name for one in fields(ThreadFile) if getattr(thread, one.name) != one.default}
    assert given == {one.name for one in fields(ThreadFile)}  # a new field is tried, too


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "thread.json"
    write_thread_file(path, THREAD, KEY)
    return path


def test_a_threads_file_has_the_documented_fields_and_more(path: Path) -> None:
    said = read_thread_file(path, KEY.public, THREAD.thread_id)
    assert said == THREAD.to_dict()
    assert said["root_id"] == THREAD.thread_id
    assert said["cost"] == {"turns": 2, "input_tokens": 30, "output_tokens": 4, "spend": 0.01234567}
    documented = {"thread_id", "directive", "status", "created_at", "updated_at", "model"}
    assert documented | {"limits", "capabilities"} <= said.keys()
    assert holds("thread", json.loads(path.read_bytes()), KEY.public)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_widened_capability_is_noticed(path: Path) -> None:
    path.write_text(path.read_text().replace("tool.acme", "tool.*"))
    with pytest.raises(StateError, match="was altered") as refused:
        read_thread_file(path, KEY.public, THREAD.thread_id)
    assert "rye threads verify" in refused.value.next_step


def test_another_keys_another_kinds_and_another_threads_file_is_refused(path: Path) -> None:
    with pytest.raises(StateError, match="was altered"):
        read_thread_file(path, SigningKey.generate().public, THREAD.thread_id)
    with pytest.raises(StateError, match=r"of another thread, 'agency/discover-1739820456'"):
        read_thread_file(path, KEY.public, "agency/other-1")
    path.write_text(json.dumps(sign_record("checkpoint", THREAD.to_dict(), KEY)))
    with pytest.raises(StateError, match="was altered"):
        read_thread_file(path, KEY.public, THREAD.thread_id)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b"{}", b"[" * 100_000, b"null"])
def test_what_is_no_threads_file_is_refused_in_words(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"thread\.json"):
        read_thread_file(path, KEY.public, THREAD.thread_id)


def test_a_missing_file_and_a_fifo_are_refused_and_not_waited_for(path: Path) -> None:
    path.unlink()
    for _ in range(2):
        with pytest.raises(StateError, match="can't be read"):
            read_thread_file(path, KEY.public, THREAD.thread_id)
        if not path.exists():
            os.mkfifo(path)


def test_a_full_disk_leaves_the_file_as_it_was(small_disk: Path) -> None:
    path = small_disk / "thread.json"
    write_thread_file(path, THREAD, KEY)
    before = path.read_bytes()
    (small_disk / "filler").write_bytes(b"x" * 61_440)
    with pytest.raises(StateError, match="No space left"):
        write_thread_file(path, THREAD, KEY)
    assert path.read_bytes() == before
    assert [file.name for file in small_disk.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize("durability", ["process", "machine"])
def test_a_thread_that_ends_leaves_its_file_and_its_export(
    tmp_path: Path, durability: Durability
) -> None:
    project = tmp_path / "project"
    store = ThreadStore.open(project, tmp_path / "user", durability)
    run_blocking(store.write_file(THREAD))
    folder = store.folder_of(THREAD.thread_id)
    before = (folder / "thread.json").stat().st_ino
    ended = THREAD.ended("completed", THREAD.cost, THREAD.updated_at)
    for text in ("Hello.\n", "Hello again.\n"):
        run_blocking(store.leave_files(ended, text))
        assert run_blocking(store.read_file(THREAD.thread_id)) == ended.to_dict()
        export = export_path(project, THREAD.thread_id)
        key = load_run_key(tmp_path / "user").public
        assert document_holds(EXPORT_KIND, THREAD.thread_id, export.read_bytes(), key)
        assert export.read_text().endswith(text)
        assert os.listdir(folder) == ["thread.json"]
        assert os.listdir(export.parent) == [export.name]
        if text == "Hello.\n":
            assert (export.stat().st_ino == before) is (durability == "process")
    store.close()


def test_an_export_that_fails_leaves_nothing_of_the_file_that_was_replaced(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    elsewhere.mkdir()
    store = ThreadStore.open(project, tmp_path / "user")
    run_blocking(store.write_file(THREAD))
    (project / "knowledge").mkdir()
    (project / "knowledge/agent").symlink_to(elsewhere)
    ended = THREAD.ended("completed", THREAD.cost, THREAD.updated_at)
    with pytest.raises(LinkLeavesSpace):
        run_blocking(store.leave_files(ended, "Hello.\n"))
    assert run_blocking(store.read_file(THREAD.thread_id))["status"] == "completed"
    assert os.listdir(store.folder_of(THREAD.thread_id)) == ["thread.json"]
    assert not os.listdir(elsewhere)
    store.close()
