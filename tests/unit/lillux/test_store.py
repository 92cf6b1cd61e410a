import hashlib
import os
import subprocess
import sys
import threading
from errno import EBADMSG, ENOENT, ENOSPC
from pathlib import Path

import pytest

from ryecore.errors import StoreError
from ryecore.lillux import ContentStore


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "store")


def blob_of(store: ContentStore, digest: str) -> Path:
    return Path(store.root) / digest[:2] / digest


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("durable", [False, True])
def test_content_comes_back_by_its_name(tmp_path: Path, durable: bool) -> None:
    store = ContentStore(tmp_path / "deep/store", durable=durable)
    for content in (b"", b"abc", os.urandom(1_000_000)):
        digest = store.put(content)
        assert digest == sha256(content) == store.put(content)
        assert store.get(digest) == content
        assert store.has(digest)
        assert store.verify(digest)
        assert blob_of(store, digest).read_bytes() == content


def test_what_is_missing_is_an_error(store: ContentStore) -> None:
    digest = sha256(b"never stored")
    assert not store.has(digest)
    assert not store.verify(digest)
    with pytest.raises(StoreError) as failed:
        store.get(digest)
    assert failed.value.facts["errno"] == ENOENT


def test_a_corrupt_blob_is_never_given_back(store: ContentStore) -> None:
    digest = store.put(b"content")
    blob = blob_of(store, digest)
    blob.unlink()
    blob.write_bytes(b"c0ntent")
    assert store.has(digest)
    assert not store.verify(digest)
    with pytest.raises(StoreError) as failed:
        store.get(digest)
    assert failed.value.facts["errno"] == EBADMSG
    assert not store.has(digest)
    assert [path.read_bytes() for path in (Path(store.root) / "corrupt").iterdir()] == [b"c0ntent"]
    store.put(b"content")
    assert store.get(digest) == b"content"


def test_a_corrupt_blob_is_replaced_by_the_next_put(store: ContentStore) -> None:
    digest = store.put(b"content")
    blob = blob_of(store, digest)
    blob.unlink()
    blob.write_bytes(b"c0ntent")
    assert store.put(b"content") == digest
    assert store.get(digest) == b"content"


@pytest.mark.parametrize("name", ["", "abc", "../" * 10 + "etc/passwd", "A" * 64, "g" * 64])
def test_what_cannot_be_a_name_is_refused(store: ContentStore, name: str) -> None:
    for use in (store.get, store.has, store.verify):
        with pytest.raises(StoreError, match="64 lower-case hex"):
            use(name)


def test_many_threads_and_processes_write_the_same(tmp_path: Path) -> None:
    code = """
import sys
from ryecore.lillux.digests import ContentStore
store = ContentStore(sys.argv[1], durable=False)
for number in range(50):
    store.put(bytes([number]) * 20_000)
"""
    root = tmp_path / "store"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(root)]) for _ in range(3)]
    store = ContentStore(root, durable=False)

    def write() -> None:
        for number in range(50):
            store.put(bytes([number]) * 20_000)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0, 0]
    contents = [bytes([number]) * 20_000 for number in range(50)]
    assert files(root) == sorted(map(sha256, contents))
    assert all(store.get(sha256(content)) == content for content in contents)


@pytest.mark.root
def test_a_full_disk_leaves_nothing(small_disk: Path) -> None:
    store = ContentStore(small_disk)
    small = store.put(b"fits")
    large = os.urandom(200_000)
    with pytest.raises(StoreError) as failed:
        store.put(large)
    assert failed.value.facts["errno"] == ENOSPC
    assert files(small_disk) == [small]
    assert not store.has(sha256(large))
    assert store.get(small) == b"fits"


def test_a_root_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="make the folder"):
        ContentStore(tmp_path / "file")
