"""A node that lies: it stands before a real one, has its key, and changes what it answers."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from ryecore import SigningKey
from ryecore.remote.protocol.signatures import sign_response
from ryecore.state.records import sign_record
from tests.served_node import ServedNode

__all__ = ["Answer", "LyingNode", "lying_node", "sign_again"]

Change = Callable[[Any], Any]
"""Changes the document that the node answers."""

Write = Callable[["Answer"], None]
"""Writes an answer of its own."""


class Answer:
    """An answer that is to be written.

    Attributes:
        key: The node's key.
        body: The request's body.
        request: The request's headers, by their names in lower case.
    """

    def __init__(self, key: SigningKey, body: bytes, handler: "_Handler") -> None:
        self.key = key
        self.body = body
        self.request = {name.lower(): value for name, value in handler.headers.items()}
        self._handler = handler

    def send(
        self,
        body: bytes,
        status: int = 200,
        *,
        key: SigningKey | None = None,
        stream: bool = False,
        **headers: str,
    ) -> None:
        """Send a signed body."""
        signed = sign_response(
            key or self.key,
            status=status,
            body=None if stream else body,
            request=self.request,
            now_s=int(time.time()),
        )
        length = {} if stream else {"Content-Length": str(len(body))}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.begin(status, {**signed, **length, **named})
        self.write(body)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of an answer."""
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        self._handler.send_header("Connection", "close")
        self._handler.end_headers()

    def write(self, content: bytes) -> None:
        """Send a part of a body, or anything else."""
        self._handler.wfile.write(content)
        self._handler.wfile.flush()


class LyingNode:
    """A node that lies where it is asked to, and else answers as the real one.

    Attributes:
        served: The real node.
        requests: The first lines of the requests, such as `POST /execute`.
    """

    def __init__(self, served: ServedNode, port: int) -> None:
        self.served = served
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[str] = []
        self.changes: dict[str, Change] = {}
        self.writes: dict[str, Write] = {}

    def change(self, pattern: str, change: Change) -> None:
        """Change the documents that are answered to requests such as `GET /runs/*`."""
        self.changes[pattern] = change

    def answer(self, pattern: str, write: Write) -> None:
        """Write the answers to requests such as `GET /runs/*/events`."""
        self.writes[pattern] = write


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    node: LyingNode

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        line = f"{self.command} {self.path}"
        node = self.node
        node.requests.append(line)
        answer = Answer(node.served.identity.key, body, self)
        with suppress(OSError):
            for pattern, write in node.writes.items():
                if fnmatchcase(line, pattern):
                    self.close_connection = True
                    write(answer)
                    return
            self._relay(line, body, answer)

    def _relay(self, line: str, body: bytes, answer: Answer) -> None:
        real = http.client.HTTPConnection(urlsplit(self.node.served.url).netloc, timeout=60)
        try:
            real.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                real.putheader(name, value)
            real.endheaders(body or None)
            found = real.getresponse()
            content = found.read()
        finally:
            real.close()
        changes = self.node.changes.items()
        change = next((one for pattern, one in changes if fnmatchcase(line, pattern)), None)
        if change is not None and found.status < 300:
            answer.send(json.dumps(change(json.loads(content))).encode(), found.status)
            return
        skipped = {"transfer-encoding", "content-length", "connection", "date"}
        headers = {name: value for name, value in found.getheaders() if name not in skipped}
        answer.begin(found.status, {**headers, "Content-Length": str(len(content))})
        answer.write(content)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def lying_node(served: ServedNode) -> Iterator[LyingNode]:
    """A node before a real one that answers as it does, until it is asked to lie."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    handler.node = node = LyingNode(served, server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield node
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def sign_again(report: Mapping[str, Any], key: SigningKey, **changes: Any) -> Mapping[str, Any]:
    """Return a report with other members, which a key signs."""
    plain = {name: value for name, value in report.items() if name != "_signature"}
    return sign_record("node-report", plain | changes, key)
