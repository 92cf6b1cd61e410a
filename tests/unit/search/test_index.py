"""The index: in step with the files, read no more than needed, never trusted, never in the way."""

import os
import select
import sqlite3
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ryecore.lillux import digests
from ryecore.search import index as index_module
from ryecore.search import walk as walk_module
from ryecore.search.index import SearchIndex
from ryecore.search.query import Query, translate
from tests.forking import forked_script
from tests.workspace import Workspace


class Reads:
    """Counts which files are read, and reads them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []

        def read(path: str, *, max_bytes: int) -> tuple[bytes, str]:
            self.paths.append(os.path.basename(path))
            return digests.read_digest(path, max_bytes=max_bytes)

        monkeypatch.setattr(index_module, "read_digest", read)

    def taken(self) -> list[str]:
        paths, self.paths = sorted(self.paths), []
        return paths


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


@pytest.fixture
def folder(workspace: Workspace) -> Path:
    return workspace.user / ".ai/cache/search"


@pytest.fixture
def index(workspace: Workspace, folder: Path) -> SearchIndex:
    return SearchIndex(workspace.open().spaces, folder, dict)


def found(index: SearchIndex, query: str, kind: str = "knowledge") -> list[str]:
    return [one.source.ref.id for one in index.find(translate(query), [kind])]


def write(workspace: Workspace, name: str, text: str) -> Path:
    return workspace.write(f"knowledge/{name}.md", text, sign=False)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock's grain has passed."""
    monkeypatch.setattr(index_module, "GRAIN_NS", -1)


def test_what_is_unchanged_is_not_read_again(workspace, index, reads, settled):
    write(workspace, "a", "tides")
    write(workspace, "b", "moon")
    assert found(index, "tides") == ["a"]
    reads.taken()
    assert found(index, "moon") == ["b"]
    assert reads.taken() == []


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are listed file by file."""
    listed: list[str] = []
    scandir = os.scandir

    def noting(path: str) -> object:
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(walk_module.os, "scandir", noting)
    return listed


def test_what_is_unchanged_is_not_walked_again_by_any_process(
    workspace, folder, index, settled, walks
):
    """A folder is listed, and its stats read, at once: not file by file."""
    for number in range(20):
        write(workspace, f"f{number}/a{number}", "tides")
    write(workspace, "agent/threads/x", "tides")
    assert len(found(index, "tides")) == 20
    walks.clear()
    assert len(found(index, "tides")) == 20
    other = SearchIndex(workspace.open().spaces, folder, dict)
    assert len(found(other, "tides")) == 20
    # To leave out exports of threads, two folders are listed for the names of those in them.
    top = str(workspace.path("knowledge"))
    assert walks == [top, f"{top}/agent"] * 2


def _edit_in_place(path: Path) -> None:
    path.write_text("MOON")


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("MOON")
    other.replace(path)


def _edit_with_its_old_time(path: Path) -> None:
    stamp = path.stat()
    path.write_text("MOON")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


def _link(path: Path) -> None:
    target = path.with_name("target")
    target.write_text("MOON")
    path.unlink()
    path.symlink_to(target)


def _rename_folders(path: Path) -> None:
    other = path.parent.with_name("other")
    other.mkdir()
    (other / path.name).write_text("MOON")
    path.parent.rename(path.parent.with_name("old"))
    other.rename(path.parent)


@pytest.mark.parametrize(
    "change", [_edit_in_place, _replace, _edit_with_its_old_time, _link, _rename_folders]
)
@pytest.mark.parametrize("name", ["a", "deep/er/a", "agent/a", "agent/deep/a", "x/agent/threads/a"])
def test_each_change_of_a_file_is_noticed_after_a_fingerprint(
    workspace, folder, index, settled, name, change
):
    path = write(workspace, f"top/{name}" if name == "a" else name, "TIDE")
    for searched in (index, SearchIndex(workspace.open().spaces, folder, dict)):
        assert len(found(searched, "tide")) == 1
    stamp = path.stat().st_ctime_ns
    while (path.parent / "clock").write_bytes(b"") or (
        (path.parent / "clock").stat().st_ctime_ns <= stamp
    ):
        pass  # until the clock of files has advanced
    change(path)
    assert path.stem in {one.rpartition("/")[2] for one in found(index, "moon")}
    assert name not in found(index, "tide")


def test_a_walk_that_another_process_overtakes_leaves_no_fingerprint_of_its_own(
    workspace, folder, index, settled, monkeypatch
):
    """What it wrote of an older state is found out by the next search."""
    path = write(workspace, "a", "tides")
    other = SearchIndex(workspace.open().spaces, folder, dict)
    real_read = index_module._read

    def overtaken(file: Any, file_types: Any) -> object:
        entry = real_read(file, file_types)
        monkeypatch.setattr(index_module, "_read", real_read)
        path.write_text("the moon")
        assert found(other, "moon") == ["a"]
        return entry

    monkeypatch.setattr(index_module, "_read", overtaken)
    found(index, "tides")
    assert found(other, "moon") == found(index, "moon") == ["a"]


def test_a_folder_that_is_moved_and_replaced_by_a_link_is_noticed(workspace, index, settled):
    write(workspace, "good", "tides")
    write(workspace, "hidden/a", "tides")
    closed = workspace.path("knowledge/hidden")
    assert len(found(index, "tides")) == 2
    closed.rename(closed.with_name("elsewhere"))
    closed.symlink_to("loop")
    assert sorted(found(index, "tides")) == ["elsewhere/a", "good"]


def test_a_file_that_was_touched_just_now_is_read_again(workspace, index, reads, monkeypatch):
    monkeypatch.setattr(index_module, "GRAIN_NS", 3600 * 10**9)
    path = write(workspace, "a", "one two")
    assert found(index, "one") == ["a"]
    stamp = path.stat()
    path.write_text("two one")  # as large as before
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert found(index, '"two one"') == ["a"]
    assert reads.taken() == ["a.md", "a.md"]


def test_what_changed_came_or_went_is_noticed_at_the_next_search(workspace, index, reads, settled):
    path = write(workspace, "a", "tides")
    write(workspace, "b", "moon")
    found(index, "*")
    reads.taken()
    path.write_text("now: moon")
    write(workspace, "c", "moon")
    workspace.path("knowledge/b.md").unlink()
    assert sorted(found(index, "moon")) == ["a", "c"]
    assert found(index, "tides") == []
    assert reads.taken() == ["a.md", "c.md"]


def test_a_search_for_one_kind_forgets_nothing_of_another(workspace, index, reads, settled):
    write(workspace, "a", "tides")
    workspace.shell("t", "true")
    found(index, "*", "knowledge")
    found(index, "*", "tool")
    reads.taken()
    assert found(index, "tides") == ["a"]
    assert reads.taken() == []


def test_a_touched_file_of_the_same_content_is_not_indexed_again(workspace, folder, index, settled):
    path = write(workspace, "a", "tides")
    found(index, "tides")
    row = index.find(Query(None), ["knowledge"])[0].row
    os.utime(path, (1, 1))
    assert index.find(translate("tides"), ["knowledge"])[0].row == row


def test_what_is_no_text_or_too_large_is_found_by_its_name_alone(workspace, index, monkeypatch):
    monkeypatch.setattr(index_module, "_MAX_INDEXED_BYTES", 1000)
    workspace.write("knowledge/huge.md", "tides " * 1000, sign=False)
    workspace.write("knowledge/raw.md", b"tides \xff", sign=False)
    assert found(index, "tides") == []
    assert found(index, "huge") == ["huge"]
    assert found(index, "raw") == ["raw"]


def test_of_config_the_name_alone_is_indexed(workspace, index):
    workspace.write("config/acme/shop.yaml", "api_key: sesame", sign=False)
    assert found(index, "sesame", "config") == []
    assert found(index, "shop", "config") == ["acme/shop"]
    assert b"sesame" not in b"".join(
        path.read_bytes() for path in (workspace.user / ".ai/cache").rglob("*") if path.is_file()
    )


def test_names_that_are_no_items_and_links_that_lead_out_are_passed_over(
    workspace, index, tmp_path
):
    write(workspace, "good", "tides")
    workspace.write("knowledge/bad name.md", "tides", sign=False)
    workspace.write("knowledge/node_modules/x.md", "tides", sign=False)
    (tmp_path / "secret.md").write_text("tides")
    workspace.path("knowledge/link.md").symlink_to(tmp_path / "secret.md")
    workspace.path("knowledge/loop.md").symlink_to("loop.md")
    os.mkfifo(workspace.path("knowledge/pipe.md"))
    assert found(index, "tides") == ["good"]


def test_folders_nested_deeper_than_any_id_goes_are_passed_over(workspace, index, monkeypatch):
    write(workspace, "good", "tides")
    monkeypatch.chdir(workspace.path("knowledge"))
    for _ in range(1500):  # by steps: no path is that long
        os.mkdir("a")
        os.chdir("a")
    try:
        assert found(index, "tides") == ["good"]
    finally:  # which pytest's own cleaning can't
        subprocess.run(["rm", "-rf", str(workspace.path("knowledge/a"))], check=True)


def test_the_index_stands_in_user_space_and_is_the_users_alone(workspace, folder, index):
    write(workspace, "a", "tides")
    found(index, "*")
    (path,) = folder.glob("*.db")
    assert path.stat().st_mode & 0o777 == 0o600
    assert not workspace.path("cache").exists()


@pytest.mark.parametrize("content", [b"", b"no database" * 100, "foreign", "newer"])
def test_a_broken_or_foreign_index_is_made_anew(workspace, folder, index, content):
    write(workspace, "a", "tides")
    found(index, "*")
    index.close()
    (path,) = folder.glob("*.db")
    if isinstance(content, bytes):
        for one in folder.iterdir():
            one.unlink()
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as connection:
            if content == "newer":
                connection.execute("PRAGMA user_version = 99")
            else:
                connection.execute("DROP TABLE files")
        connection.close()
    assert found(index, "tides") == ["a"]
    index.close()
    assert found(index, "tides") == ["a"]


def test_where_the_cache_cannot_be_written_memory_serves(workspace, folder, index):
    write(workspace, "a", "tides")
    folder.parent.mkdir(parents=True)
    folder.write_text("a file, no folder")
    assert found(index, "tides") == ["a"]
    write(workspace, "b", "tides")
    assert sorted(found(index, "tides")) == ["a", "b"]


def test_an_index_that_nobody_used_for_long_goes(workspace, folder, index):
    write(workspace, "a", "tides")
    folder.mkdir(parents=True)
    old, new = folder / "old.db", folder / "new.db"
    for path in (old, new):
        path.write_text("")
    os.utime(old, (1, 1))
    found(index, "*")
    assert not old.exists()
    assert new.exists()


def test_threads_of_one_process_and_eight_processes_may_search_at_once(workspace, folder, index):
    for number in range(40):
        write(workspace, f"n{number}", f"tides {number}")
    program = (
        "import sys; from ryecore import SyncRye\n"
        "with SyncRye.open(sys.argv[1], user_space=sys.argv[2]) as rye:\n"
        "    print(rye.search('tides', scope='knowledge').total)\n"
    )
    processes = [
        forked_script(
            workspace.root, program, workspace.project, workspace.user, stdout=subprocess.PIPE
        )
        for _ in range(8)
    ]
    totals: list[int] = []
    threads = [
        threading.Thread(target=lambda: totals.append(len(found(index, "tides"))))
        for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert totals == [40] * 20
    assert [process.communicate()[0].strip() for process in processes] == [b"40"] * 8


@pytest.mark.root
def test_a_full_disk_does_not_keep_anybody_from_searching(workspace, small_disk):
    for number in range(100):
        write(workspace, f"n{number}", f"tides {'and words ' * 200}")
    index = SearchIndex(workspace.open().spaces, small_disk / "search", dict)
    assert len(found(index, "tides")) == 100
    assert len(found(index, "tides")) == 100
    index.close()


def test_a_search_that_is_killed_at_any_point_leaves_an_index_that_works(workspace, folder, index):
    for number in range(300):
        write(workspace, f"n{number}", f"tides {'and words ' * 50}")
    program = (
        "import sys; from ryecore import SyncRye\n"
        "with SyncRye.open(sys.argv[1], user_space=sys.argv[2]) as rye:\n"
        "    print(flush=True)\n"
        "    rye.search('tides')\n"
    )
    for delay_ms in (0, 20, 60, 120):
        with forked_script(
            workspace.root, program, workspace.project, workspace.user, stdout=subprocess.PIPE
        ) as searching:
            assert searching.stdout is not None
            searching.stdout.read(1)
            select.select([], [], [], delay_ms / 1000)  # somewhere in its work
            searching.kill()
        assert len(found(index, "tides")) == 300
        index.close()
        for path in folder.glob("*.db"):
            path.unlink()


def test_of_many_that_search_at_once_one_walks_for_all(workspace, index, reads, monkeypatch):
    monkeypatch.setattr(index_module, "GRAIN_NS", 3600 * 10**9)  # whoever walks reads it again
    write(workspace, "a", "tides")
    asked_ns = time.monotonic_ns()
    for _ in range(10):
        assert len(index.find(translate("tides"), ["knowledge"], asked_ns)) == 1
    assert reads.taken() == ["a.md"]
    write(workspace, "b", "tides")
    assert sorted(found(index, "tides")) == ["a", "b"]


def test_a_closed_index_holds_no_descriptor(workspace, index):
    write(workspace, "a", "tides")
    found(index, "tides")
    before = len(os.listdir("/proc/self/fd"))
    index.close()
    assert len(os.listdir("/proc/self/fd")) < before
    left = len(os.listdir("/proc/self/fd"))
    assert found(index, "tides") == ["a"]  # a search that was under way while it was closed
    assert len(os.listdir("/proc/self/fd")) <= left


def test_a_large_text_is_indexed_in_part_and_says_so(workspace, index):
    write(workspace, "large", "# Tides\n" + "the " * 80_000 + "moon")
    write(workspace, "small", "moon")
    assert found(index, "moon") == ["small"]
    extents = {one.source.ref.id: one.extent for one in index.find(Query(None), ["knowledge"])}
    assert extents == {"large": "part", "small": "whole"}
    (large,) = index.find(translate("title: tides the"), ["knowledge"])
    assert index.show([large])[large.row].title == "Tides"


def test_a_search_that_is_given_up_ends_before_its_next_file(workspace, index, reads):
    for number in range(20):
        write(workspace, f"k{number}", "tides")
    calls = iter(range(100))

    def check() -> None:
        if next(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.find(translate("tides"), ["knowledge"], None, check)
    assert len(reads.taken()) == 5
    assert len(found(index, "tides")) == 20
