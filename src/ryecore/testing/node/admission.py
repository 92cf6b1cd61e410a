"""Cases: identity, signed answers, and every way in which a request can be wrong."""

import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.testing.conformance.bench import check, equal
from ryecore.testing.node.bench import (
    NodeCases,
    NodeUnderTest,
    Opener,
    Peer,
    node_case,
    restart_case,
)
from ryecore.testing.node.wire import (
    NodeAnswer,
    SignedRequest,
    check_answer,
    digest_of,
    exchange,
    problem_of,
)

__all__ = ["AdmissionCases"]

_EXPIRY_S = 5.0
_BODY = b'{"files":[],"version":1}'


class AdmissionCases(NodeCases):
    """Identity, signed answers, and who is admitted."""

    @node_case
    def test_health_needs_no_signature(self, node: NodeUnderTest) -> None:
        """Anybody may ask whether the process is alive."""
        answer = exchange(node.address, "GET", "/health")
        equal((answer.status, answer.document()), (200, {"status": "ok"}), "the health")

    @node_case
    def test_the_identity_is_signed(self, node: NodeUnderTest) -> None:
        """Keys and versions, signed by the key that the operator names, bound to no request."""
        answer = exchange(node.address, "GET", "/identity")
        equal(answer.status, 200, "the status")
        check_answer(answer, node.key, None)
        found = answer.document()
        equal(PublicKey.from_pem(found["node_key"]), node.key, "the node's key")
        equal(found["protocol"], 1, "the protocol")
        check(isinstance(found["box_key"], str), "The identity has no box key.")
        check(isinstance(found["ryecore"], str), "The identity has no version.")

    @node_case
    def test_answers_are_bound_to_their_requests(self, node: NodeUnderTest) -> None:
        """Each answer is signed over the signature of its own request, a refusal too."""
        peer = Peer.allowed(node)
        for method, target, body, status in (
            ("GET", "/status", b"", 200),
            ("POST", "/snapshots", _BODY, 200),
            ("POST", "/snapshots", b"{", 422),
            ("GET", "/runs/none", b"", 404),
            ("GET", "/objects/" + "ab" * 32, b"", 404),
            ("GET", "/nothing-is-here", b"", 404),
        ):
            answer = peer.send(method, target, body)
            equal(answer.status, status, f"the status of {method} {target}")
            other = peer.request(method, target, body).headers()
            try:
                check_answer(answer, node.key, other)
            except AssertionError:
                continue
            raise AssertionError(f"The answer to {method} {target} fits another request.")
        stranger = Peer(node)
        stranger.refused(stranger.get("/status"), "unauthorized", 401)
        answer = exchange(node.address, "GET", "/status")
        check_answer(answer, node.key, None)

    @node_case
    def test_the_one_who_is_not_admitted_learns_nothing(self, node: NodeUnderTest) -> None:
        """Each wrong request gets the same answer, byte for byte, at each path."""
        peer = Peer.allowed(node)
        expected = exchange(node.address, "GET", "/status")
        equal((expected.status, problem_of(expected)), (401, "unauthorized"), "the refusal")
        for why, answer in chain(_wrong_signatures(peer), _wrong_requests(peer)):
            _check_same(why, answer, expected)
        for method, target in (
            ("POST", "/snapshots"),
            ("POST", "/objects"),
            ("GET", "/objects/" + "ab" * 32),
            ("POST", "/execute"),
            ("GET", "/runs/any/where"),
        ):
            answer = exchange(node.address, method, target)
            _check_same(f"{method} {target} without a signature", answer, expected)
        equal(peer.get("/status").status, 200, "the status of a right request")

    @node_case
    def test_an_expired_and_a_revoked_key_are_unknown(self, node: NodeUnderTest) -> None:
        """A caller whose time is over, or who was revoked, is refused from then on."""
        until = datetime.fromtimestamp(int(time.time()) + 2, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        expiring = Peer.allowed(node, not_after=until)
        revoked = Peer.allowed(node)
        unknown = Peer(node).get("/status")
        equal(revoked.get("/status").status, 200, "the status before")
        node.revoke(revoked.key.public)
        _check_same("a revoked key", revoked.get("/status"), unknown)
        deadline = time.monotonic() + _EXPIRY_S
        while (answer := expiring.get("/status")).status == 200:
            check(time.monotonic() < deadline, "A key counts though its time is over.")
            time.sleep(0.1)
        _check_same("an expired key", answer, unknown)

    @node_case
    def test_clocks_may_differ_by_a_minute(self, node: NodeUnderTest) -> None:
        """A request counts from a minute before it was made to a minute behind its end."""
        peer, now = Peer.allowed(node), int(time.time())
        request = peer.request("GET", "/status")
        for created, expires_in_s in ((now + 50, 60), (now - 50, 1), (now - 300, 300)):
            signed = request.but(created_s=created, expires_in_s=expires_in_s)
            answer = peer.send("GET", "/status", signed=signed)
            equal(answer.status, 200, f"the status of one made {created - now:+} s from now")
        for created, expires_in_s in ((now + 90, 60), (now - 100, 10), (now - 86_400, 300)):
            signed = request.but(created_s=created, expires_in_s=expires_in_s)
            peer.refused(peer.send("GET", "/status", signed=signed), "clock", 401)

    @node_case
    def test_a_request_counts_once(self, node: NodeUnderTest) -> None:
        """One of many that are sent at once is admitted, and none later."""
        peer, other = Peer.allowed(node), Peer.allowed(node)
        nonce = b64encode(b"n" * 16).decode()
        signed = peer.request("GET", "/status").but(nonce=nonce).headers()

        def send(_: int) -> NodeAnswer:
            return exchange(node.address, "GET", "/status", signed)

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(send, range(8)))
        statuses = sorted(one.status for one in answers)
        equal(statuses, [200] + [401] * 7, "the statuses of a request that is sent eight times")
        check_answer(send(0), node.key, signed)
        peer.refused(send(0), "replayed", 401)
        again = peer.request("GET", "/status").but(nonce=nonce)
        peer.refused(peer.send("GET", "/status", signed=again), "replayed", 401)
        theirs = other.request("GET", "/status").but(nonce=nonce)
        equal(other.send("GET", "/status", signed=theirs).status, 200, "another caller's nonce")

    @restart_case
    def test_a_request_counts_once_over_a_restart(self, open_node: Opener, folder: Path) -> None:
        """A node that was ended remembers callers and nonces."""
        with open_node() as node:
            peer = Peer.allowed(node)
            address = node.address
            signed = peer.request("GET", "/status").headers()
            equal(exchange(address, "GET", "/status", signed).status, 200, "the first time")
        with open_node() as node:
            equal(node.address.authority, address.authority, "the address after a restart")
            again = exchange(node.address, "GET", "/status", signed)
            peer = Peer(node, peer.key)
            peer.refused(again, "replayed", 401)
            check_answer(again, node.key, signed)
            equal(peer.get("/status").status, 200, "the status of a fresh request")


def _check_same(why: str, answer: NodeAnswer, expected: NodeAnswer) -> None:
    """Check that a refusal tells nothing that another one doesn't."""
    equal(answer.status, expected.status, f"the status of {why}: {answer.body[:200]!r}")
    equal(answer.body, expected.body, f"the answer to {why}")
    varying = {"signature", "signature-input", "date"}
    equal(
        {name: value for name, value in answer.headers.items() if name not in varying},
        {name: value for name, value in expected.headers.items() if name not in varying},
        f"the headers of the answer to {why}",
    )


def _wrong_signatures(peer: Peer) -> Iterator[tuple[str, NodeAnswer]]:
    """Send requests with signatures that are wrong, and yield what is wrong with each answer."""
    node, right = peer.node, peer.request("GET", "/status")

    def get(signed: SignedRequest) -> NodeAnswer:
        return exchange(node.address, "GET", "/status", signed.headers())

    stranger = SigningKey.generate()
    known = peer.key.public.fingerprint
    yield "an unknown key", get(right.but(key=stranger))
    yield "another's signature under a known key", get(right.but(key=stranger, key_id=known))
    yield "an unknown key's name", get(right.but(key_id=stranger.public.fingerprint))
    yield "another node", get(right.but(node="0123456789abcdef"))
    yield "another method", get(right.but(method="POST"))
    yield "another path", get(right.but(path=f"{right.path}/"))
    yield "another query", get(right.but(query="a=b"))
    yield "another authority", get(right.but(authority="node.invalid"))
    yield "an expiry beyond 300 s", get(right.but(expires_in_s=301))
    yield "an expiry before it was made", get(right.but(expires_in_s=-1))
    yield "an expiry at once", get(right.but(expires_in_s=0))
    yield "a time beyond all calendars", get(right.but(created_s=10**15, expires_in_s=60))
    yield "a negative time", get(right.but(created_s=-5))
    yield "a label of another name", get(right.but(label="sig1"))
    for nonce in ("", "YQ==", "x" * 22 + "==", "n" * 64, b64encode(b"n" * 17).decode()):
        yield f"the nonce {nonce!r}", get(right.but(nonce=nonce or "=="))
    for at, name in enumerate(right.covered):
        fewer = [*right.covered[:at], *right.covered[at + 1 :]]
        yield f"a signature without {name}", get(right.but(covered=fewer))
    yield "another order", get(right.but(covered=right.covered[::-1]))
    for old, new in (
        (';tag="ryecore"', ""),
        (';alg="ed25519"', ""),
        ('"ed25519"', '"rsa-v1_5-sha256"'),
        (';nonce="{nonce}"', ""),
        (";expires={expires}", ""),
        (";created={created}", ""),
        ("{created}", "{created}.5"),
        (";created", "; created"),
        ('"ryecore"', '"other"'),
    ):
        changed = right.parameters.replace(old, new)
        yield f"{new!r} in the place of {old!r}", get(right.but(parameters=changed))


def _wrong_requests(peer: Peer) -> Iterator[tuple[str, NodeAnswer]]:
    """Send requests that aren't those that were signed, and yield what is wrong with each."""
    node, right = peer.node, peer.request("GET", "/status")

    def altered(why: str, *lost: str, **headers: str) -> tuple[str, NodeAnswer]:
        signed = {name: value for name, value in right.headers().items() if name not in lost}
        signed |= {name.replace("_", "-"): value for name, value in headers.items()}
        return why, exchange(node.address, "GET", "/status", signed)

    for name in right.headers():
        yield altered(f"no {name}", name)
    zeros = b64encode(bytes(64)).decode()
    yield altered("a signature of zeros", Signature=f"rye=:{zeros}:")
    yield altered("a signature that isn't one", Signature="rye=:AAAA:")
    yield altered("the header of another node", Rye_Node="0123456789abcdef")
    yield altered("the digest of another body", Content_Digest=digest_of(b"x"))
    sha512 = b64encode(bytes(64)).decode()
    yield altered("a digest of another kind", Content_Digest=f"sha-512=:{sha512}:")
    yield altered("another host", Host="node.invalid")
    headers = right.headers()
    for name in headers:
        twice = [*headers.items(), (name, headers[name])]
        yield f"{name} twice", exchange(node.address, "GET", "/status", twice)
        headers = right.headers()
    unused = headers["Signature"]
    if unused[-4] in "AQgw":  # the last character of 64 bytes has four unused bits
        loose = unused[:-4] + chr(ord(unused[-4]) + 1) + unused[-3:]
        yield altered("base64 with unused bits", Signature=loose)
    answer = exchange(node.address, "GET", "/status?a=b", right.headers())
    yield "a query that isn't signed", answer
    for body in (_BODY.replace(b"1", b"2"), _BODY[:-1], b""):
        signed = peer.request("POST", "/snapshots", _BODY)
        answer = exchange(node.address, "POST", "/snapshots", signed.headers(), body)
        yield f"the body {body!r} in the place of {_BODY!r}", answer
    moved = peer.request("POST", "/snapshots", _BODY).headers()
    yield "a request for another path", exchange(node.address, "POST", "/objects", moved, _BODY)
