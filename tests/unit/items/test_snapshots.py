import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, ItemsView, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ryecore.errors import AnchorError
from ryecore.items.snapshots import Snapshot, SnapshotStore, _digest
from ryecore.lillux.witness import Witness
from tests.unit.items.helpers import follow, with_fixtures
from tests.unit.items.sealing import files as tree_of

FILES = {"tool.py": b"print(1)\n", "lib/a.py": b"", "lib/b/c.sh": b"#!/bin/sh\n"}
NAME = st.text("abc.-_é ", min_size=1, max_size=5).filter(lambda name: name not in (".", ".."))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "sealed"


@pytest.fixture
def seals(folder: Path) -> SnapshotStore:
    return SnapshotStore(folder)


def content_of(sealed: Snapshot) -> dict[str, bytes]:
    return {
        path.relative_to(sealed.root).as_posix(): path.read_bytes()
        for path in sealed.root.rglob("*")
        if path.is_file()
    }


def open_folders(root: Path) -> None:
    """Let files be added, as whoever tampers would; the files themselves are not touched."""
    for parent, _, _ in os.walk(root):
        os.chmod(parent, 0o700)


def test_a_snapshot_holds_exactly_the_verified_bytes(seals: SnapshotStore) -> None:
    assert content_of(seals.seal(FILES)) == FILES


def test_nobody_can_write_to_a_snapshot(seals: SnapshotStore) -> None:
    root = seals.seal(FILES).root
    for path in (root, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o277 == 0, "others see it, or can write"


def test_a_program_stays_one(seals: SnapshotStore) -> None:
    sealed = seals.seal({"a": b"#!/bin/sh\n", "b": b"\x7fELF", "c.py": b"x = 1\n"})
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in sealed.root.iterdir()}
    assert modes == {"a": 0o500, "b": 0o500, "c.py": 0o400}
    assert subprocess.run([sealed.root / "a"], check=False).returncode == 0


def test_the_folder_of_snapshots_is_its_owners_alone(seals: SnapshotStore, folder: Path) -> None:
    before = os.umask(0)
    try:
        seals.seal(FILES)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@with_fixtures
@given(
    files=st.dictionaries(
        st.lists(NAME, min_size=1, max_size=2).map("/".join), st.binary(max_size=20), max_size=4
    )
)
def test_any_tree_is_sealed_as_it_is(seals: SnapshotStore, files: dict[str, bytes]) -> None:
    parents = {str(parent) for name in files for parent in Path(name).parents}
    files = {name: content for name, content in files.items() if name not in parents}
    sealed = seals.seal(files)
    assert content_of(sealed) == files
    assert seals.seal(files) == sealed


@given(st.dictionaries(NAME, st.binary(max_size=4), max_size=3), st.data())
def test_different_trees_have_different_names(files: dict[str, bytes], data: st.DataObject) -> None:
    other = data.draw(st.dictionaries(NAME, st.binary(max_size=4), max_size=3))
    assert (_digest(files, {}) == _digest(other, {})) == (files == other)


def test_the_same_files_are_the_same_snapshot(seals: SnapshotStore, folder: Path) -> None:
    first = seals.seal(FILES)
    inode = first.root.stat().st_ino
    assert seals.seal(dict(reversed(FILES.items()))) == first
    assert SnapshotStore(folder).seal(FILES) == first
    assert first.root.stat().st_ino == inode
    assert [path.name for path in folder.iterdir()] == [first.digest]
    assert first.root.name == first.digest


def test_a_changed_byte_is_another_snapshot(seals: SnapshotStore) -> None:
    first, second = seals.seal(FILES), seals.seal(FILES | {"tool.py": b"print(2)\n"})
    assert first.root != second.root
    assert content_of(first) == FILES


def test_no_files_are_an_empty_folder_that_stays_empty(seals: SnapshotStore) -> None:
    empty = seals.seal({})
    assert list(empty.root.iterdir()) == []
    open_folders(empty.root)
    (empty.root / "planted.pyc").touch()
    assert list(seals.seal({}).root.iterdir()) == []


def test_nowhere_is_a_path_at_which_nothing_stands(seals: SnapshotStore) -> None:
    seals.seal(FILES)
    assert not os.path.lexists(seals.nowhere)


def test_a_package_folder_is_linked(seals: SnapshotStore, folder: Path, tmp_path: Path) -> None:
    packages = tmp_path / "node_modules"
    packages.mkdir()
    sealed = seals.seal(FILES, {"node_modules": packages})
    assert (sealed.root / "node_modules").readlink() == packages
    (packages / "new").touch()  # what stands in it is nobody's promise
    assert seals.seal(FILES, {"node_modules": packages}) == sealed
    inode = sealed.root.stat().st_ino
    assert SnapshotStore(folder).seal(FILES, {"node_modules": packages}) == sealed
    assert sealed.root.stat().st_ino == inode, "another process pulled it away"
    assert sealed.root != seals.seal(FILES).root
    assert sealed.root != seals.seal(FILES, {"node_modules": tmp_path}).root


def change_a_byte(root: Path) -> None:
    (root / "tool.py").chmod(0o600)
    (root / "tool.py").write_bytes(b"print(2)\n")


def change_a_byte_and_hide_it(root: Path) -> None:
    before = (root / "tool.py").stat()
    change_a_byte(root)
    os.utime(root / "tool.py", ns=(before.st_atime_ns, before.st_mtime_ns))


def add_a_file(root: Path) -> None:
    (root / "lib/sitecustomize.py").write_bytes(b"evil = 1\n")


def add_a_hidden_file(root: Path) -> None:
    (root / ".env").write_bytes(b"A=1\n")


def add_bytecode(root: Path) -> None:
    (root / "lib/__pycache__").mkdir()
    (root / "lib/__pycache__/a.cpython-311.pyc").write_bytes(b"evil")


def add_an_empty_folder(root: Path) -> None:
    """Python imports it as a package."""
    (root / "yaml").mkdir()


def add_a_link(root: Path) -> None:
    (root / "json").symlink_to("/tmp")


def add_a_dangling_link(root: Path) -> None:
    (root / "json.py").symlink_to("/nowhere/json.py")


def add_a_fifo(root: Path) -> None:
    os.mkfifo(root / "pipe")


def put_a_link_in_a_files_place(root: Path) -> None:
    twin = root.parent.parent / "twin.py"
    twin.write_bytes(FILES["tool.py"])
    (root / "tool.py").unlink()
    (root / "tool.py").symlink_to(twin)


def take_a_file(root: Path) -> None:
    (root / "lib/a.py").unlink()


def rename_a_file(root: Path) -> None:
    (root / "lib/a.py").rename(root / "lib/z.py")


def empty_it(root: Path) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            path.unlink()


def put_a_file_in_its_place(root: Path) -> None:
    root.rename(root.with_name("away"))
    root.write_bytes(b"")


def put_a_link_in_its_place(root: Path) -> None:
    """A link to a tree that is right today can lead to another one tomorrow."""
    root.rename(root.parent.parent / "away")
    root.symlink_to(root.parent.parent / "away")


def put_a_dangling_link_in_its_place(root: Path) -> None:
    root.rename(root.parent.parent / "away")
    root.symlink_to("/nowhere")


TAMPERINGS = [
    change_a_byte,
    change_a_byte_and_hide_it,
    add_a_file,
    add_a_hidden_file,
    add_bytecode,
    put_a_link_in_a_files_place,
    take_a_file,
    rename_a_file,
    empty_it,
    put_a_file_in_its_place,
    put_a_dangling_link_in_its_place,
]
ADDED_WITHOUT_A_FILE = [
    add_an_empty_folder,
    add_a_link,
    add_a_dangling_link,
    add_a_fifo,
    put_a_link_in_its_place,
]


@pytest.mark.parametrize(
    "tamper", TAMPERINGS + ADDED_WITHOUT_A_FILE, ids=lambda tamper: tamper.__name__
)
@pytest.mark.parametrize("seen_by", ["the process that sealed it", "another process"])
def test_a_snapshot_that_was_tampered_with_is_noticed_and_replaced(
    seals: SnapshotStore, folder: Path, tamper: Callable[[Path], None], seen_by: str
) -> None:
    sealed = seals.seal(FILES)
    open_folders(sealed.root)
    tamper(sealed.root)
    again = (seals if seen_by.startswith("the") else SnapshotStore(folder)).seal(FILES)
    assert again.root == sealed.root
    assert not again.root.is_symlink()
    assert content_of(again) == FILES
    assert not any(path.is_symlink() for path in again.root.rglob("*"))
    left = {path.name for path in folder.iterdir()} - {again.digest, "away"}
    assert left == set(), "what was replaced is gone"


@pytest.mark.parametrize(
    "tamper",
    [*TAMPERINGS, *ADDED_WITHOUT_A_FILE],
    ids=lambda tamper: tamper.__name__,
)
def test_what_remembers_a_snapshot_notices_too(
    seals: SnapshotStore, tamper: Callable[[Path], None]
) -> None:
    sealed = seals.seal(FILES)
    witness = Witness(trees=[sealed.stat])
    assert witness.holds()
    open_folders(sealed.root)
    tamper(sealed.root)
    assert not witness.holds()


def test_a_link_in_a_snapshots_place_is_removed_and_not_its_target(
    seals: SnapshotStore, tmp_path: Path
) -> None:
    sealed = seals.seal(FILES)
    put_a_link_in_its_place(sealed.root)
    mode = (tmp_path / "cache/away").stat().st_mode
    seals.seal(FILES)
    assert (tmp_path / "cache/away").stat().st_mode == mode
    assert (tmp_path / "cache/away/tool.py").exists()


def test_a_vanished_snapshot_comes_back(seals: SnapshotStore) -> None:
    sealed = seals.seal(FILES)
    sealed.root.rename(sealed.root.with_name("away"))
    assert content_of(seals.seal(FILES)) == FILES


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o720, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_refused_and_the_next_step_closes_it(
    seals: SnapshotStore, folder: Path, mode: int
) -> None:
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(AnchorError, match="Others can write to") as refused:
        seals.seal(FILES)
    assert list(folder.iterdir()) == []
    follow(None, refused.value.next_step)  # type: ignore[arg-type]
    assert content_of(seals.seal(FILES)) == FILES


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.root
def test_a_folder_of_somebody_else_is_refused(
    seals: SnapshotStore, folder: Path, tmp_path: Path
) -> None:
    folder.mkdir(parents=True, mode=0o700)
    os.chown(folder, 65534, 65534)
    with pytest.raises(AnchorError, match="Others can write to") as refused:
        seals.seal(FILES)
    assert "another cache_dir" in refused.value.next_step
    assert content_of(SnapshotStore(tmp_path / "other").seal(FILES)) == FILES


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AnchorError, match="can't be sealed") as refused:
        SnapshotStore(tmp_path / "file/sealed").seal(FILES)
    assert "another cache_dir" in refused.value.next_step


@pytest.mark.root
def test_a_full_disk_leaves_nothing_behind(small_disk: Path) -> None:
    seals = SnapshotStore(small_disk / "sealed")
    too_much = {f"f{index}": bytes([index]) * 9000 for index in range(10)}
    with pytest.raises(AnchorError, match="No space left") as refused:
        seals.seal(too_much)
    assert "has room" in refused.value.next_step
    assert list((small_disk / "sealed").iterdir()) == []
    assert content_of(seals.seal(FILES)) == FILES


class Interrupted(dict[str, bytes]):
    """Files of which the second can't be had: at that point somebody presses a key."""

    written = 0

    def items(self) -> ItemsView[str, bytes]:
        self.written += 1
        if self.written == 1:  # the digest is asked for first
            return super().items()
        return self._first_only()  # type: ignore[return-value]

    def _first_only(self) -> Iterator[tuple[str, bytes]]:
        yield next(iter(super().items()))
        raise KeyboardInterrupt


def test_an_interrupted_seal_leaves_nothing_behind(seals: SnapshotStore, folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        seals.seal(Interrupted(FILES))
    assert list(folder.iterdir()) == []


KILLED = """
import sys
from pathlib import Path
from ryecore.items.snapshots import SnapshotStore

class Halfway(dict):
    asked = 0
    def items(self):
        self.asked += 1
        for number, pair in enumerate(super().items()):
            if self.asked > 1 and number == 2:  # the digest is asked for first
                print("halfway", flush=True)
                sys.stdin.read()
            yield pair

SnapshotStore(Path(sys.argv[1])).seal(Halfway(eval(sys.argv[2])))
"""


def test_what_a_killed_process_leaves_is_never_used(folder: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder), repr(FILES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"halfway\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdin.close()
    child.stdout.close()
    [left] = folder.iterdir()
    assert left.name.startswith(".new-")
    sealed = SnapshotStore(folder).seal(FILES)
    assert content_of(sealed) == FILES
    assert sealed.root != left


def test_eight_processes_seal_at_once_and_all_run_the_same(folder: Path) -> None:
    rounds, command = 25, [sys.executable, "-m", "tests.unit.items.sealing", str(folder)]
    children = [
        subprocess.Popen(
            [*command, str(rounds)],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    answers = [child.communicate() for child in children]
    assert [error for _, error in answers] == [""] * 8
    # One wins and the others use its snapshot: nothing is pulled away from under a running tool.
    inodes = {output for output, _ in answers}
    assert len(inodes) == 1
    final = [
        SnapshotStore(folder).seal(tree_of(number)).root.stat().st_ino for number in range(rounds)
    ]
    assert inodes == {" ".join(map(str, final)) + "\n"}
    assert len(list(folder.iterdir())) == rounds


def test_what_nobody_used_for_long_or_a_killed_process_left_goes_when_something_is_sealed(
    tmp_path: Path,
) -> None:
    seals = SnapshotStore(tmp_path / "sealed")
    old, used = seals.seal({"a": b"old"}).root, seals.seal({"a": b"used"}).root
    half_done = tmp_path / "sealed/.new-1-abc"
    half_done.mkdir()
    long_ago = time.time() - 40 * 24 * 3600
    for path in (old, used, half_done):
        os.utime(path, (long_ago, long_ago))
    SnapshotStore(tmp_path / "sealed").seal({"a": b"used"})
    seals.seal({"a": b"new"})
    assert not old.exists()
    assert not half_done.exists()
    assert (used / "a").read_bytes() == b"used"


def test_what_is_no_snapshot_is_never_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "thesis").mkdir()
    mine = [tmp_path / "thesis/chapter.txt", tmp_path / "notes.txt", tmp_path / ".hidden"]
    for path in mine:
        path.write_text("years of work")
    long_ago = time.time() - 1000 * 24 * 3600
    for path in (*mine, tmp_path / "thesis"):
        os.utime(path, (long_ago, long_ago))
    SnapshotStore(tmp_path).seal({"a": b"1"})
    assert [path.read_text() for path in mine] == ["years of work"] * 3
