"""Cases: scopes, quotas, limits, and requests that are meant to harm."""

import gzip
import socket
import time
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

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
from ryecore.testing.node.wire import Address, NoAnswer, NodeAnswer, exchange, problem_of, send_raw

__all__ = ["BoundCases"]

_MIB: Final = 1024 * 1024
_QUICK_S: Final = 10.0


class BoundCases(NodeCases):
    """What a caller may not do, or not so much of, and what harms no node."""

    @node_case
    def test_metrics_need_their_scope(self, node: NodeUnderTest) -> None:
        """Who runs items reads no metrics of the others."""
        plain = Peer.allowed(node)
        plain.refused(plain.get("/metrics"), "forbidden", 403)
        broad = Peer.allowed(node, scopes=("rye.node.metrics",))
        answer = broad.get("/metrics")
        equal(answer.status, 200, "the status for who may")
        equal(answer.headers["content-type"].partition(";")[0], "text/plain", "the media type")

    @node_case
    def test_runs_at_once(self, node: NodeUnderTest) -> None:
        """A caller's quota of runs is its own; a repeated request takes none of it."""
        peer, other = Peer.allowed(node, max_runs=1), Peer.allowed(node, max_runs=1)
        tree = Tree(peer.key)
        waits, quick = tree.shell("acme/waits", "sleep 600"), tree.shell("acme/quick", "echo {}")
        snapshot = peer.push(tree)
        body = peer.execute_body(snapshot, waits, "waits", wait_s=0)
        equal(peer.execute(body)["status"], "running", "the first")
        second = peer.post("/execute", peer.execute_body(snapshot, quick, "quick"))
        peer.refused(second, "too_many_runs", 429)
        after_s = second.headers.get("retry-after", "")
        check(after_s.isdecimal() and 0 < int(after_s) < 3600, f"Retry-After is {after_s!r}.")
        peer.refused(peer.get("/runs/quick"), "not_found", 404)
        equal(peer.execute(body)["status"], "running", "the first, repeated")
        equal(peer.found("/status")["running"], 1, "how many run")
        theirs = Tree(other.key)
        ref = theirs.shell("acme/quick", "echo {}")
        state = other.execute(other.execute_body(other.push(theirs), ref, "quick"))
        equal(state["status"], "completed", "another caller's run")
        peer.post("/runs/waits/cancel", {"kill": True, "grace_s": 0})
        peer.state("waits", wait_s=25)
        state = peer.execute(peer.execute_body(snapshot, quick, "quick"))
        equal(state["status"], "completed", "the second, after the first")

    @node_case
    def test_bytes_of_a_caller(self, node: NodeUnderTest) -> None:
        """What goes beyond the quota is refused, and leaves the rest as it was."""
        peer = Peer.allowed(node, max_bytes=200_000)
        small, large = b"s" * 100_000, b"l" * 150_000
        peer.store(piece(small))
        before = peer.found("/status")["stored_bytes"]
        tree = Tree(peer.key)
        tree.write("large", large)
        peer.refused(peer.post("/snapshots", tree.snapshot()), "no_room", 507)
        for body in (piece(large), piece(large[:120_000], whole=large)):
            peer.refused(peer.send("POST", "/objects", body), "no_room", 507)
        status = peer.found("/status")
        equal(status["stored_bytes"], before, "what is kept after what was refused")
        equal(status["max_stored_bytes"], 200_000, "the quota")
        check(100_000 <= before <= 200_000, f"{before} bytes are kept of 100,000.")
        equal(peer.get(f"/objects/{sha256_of(small)}").body, small, "what was there")
        equal(peer.store(piece(b"little"))["stored"], [sha256_of(b"little")], "what still fits")

    @node_case
    def test_bodies_beyond_their_bounds(self, node: NodeUnderTest) -> None:
        """Pieces, snapshots and parameters each have one, with and without a length."""
        peer = Peer.allowed(node)
        for target, size in (
            ("/objects", 8 * _MIB + 1),
            ("/snapshots", 16 * _MIB + 1),
            ("/execute", 24 * _MIB),
            ("/runs/any/cancel", 2 * _MIB),
        ):
            for body in (b" " * size, [b" " * _MIB] * (size // _MIB + 1)):
                headers = peer.request("POST", target, b"").headers()
                try:
                    answer = exchange(node.address, "POST", target, headers, body)
                except NoAnswer:
                    continue  # it hung up on what it wouldn't read
                equal(answer.status, 413, f"the status of {size} bytes at {target}")
                equal(problem_of(answer), "too_large", "the problem")
        huge = piece(b"x", whole=b"", sha256="ab" * 32, size_bytes=2**53)
        peer.refused(peer.send("POST", "/objects", huge), "too_large", 413)

    @node_case
    def test_a_stranger_is_not_read(self, node: NodeUnderTest) -> None:
        """Nobody's endless body is taken in: the node answers, or hangs up."""
        address, sent = node.address, 0
        head = f"POST {address.prefix}/objects HTTP/1.1\r\nHost: {address.authority}\r\n"
        chunk = b"100000\r\n" + b"x" * _MIB + b"\r\n"
        with address.connect(_QUICK_S) as connection, suppress(ConnectionError, TimeoutError):
            connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
            while sent < 256:
                connection.sendall(chunk)
                sent += 1
        check(sent < 256, "The node has read 256 MiB of somebody whom it doesn't know.")
        _lives(node)

    @node_case
    def test_json_that_is_meant_to_harm(self, node: NodeUnderTest) -> None:
        """Depth, numbers and texts that readers stumble over are refused, soon."""
        peer = Peer.allowed(node)
        bombs = (
            b"[" * 200_000, b'{"a":' * 200_000, b"[" * 200_000 + b"]" * 200_000,
            b'{"files":' + b"9" * 100_000 + b"}", b'{"version": 1e999, "files": []}',
            b'{"version": NaN, "files": []}', b'{"version": -Infinity, "files": []}',
            b"\xff\xfe{}", b"\xef\xbb\xbf{}", b'{"\\ud800": 1}', b"\x00", b"null", b"[]", b'""',
            b'{"files": [' + b"{}," * 100_000 + b"{}]}",
            b'{"files": [' + b"1," * 5_000_000 + b"1]}",
            b'{"a' + b"a" * 500_000 + b'": 1}',
            gzip.compress(b'{"version":1,"files":[]}'),
        )  # fmt: skip
        for target in ("/snapshots", "/execute", "/objects", "/runs/none/cancel"):
            for bomb in bombs:
                begun = time.monotonic()
                more = {"Content-Encoding": "gzip"} if bomb[:2] == b"\x1f\x8b" else {}
                answer = peer.send("POST", target, bomb, more=more)
                shown = f"{target} with {bomb[:40]!r}"
                check(answer.status in (400, 404, 413, 422), f"{shown} is {answer.status}.")
                problem_of(answer)
                check(len(answer.body) < 20_000, f"{shown} is answered with too much.")
                took_s = time.monotonic() - begun
                check(took_s < _QUICK_S, f"{shown} took {took_s:.0f} s.")
        deep: object = []
        for _ in range(400):
            deep = {"a": deep}
        body = peer.execute_body("ab" * 32, "tool:acme/any", "deep", parameters=deep)
        answer = peer.post("/execute", body)
        check(answer.status in (400, 409, 422), f"Deep parameters are {answer.status}.")

    @node_case
    def test_heads_that_are_meant_to_harm(self, node: NodeUnderTest) -> None:
        """Huge, many, doubled and malformed headers are refused, or the connection ends."""
        address = node.address
        host = f"Host: {address.authority}\r\n"
        get = f"GET {address.prefix}/status HTTP/1.1\r\n{host}"
        post = f"POST {address.prefix}/objects HTTP/1.1\r\n{host}"
        for sent in (
            f"{get}X: {'x' * 2 * _MIB}\r\n\r\n",
            f"{get}{'X: y' * 1}\r\n" + "".join(f"X-{n}: y\r\n" for n in range(50_000)) + "\r\n",
            f"GET {address.prefix}/{'x' * 2 * _MIB} HTTP/1.1\r\n{host}\r\n",
            f"{get}Signature-Input: {'rye=(' * 10_000}\r\nSignature: {'=:' * 10_000}\r\n\r\n",
            f"{post}Content-Length: -1\r\n\r\n",
            f"{post}Content-Length: 1, 2\r\n\r\nx",
            f"{post}Content-Length: {'9' * 40}\r\n\r\nx",
            f"{post}Content-Length: x\r\n\r\nx",
            f"{post}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            f"{post}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            f"{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            f"GET {address.prefix}/status HTTP/1.1\r\n\r\n",
            f"{get}{host}\r\n",
            f"{get} folded: x\r\n\r\n",
            f"GET {address.prefix}/st\x00atus HTTP/1.1\r\n{host}\r\n",
            f"GET {address.prefix}/status HTTP/9.9\r\n{host}\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 500,
        ):
            raw = send_raw(address, sent.encode("latin-1"))
            status = raw[9:10]
            check(not raw or status in b"45", f"{sent[:120]!r} is answered with {raw[:120]!r}.")
            check(b"Traceback" not in raw, f"{sent[:120]!r} shows the node's code.")
            _lives(node)

    @node_case
    def test_slow_callers_hold_up_nobody(self, node: NodeUnderTest) -> None:
        """Heads and bodies that come slowly, or not at all, leave the node to others."""
        peer, address = Peer.allowed(node), node.address
        body = piece(b"slow")
        with ExitStack() as stack:
            for number in range(40):
                connection = stack.enter_context(address.connect(_QUICK_S))
                _send_a_part(connection, address, peer, body, number)
            for _ in range(5):
                begun = time.monotonic()
                equal(peer.get("/status").status, 200, "the status beside slow callers")
                took_s = time.monotonic() - begun
                check(took_s < _QUICK_S, f"An answer took {took_s:.0f} s beside slow callers.")
        equal(peer.store(body)["stored"], [sha256_of(b"slow")], "what is stored afterwards")

    @node_case
    def test_other_methods_and_paths(self, node: NodeUnderTest) -> None:
        """What the protocol doesn't have isn't there, and no redirect leads elsewhere."""
        peer = Peer.allowed(node)
        sends: Callable[[str, str], NodeAnswer] = peer.send
        for method, target in (
            ("PUT", "/objects"), ("DELETE", "/runs/any"), ("POST", "/status"), ("PATCH", "/health"),
            ("POST", "/identity"), ("GET", "/execute"), ("GET", "/snapshots"), ("GET", "/docs"),
            ("GET", "/openapi.json"), ("GET", "/status/"), ("GET", "/identity/"),
            ("GET", "/key.pem"), ("GET", "/callers"), ("POST", "/callers"), ("GET", "/runs"),
            ("GET", "/runs/"),
            ("OPTIONS", "/status"), ("TRACE", "/status"),
        ):  # fmt: skip
            answer = sends(method, target)
            check(answer.status in (404, 405), f"{method} {target} is {answer.status}.")
        nonce = b64encode(bytes(16)).decode()
        answer = exchange(
            node.address, "GET", "/status", {"Origin": "https://evil.invalid", "Cookie": nonce}
        )
        allowed = [name for name in answer.headers if name.startswith("access-control")]
        equal(allowed, [], "what lets other sites in")
        check("set-cookie" not in answer.headers, "The node sets a cookie.")


def _send_a_part(
    connection: socket.socket, address: Address, peer: Peer, body: bytes, number: int
) -> None:
    headers = peer.request("POST", "/objects", body).headers()
    lines = [
        f"POST {address.prefix}/objects HTTP/1.1",
        f"Host: {address.authority}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    whole = "\r\n".join([*lines, "", ""]).encode() + body
    connection.sendall(whole[: (10, 200, -5)[number % 3]])


def _lives(node: NodeUnderTest) -> None:
    answer = exchange(node.address, "GET", "/health", timeout_s=_QUICK_S)
    equal(answer.status, 200, "the status of the node")
