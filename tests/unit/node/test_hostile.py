"""A caller that is allowed, and sends what no ryecore sends: the node refuses it, and runs on."""

import hashlib
import http.client
import itertools
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ryecore import SigningKey, __version__
from ryecore.convert.strict import WIRE
from ryecore.remote.protocol.models import CancelBody, Ceiling, ExecuteBody
from ryecore.remote.protocol.pieces import Piece, encode_pieces
from ryecore.remote.protocol.signatures import check_response, combine_headers, sign_request
from ryecore.remote.protocol.snapshots import Snapshot, SnapshotFile
from tests.fuzzing import anything, changed
from tests.matrix import IS_SOAK
from tests.served_node import ServedNode

KEY = SigningKey(bytes([7]) * 32)
OBJECT = b"#!/bin/sh\n"
HASH = hashlib.sha256(OBJECT).hexdigest()
FILES = Snapshot((SnapshotFile("project", ".ai/tools/acme/hi.sh", HASH, len(OBJECT), True),))
SNAPSHOT = WIRE.write(FILES)
EXECUTE = WIRE.write(
    ExecuteBody(
        "t-1", "tool:acme/hi", {"name": "x"}, "inline", FILES.id, __version__, wait_s=10,
        ceiling=Ceiling(1, 2), capabilities=("rye.execute.*",), limits={"turns": 1},
    )
)  # fmt: skip
PIECES = encode_pieces([Piece("1" * 64, 7, 0, b"content"), Piece("2" * 64, 7, 3, b"tent")])
NUMBERS = itertools.count()
FUZZ = settings(
    max_examples=1000 if IS_SOAK else 40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Caller:
    """Sends requests over real HTTP, and proves each answer."""

    def __init__(self, node: ServedNode) -> None:
        self.node = node
        self.address = urlsplit(node.url).netloc

    def send(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request that is signed rightly, and return the status and the answer."""
        path, _, query = target.partition("?")
        headers = sign_request(
            KEY,
            method=method,
            authority=self.address,
            path=path,
            query=query,
            body=body,
            node=self.node.identity.fingerprint,
            now_s=int(time.time()),
        )
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        check_response(
            self.node.identity.key.public,
            status=answer.status,
            headers=_lowered(answer.getheaders()),
            body=content if answer.getheader("Content-Digest") else None,
            request=_lowered(headers.items()),
        )
        return answer.status, content


def _lowered(pairs: object) -> dict[str, str]:
    return combine_headers((name.encode(), value.encode()) for name, value in pairs)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def caller(node: ServedNode) -> Iterator[Caller]:
    node.allow(KEY)
    found = Caller(node)
    found.send("POST", "/objects", encode_pieces([Piece(HASH, len(OBJECT), 0, OBJECT)]))
    status, content = found.send("POST", "/snapshots", FILES.to_bytes())
    assert status == 200, content
    assert json.loads(content)["missing"] == []
    yield found
    assert node.process.poll() is None
    status, content = found.send("GET", "/status")
    assert (status, json.loads(content)["running"]) == (200, 0)


def _check_refusal(status: int, content: bytes) -> None:
    assert status < 500, content
    assert b"Traceback" not in content
    if status >= 400:
        problem = json.loads(content)
        assert problem["status"] == status
        assert problem["type"] != "unauthorized"


@pytest.mark.parametrize("target", ["/snapshots", "/execute", "/runs/t-1/cancel"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"thread_id": "\\ud800"}', b'{"a": 1e999}', b'{"a": NaN}', b'"text"', b"[]", b"null",
        b"[" * 300 + b"]" * 300, b"[" * 900 + b"]" * 900, b"[" * 30_000,
        b'{"a":' * 950 + b"1" + b"}" * 950, b"9" * 5000, b"\xef\xbb\xbf{}",
        b'{"files": [[[[]]]]}', b'{"kill": "yes", "grace_s": 1e308}',
    ],
    ids=lambda body: ascii(body[:16]),
)  # fmt: skip
def test_a_document_that_none_can_hold_is_refused(caller: Caller, target: str, body: bytes) -> None:
    status, content = caller.send("POST", target, body)
    assert status in (400, 404, 422), content
    _check_refusal(status, content)


@pytest.mark.parametrize(
    "target",
    [
        "/runs/%2e%2e%2f%2e%2e", "/runs/../status", "/runs//", "/runs/%00", "/runs/%ff%fe",
        "/runs/a%0Ab", "/runs/t?wait_s=nan", "/runs/t?wait_s=inf", "/runs/t?wait_s=-1",
        "/runs/t?wait_s=1e400", "/runs/t?wait_s=%F0%9F", "/runs/" + "a" * 3000, "/runs/t/events",
        "/objects/..", "/objects/%2e%2e%2fkey.pem", "/objects/" + "A" * 64,
        "/objects/" + "0" * 63, "/objects/" + "0" * 64, "/callers", "/key.pem", "//",
    ],
)  # fmt: skip
def test_a_path_that_leads_nowhere_is_refused(caller: Caller, target: str) -> None:
    status, content = caller.send("GET", target)
    assert status in (400, 404, 422), content
    _check_refusal(status, content)


@FUZZ
@given(data=st.data())
def test_documents_that_are_nearly_right_never_fail_the_node(
    caller: Caller, data: st.DataObject
) -> None:
    target, right = data.draw(
        st.sampled_from(
            [
                ("/snapshots", SNAPSHOT),
                ("/execute", EXECUTE),
                ("/runs/t-1/cancel", WIRE.write(CancelBody())),
            ]
        )
    )
    document = data.draw(st.one_of(st.just(changed(data, right)), anything))
    if isinstance(document, dict) and document.get("thread_id") == "t-1":
        document["thread_id"] = f"t/{next(NUMBERS)}"  # a run of its own, which ends as an error
    _check_refusal(*caller.send("POST", target, json.dumps(document).encode()))


@FUZZ
@given(data=st.data())
def test_pieces_that_are_nearly_right_never_fail_the_node(
    caller: Caller, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(PIECES)))
    end = data.draw(st.integers(start, len(PIECES)))
    body = PIECES[:start] + data.draw(st.binary(max_size=20)) + PIECES[end:]
    status, content = caller.send("POST", "/objects", body)
    _check_refusal(status, content)
    if status == 200:
        assert json.loads(content)["stored"] == []  # none of it has its hash


@FUZZ
@given(raw=st.binary(max_size=300), is_begun=st.booleans())
def test_bytes_that_are_no_request_never_fail_the_node(
    caller: Caller, raw: bytes, is_begun: bool
) -> None:
    host, port = caller.address.split(":")
    head = b"POST /execute HTTP/1.1\r\nHost: x\r\nSignature-Input: " if is_begun else b""
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        with suppress(OSError):
            connection.sendall(head + raw + b"\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        with suppress(OSError):
            while chunk := connection.recv(65536):
                answer += chunk
    assert not answer.startswith(b"HTTP/1.1 5")
    assert b"Traceback" not in answer
