import hashlib
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ryecore import SigningKey
from ryecore.node.callers import Caller
from ryecore.node.content import CallerContent, NodeContent
from ryecore.node.problems import NodeProblem
from ryecore.remote.protocol.models import Missing
from ryecore.remote.protocol.pieces import Piece
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _whole(content: bytes) -> Piece:
    return Piece(_sha256(content), len(content), 0, content)


def _snapshot(*contents: bytes) -> Snapshot:
    return Snapshot(
        tuple(
            SnapshotFile("project", f"{at}.txt", _sha256(one), len(one))
            for at, one in enumerate(contents)
        )
    )


def _read(content: CallerContent, sha256: str) -> bytes:
    with content.open(sha256) as file:
        return file.read()


def _refusal(content: CallerContent, *pieces: Piece) -> str:
    with pytest.raises(NodeProblem) as caught:
        content.store(pieces)
    return caught.value.problem.type


def test_a_snapshot_is_complete_once_its_objects_are_stored(tmp_path: Path) -> None:
    content, snapshot = CallerContent(tmp_path), _snapshot(b"one", b"two", b"")

    missing = {one.sha256 for one in content.take(snapshot)}
    before = content.snapshot(snapshot.id)
    answer = content.store([_whole(b"one"), _whole(b"two"), _whole(b"")])

    assert missing == {_sha256(b"one"), _sha256(b"two"), _sha256(b"")}
    assert before is None
    assert (set(answer.stored), answer.partial) == (missing, ())
    assert content.take(snapshot) == ()
    assert CallerContent(tmp_path).snapshot(snapshot.id) == snapshot
    assert _read(content, _sha256(b"two")) == b"two"


def test_an_object_arrives_in_pieces_and_resumes_where_it_broke_off(tmp_path: Path) -> None:
    whole = bytes(range(256)) * 40
    sha256, size = _sha256(whole), len(whole)
    first = CallerContent(tmp_path)
    first.store([Piece(sha256, size, 0, whole[:3000])])

    again = CallerContent(tmp_path)  # another process: it has no hash of the beginning yet
    assert again.take(_snapshot(whole)) == (Missing(sha256, 3000),)
    # One that was sent twice, and one that leaves a gap, are left out.
    twice = again.store([Piece(sha256, size, 0, whole[:3000]), Piece(sha256, size, 9000, b"x")])
    more = again.store([Piece(sha256, size, 3000, whole[3000:5000])])
    done = again.store([Piece(sha256, size, 5000, memoryview(whole)[5000:])])

    assert twice.partial == (Missing(sha256, 3000),)
    assert more.partial == (Missing(sha256, 5000),)
    assert done.stored == (sha256,)
    assert _read(again, sha256) == whole
    assert again.quota.used_bytes == CallerContent(tmp_path).quota.used_bytes


def test_content_that_is_not_what_its_hash_says_is_forgotten(tmp_path: Path) -> None:
    content, sha256 = CallerContent(tmp_path), _sha256(b"right")
    empty = content.quota.used_bytes

    at_once = content.store([Piece(sha256, 5, 0, b"wrong")])
    begun = content.store([Piece(sha256, 5, 0, b"wr")])
    ended = content.store([Piece(sha256, 5, 2, b"ong")])

    assert at_once.partial == ended.partial == (Missing(sha256, 0),)
    assert begun.partial == (Missing(sha256, 2),)
    assert content.size_of(sha256) is None
    assert content.quota.used_bytes == empty
    assert content.store([_whole(b"right")]).stored == (sha256,)


@pytest.mark.parametrize(
    ("sha256", "size", "offset"),
    [("../../etc/passwd", 4, 0), ("A" * 64, 4, 0), (_sha256(b"abcd"), 3, 0), ("ab" * 32, 8, 5)],
)
def test_a_piece_that_is_no_part_of_an_object_is_refused(
    tmp_path: Path, sha256: str, size: int, offset: int
) -> None:
    assert _refusal(CallerContent(tmp_path), Piece(sha256, size, offset, b"abcd")) == "invalid"


def test_a_quota_ends_what_is_taken_and_frees_again(tmp_path: Path) -> None:
    content = CallerContent(tmp_path, max_bytes=100_000)

    assert _refusal(content, _whole(b"a" * 60_000), _whole(b"b" * 60_000)) == "no_room"
    assert content.size_of(_sha256(b"a" * 60_000)) == 60_000  # what came before is stored
    with pytest.raises(NodeProblem) as caught:
        content.take(_snapshot(b"c" * 60_000))
    assert caught.value.problem.status == 507
    assert content.store([_whole(b"d" * 30_000)]).stored


def test_an_object_beyond_the_nodes_limit_is_refused_before_it_comes(tmp_path: Path) -> None:
    content = CallerContent(tmp_path, max_object_bytes=10)

    with pytest.raises(NodeProblem) as caught:
        content.take(_snapshot(b"eleven byte"))

    assert caught.value.problem.type == "too_large"
    assert _refusal(content, Piece("ab" * 32, 11, 0, b"e")) == "too_large"


def test_a_snapshot_that_lies_about_a_size_is_refused(tmp_path: Path) -> None:
    content = CallerContent(tmp_path)
    content.store([_whole(b"four")])
    lie = Snapshot((SnapshotFile("project", "a", _sha256(b"four"), 3),))

    with pytest.raises(NodeProblem) as caught:
        content.take(lie)

    assert caught.value.problem.type == "invalid"


def test_a_result_is_stored_from_bytes_or_a_file(tmp_path: Path) -> None:
    content = CallerContent(tmp_path / "data")
    (tmp_path / "result").write_bytes(b"result" * 100)

    from_file = content.put(tmp_path / "result")

    assert from_file == content.put(b"result" * 100) == content.put(tmp_path / "result")
    assert _read(content, from_file) == b"result" * 100
    assert content.quota.used_bytes == 4096
    assert list((tmp_path / "data" / "partial").iterdir()) == []


def test_what_a_dead_node_left_half_done_is_taken_again(tmp_path: Path) -> None:
    whole, sha256 = b"all of it", _sha256(b"all of it")
    first = CallerContent(tmp_path)
    first.store([Piece(sha256, len(whole), 0, whole[:4])])
    with (tmp_path / "partial" / sha256).open("ab") as file:
        file.write(whole[4:])  # it died before the object got its place
    (tmp_path / "partial" / "new.0123").write_bytes(b"x" * 1000)

    again = CallerContent(tmp_path)
    before = again.quota.used_bytes
    missing = again.take(_snapshot(whole))
    answer = again.store([_whole(whole)])

    assert before == 4096
    assert missing == (Missing(sha256, 0),)
    assert answer.stored == (sha256,)
    assert again.quota.used_bytes == CallerContent(tmp_path).quota.used_bytes


def test_a_caller_s_folder_may_be_removed_while_the_node_runs(tmp_path: Path) -> None:
    content = NodeContent(tmp_path, max_object_bytes=2**20, min_free_bytes=0)
    caller, snapshot = Caller(SigningKey.generate().public), _snapshot(b"one")
    for _ in range(2):
        assert len(content.of(caller).take(snapshot)) == 1
        content.of(caller).store([_whole(b"one")])
        assert content.of(caller).snapshot(snapshot.id) is not None
        shutil.rmtree(tmp_path / "data" / caller.fingerprint)


def test_many_objects_in_one_body_are_stored(tmp_path: Path) -> None:
    contents = [str(at).encode() for at in range(300)]
    content = CallerContent(tmp_path)

    answer = content.store([_whole(one) for one in (*contents, *contents)])

    assert len(answer.stored) == 300
    assert content.take(_snapshot(*contents)) == ()
    assert content.quota.used_bytes == CallerContent(tmp_path).quota.used_bytes
    assert list((tmp_path / "partial").iterdir()) == []


def test_many_tiny_objects_take_whole_blocks_of_the_quota(tmp_path: Path) -> None:
    content = CallerContent(tmp_path, max_bytes=40_960)

    assert _refusal(content, *(_whole(str(at).encode()) for at in range(11))) == "no_room"
    tiny = [Piece(_sha256(str(at).encode()), 2, 0, b"1") for at in range(11)]
    assert _refusal(CallerContent(tmp_path / "x", max_bytes=40_960), *tiny) == "no_room"
    assert CallerContent(tmp_path / "x").quota.used_bytes == 40_960


def test_counting_does_not_wait_for_an_upload_that_is_written(tmp_path: Path) -> None:
    content = CallerContent(tmp_path)

    with ThreadPoolExecutor(1) as pool, content.lock:  # which a push or the upkeep holds
        pool.submit(content.quota.charge, 10).result(10)

    assert content.quota.used_bytes == 10
