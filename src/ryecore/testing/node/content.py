"""Cases: snapshots and objects."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.node.bench import (
    NodeCases,
    NodeUnderTest,
    Peer,
    Tree,
    node_case,
    piece,
    sha256_of,
)
from ryecore.testing.node.wire import canonical, send_raw

__all__ = ["ContentCases"]

_EMPTY: Final = sha256_of(b"")
_MAX_FILES: Final = 100_000
_MIB: Final = 1024 * 1024


class ContentCases(NodeCases):
    """What callers push, and who may read it."""

    @node_case
    def test_a_pushed_snapshot_is_known_by_its_content(self, node: NodeUnderTest) -> None:
        """Its id is the hash of its canonical form, and nothing of it is pushed twice."""
        peer, tree = Peer.allowed(node), Tree(Peer(node).key)
        tree.write("b.txt", b"one")
        tree.write("a/ü.txt", b"two")
        tree.write("a/empty", b"")
        tree.write(".ai/same", b"one", "user")
        snapshot = tree.snapshot()
        first = peer.send("POST", "/snapshots", json.dumps(snapshot, indent=3).encode())
        equal(first.status, 200, f"the status of {first.body[:200]!r}")
        found = first.document()
        equal(found["snapshot"], sha256_of(canonical(snapshot)), "the id")
        missing = {one["sha256"]: one["have_bytes"] for one in found["missing"]}
        equal(missing, {sha256_of(one): 0 for one in (b"one", b"two", b"")}, "what is missing")
        equal(len(found["missing"]), 3, "how many objects are missing")
        stored = peer.store(piece(b"one"), piece(b"two"), piece(b""))
        equal(set(stored["stored"]), set(missing), "what is stored")
        again = peer.post("/snapshots", snapshot).document()
        equal(again, {"snapshot": found["snapshot"], "missing": []}, "a second push")
        for content in (b"one", b"two", b""):
            answer = peer.get(f"/objects/{sha256_of(content)}")
            equal((answer.status, answer.body), (200, content), "an object that is read back")

    @node_case
    def test_a_snapshot_that_is_not_plain_is_refused(self, node: NodeUnderTest) -> None:
        """Paths that escape, duplicates, another order, and everything that isn't a snapshot."""
        peer = Peer.allowed(node)
        for why, snapshot in _wrong_snapshots():
            text = json.dumps(snapshot).encode()
            answer = peer.send("POST", "/snapshots", text)
            check(
                answer.status in (400, 422),
                f"A snapshot with {why} is answered with {answer.status}: {answer.body[:200]!r}",
            )
            peer.refused(answer, "invalid", 400, 422)
        equal(peer.found("/status")["stored_bytes"], _status_of_nothing(node), "what is kept")

    @node_case
    def test_a_hundred_thousand_files(self, node: NodeUnderTest) -> None:
        """So many are taken, and one more is refused."""
        peer = Peer.allowed(node)
        peer.store(piece(b""))
        files = [_file(path=f"{number:05x}") for number in range(_MAX_FILES + 1)]
        answer = peer.post("/snapshots", {"version": 1, "files": files[:-1]})
        equal(answer.status, 200, f"the status of so many: {answer.body[:200]!r}")
        equal(answer.document()["missing"], [], "what is missing")
        many = peer.post("/snapshots", {"version": 1, "files": files})
        check(many.status in (413, 422), f"One file more is answered with {many.status}.")

    @node_case
    def test_content_that_is_not_what_its_hash_says(self, node: NodeUnderTest) -> None:
        """It is never kept, whole or in pieces, and the right one is taken afterwards."""
        peer = Peer.allowed(node)
        content = b"the right content"
        wrong = b"the wrong content"
        answer = peer.store(piece(wrong, sha256=sha256_of(content)))
        equal(answer["stored"], [], "what is stored of a lie")
        peer.store(piece(wrong[:5], whole=content))
        peer.store(piece(wrong[5:], whole=content, offset=5))
        answer = peer.get(f"/objects/{sha256_of(content)}")
        peer.refused(answer, "not_found", 404)
        answer = peer.get(f"/objects/{sha256_of(wrong)}")
        peer.refused(answer, "not_found", 404)
        equal(peer.store(piece(content))["stored"], [sha256_of(content)], "the right one")
        lie = peer.store(piece(wrong, sha256=sha256_of(content)))
        check(not lie["partial"], "A whole object is partial after a lie about it.")
        answer = peer.get(f"/objects/{sha256_of(content)}")
        equal(answer.body, content, "the object after a lie about it")

    @node_case
    def test_pieces_continue_where_the_node_is(self, node: NodeUnderTest) -> None:
        """A piece of another place is left out, and the answer says what is here."""
        peer, content = Peer.allowed(node), bytes(range(256)) * 40
        name, size = sha256_of(content), 256 * 40
        later = piece(content[5000:], whole=content, offset=5000)
        found = peer.store(later)
        equal(found, {"stored": [], "partial": [{"sha256": name, "have_bytes": 0}]}, "a late one")
        peer.store(piece(content[:3000], whole=content))
        again = peer.store(piece(content[:3000], whole=content), later)
        equal(again["partial"], [{"sha256": name, "have_bytes": 3000}], "a repeated one")
        middle = piece(content[3000:5000], whole=content, offset=3000)
        equal(peer.store(middle, later)["stored"], [name], "the rest, in order")
        answer = peer.get(f"/objects/{name}")
        equal((answer.status, sha256_of(answer.body)), (200, name), "what is read back")
        for asked, status, part in (
            ("bytes=0-0", 206, content[:1]),
            (f"bytes={size - 7}-", 206, content[-7:]),
            (f"bytes=100-{size * 2}", 206, content[100:]),
            (f"bytes={size}-", 416, None),
        ):
            answer = peer.get(f"/objects/{name}", Range=asked)
            equal(answer.status, status, f"the status of {asked}")
            if part is not None:
                equal(answer.body, part, f"the part {asked}")
                equal(answer.headers["content-range"].rpartition("/")[2], f"{size}", "the size")

    @node_case
    def test_one_object_is_pushed_many_times_at_once(self, node: NodeUnderTest) -> None:
        """It is whole in the end, and counted once."""
        peer, content = Peer.allowed(node), bytes(range(256)) * 2000
        name, size = sha256_of(content), 256 * 2000
        step = 64_000

        def push(_: int) -> None:
            have = 0
            for _round in range(100):
                part = piece(content[have : have + step], whole=content, offset=have)
                answer = peer.store(part)
                if answer["stored"]:
                    return
                have = answer["partial"][0]["have_bytes"]
            raise AssertionError("A push got nowhere beside others of the same object.")

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(push, range(8)))
        equal(peer.get(f"/objects/{name}").body, content, "the object")
        kept = peer.found("/status")["stored_bytes"] - _status_of_nothing(node)
        check(size <= kept < size + 100_000, f"{kept} bytes are counted of {size}.")

    @node_case
    def test_a_push_that_was_cut_is_resumed(self, node: NodeUnderTest) -> None:
        """A body that breaks off leaves nothing half done, and the push goes on behind it."""
        peer, tree, content = Peer.allowed(node), Tree(Peer(node).key), b"0123456789" * 5000
        tree.write("large", content)
        name = sha256_of(content)
        peer.store(piece(content[:20_000], whole=content))
        body = piece(content[20_000:], whole=content, offset=20_000)
        headers = peer.request("POST", "/objects", body).headers()
        address = node.address
        head = [
            f"POST {address.prefix}/objects HTTP/1.1",
            f"Host: {address.authority}",
            f"Content-Length: {len(body)}",
            *(f"{header}: {value}" for header, value in headers.items()),
        ]
        with address.connect() as connection:
            connection.sendall("\r\n".join([*head, "", ""]).encode() + body[:9000])
        missing = peer.post("/snapshots", tree.snapshot()).document()["missing"]
        equal(missing, [{"sha256": name, "have_bytes": 20_000}], "what is missing after the cut")
        equal(peer.store(body)["stored"], [name], "what is stored of the rest")
        equal(peer.get(f"/objects/{name}").body, content, "what is read back")

    @node_case
    def test_a_malformed_body_of_pieces_is_refused_whole(self, node: NodeUnderTest) -> None:
        """Nothing of it is stored, not even the right pieces in front."""
        peer = Peer.allowed(node)
        for number, wrong in enumerate(_wrong_pieces()):
            right = f"right {number}".encode()
            answer = peer.send("POST", "/objects", piece(right) + wrong)
            check(
                answer.status in (400, 413, 422),
                f"Pieces with {wrong[:120]!r} are answered with {answer.status}.",
            )
            kept = peer.get(f"/objects/{sha256_of(right)}")
            equal(kept.status, 404, f"whether a piece in front of {wrong[:120]!r} is stored")

    @node_case
    def test_callers_are_kept_apart(self, node: NodeUnderTest) -> None:
        """Who guesses another's hash learns nothing of it, and gets nothing by it."""
        alice, bob = Peer.allowed(node), Peer.allowed(node)
        secret, begun, nobody = b"what alice has", b"what alice has begun", b"what nobody has"
        tree = Tree(alice.key)
        tree.write("secret", secret)
        snapshot = alice.push(tree)
        alice.store(piece(begun[:5], whole=begun))
        unknown = bob.get(f"/objects/{sha256_of(nobody)}")
        bob.refused(unknown, "not_found", 404)
        for content in (secret, begun):
            answer = bob.get(f"/objects/{sha256_of(content)}")
            equal((answer.status, answer.body), (404, unknown.body), "the answer to a guess")
        theirs = Tree(bob.key)
        for name, content in (("a", secret), ("b", begun), ("c", nobody)):
            theirs.write(name, content)
        found = bob.post("/snapshots", theirs.snapshot()).document()["missing"]
        equal([one["have_bytes"] for one in found], [0, 0, 0], "what bob has of alice's")
        rest = bob.store(piece(begun[5:], whole=begun, offset=5))
        equal(rest["stored"], [], "what bob completes of alice's")
        body = bob.execute_body(snapshot, "tool:acme/any", "guess")
        bob.refused(bob.post("/execute", body), "snapshot_missing", 409)

    @node_case
    def test_names_of_objects_are_hashes(self, node: NodeUnderTest) -> None:
        """No path leads from the objects to anything else of the node."""
        peer = Peer.allowed(node)
        peer.store(piece(b"x"))
        for name in (
            "..", "../../../key.pem", "..%2F..%2Fkey.pem", "%2e%2e/%2e%2e/%2e%2e/key.pem",
            "%2Fetc%2Fpasswd", sha256_of(b"x").upper(), sha256_of(b"x")[:63], "*", "%00",
            f"{sha256_of(b'x')}/", f"{sha256_of(b'x')}%0A", "0" * 65,
        ):  # fmt: skip
            answer = peer.get(f"/objects/{name}")
            check(answer.status in (400, 404, 422), f"/objects/{name} is {answer.status}.")
            check(b"PRIVATE" not in answer.body, f"/objects/{name} shows a key.")
        for name in ("/../key.pem", "//etc/passwd", "/objects/../../key.pem"):
            sent = f"GET {node.address.prefix}{name} HTTP/1.1\r\nHost: {node.address.authority}\r\n"
            raw = send_raw(node.address, f"{sent}Connection: close\r\n\r\n".encode())
            status = raw.partition(b" ")[2][:3]
            check(status[:1] == b"4" or not raw, f"GET {name} is answered with {raw[:100]!r}.")
            check(b"PRIVATE" not in raw, f"GET {name} shows a key.")

    @node_case
    def test_sizes_that_lie(self, node: NodeUnderTest) -> None:
        """A snapshot can't claim another length of what is here, and an object has one length."""
        peer = Peer.allowed(node)
        peer.store(piece(b"five5"))
        lie = _file(path="a", sha256=sha256_of(b"five5"), size_bytes=4)
        answer = peer.post("/snapshots", {"version": 1, "files": [lie]})
        peer.refused(answer, "invalid", 400, 422)
        both = [_file(path="a", size_bytes=0), _file(path="b", size_bytes=1)]
        answer = peer.post("/snapshots", {"version": 1, "files": both})
        if answer.status == 200:  # neither is here: it can never be complete
            snapshot = answer.document()["snapshot"]
            peer.store(piece(b""))
            body = peer.execute_body(snapshot, "tool:acme/any", "lie")
            answer = peer.post("/execute", body)
            equal(answer.status // 100, 4, "the status of a run in a snapshot that lies")
        content = b"abcdef"
        peer.store(piece(content[:3], whole=content, size_bytes=3))
        peer.store(piece(content[:3], whole=content, size_bytes=6))
        peer.store(piece(content[3:], whole=content, offset=3, size_bytes=6))
        answer = peer.get(f"/objects/{sha256_of(content)}")
        check(
            answer.status == 404 or answer.body == content,
            "An object of two lengths isn't what its hash says.",
        )


def _file(**changes: Any) -> dict[str, Any]:
    plain = {
        "space": "project",
        "path": "a.txt",
        "sha256": _EMPTY,
        "size_bytes": 0,
        "executable": False,
    }
    return plain | changes


def _wrong_snapshots() -> Iterator[tuple[str, object]]:
    """Yield what isn't a snapshot, each with what is wrong with it."""
    for path in (
        "", ".", "..", "/", "/etc/passwd", "../a", "a/../b", "a/..", "./a", "a/./b", "a//b", "a/",
        "a\\..\\b", "C:\\a", "a\0b", "a\nb", "a\u202eb", "\ud800", "a/" * 600 + "a", "x" * 1025,
        "é" * 513,
    ):  # fmt: skip
        yield f"the path {path[:40]!r}", {"version": 1, "files": [_file(path=path)]}
    for changes in (
        {"space": "system"}, {"space": ".."}, {"space": None}, {"sha256": "x" * 64},
        {"sha256": _EMPTY.upper()}, {"sha256": _EMPTY[:63]}, {"sha256": f"{_EMPTY}\n"},
        {"sha256": "../" + _EMPTY[3:]}, {"size_bytes": -1}, {"size_bytes": 2**53 + 1},
        {"size_bytes": 10**400}, {"size_bytes": "0"}, {"size_bytes": 0.5}, {"size_bytes": None},
        {"path": None}, {"path": 1}, {"executable": "yes"}, {"more": 1},
    ):  # fmt: skip
        yield f"{changes!r:.60}", {"version": 1, "files": [_file(**changes)]}
    short = {name: value for name, value in _file().items() if name != "sha256"}
    yield "a file without a hash", {"version": 1, "files": [short]}
    for why, paths in (
        ("a path twice", ["a", "a"]),
        ("paths out of order", ["b", "a"]),
        ("a file that is a folder", ["a", "a/b"]),
        ("a file that is a deeper folder", ["a/b", "a/b-c", "a/b/c/d"]),
    ):
        yield why, {"version": 1, "files": [_file(path=one) for one in paths]}
    spaces = [_file(space=one) for one in ("user", "project")]
    yield "spaces out of order", {"version": 1, "files": spaces}
    for other in ({"version": 2, "files": []}, {"version": 1}, {"version": 1, "files": None}):
        yield f"{other}", other
    yield "an unknown member", {"version": 1, "files": [], "more": 1}
    yield "a list", []
    yield "a text", "snapshot"
    yield "nothing", None


def _wrong_pieces() -> Iterator[bytes]:
    """Yield bytes that no body of pieces has."""
    good = piece(b"good")
    yield from (b"x", b"\n", b"{}\n", good[:-1], good + b"\n", b" " + good)
    yield good.replace(b'"offset":0', b'"offset": 0')
    yield good.replace(b'"offset":0', b'"offset":-1')
    yield good.replace(b'"offset":0', b'"offset":1')
    yield good.replace(b'"offset":0', b'"offset":00')
    yield good.replace(b'"offset":0', b'"offset":0.0')
    yield good.replace(b'"offset":0', b'"offset":' + b"9" * 17)
    yield good.replace(b'"length":4', b'"length":5')
    yield good.replace(b'"length":4', b'"length":0')
    yield good.replace(b'"length":4', b'"length":4,"more":1')
    yield good.replace(b'"size_bytes":4', b'"size_bytes":3')
    yield good.replace(b'"size_bytes":4', b'"size_bytes":' + b"9" * 16)
    yield good.replace(sha256_of(b"good").encode(), sha256_of(b"good").upper().encode())
    yield good.replace(sha256_of(b"good").encode(), b"../" + b"a" * 61)
    yield good.replace(b"\n", b"\r\n", 1)
    yield b'{"sha256":"' + b"a" * _MIB


def _status_of_nothing(node: NodeUnderTest) -> int:
    """Return the bytes that are kept for a caller who has pushed nothing."""
    size: int = Peer.allowed(node).found("/status")["stored_bytes"]
    return size
