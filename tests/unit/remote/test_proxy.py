"""The tests' own proxy: each fault is what it says, over real HTTP."""

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.proxy import Fault, Hold, Proxy


class Server(ThreadingHTTPServer):
    """A server that remembers what it got, and answers with it."""

    daemon_threads = True
    seen: list[tuple[str, bytes]]


class Handler(BaseHTTPRequestHandler):
    """Answers with the request's path and body."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            return
        assert isinstance(self.server, Server)
        self.server.seen.append((self.path, body))
        answer = self.path.encode() + b" " + body
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as found:
        found.seen = []
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.server_port) as found:
        yield found


def post(proxy: Proxy, path: str = "/a", body: object = b"body") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    try:
        connection.request("POST", path, body)  # type: ignore[arg-type]
        return connection.getresponse().read()
    finally:
        connection.close()


LOST = (http.client.HTTPException, OSError)


def test_what_no_rule_names_passes(proxy: Proxy, server: Server) -> None:
    proxy.fail("POST /b", Fault(lose_request=True))
    assert post(proxy, "/a?x=%20") == b"/a?x=%20 body"
    assert post(proxy, body=iter([b"in ", b"chunks"])) == b"/a in chunks"
    assert [(one.target, one.body) for one in proxy.requests] == [
        ("/a?x=%20", b"body"),
        ("/a", b"in chunks"),
    ]
    assert (proxy.count("POST /a"), proxy.count("GET")) == (2, 0)


@pytest.mark.parametrize(
    ("fault", "arrived"),
    [
        (Fault(lose_request=True), 0),
        (Fault(cut_request_bytes=2), 0),
        (Fault(lose_answer=True), 1),
        (Fault(cut_answer_bytes=10), 1),
        (Fault(cut_answer_bytes=0), 1),
    ],
)
def test_a_fault_ends_the_connection_once(
    proxy: Proxy, server: Server, fault: Fault, arrived: int
) -> None:
    proxy.fail("POST /a", fault)
    with pytest.raises(LOST):
        post(proxy)
    assert len(server.seen) == arrived
    assert post(proxy) == b"/a body"


def test_a_request_arrives_twice_or_changed_or_is_answered_by_another(
    proxy: Proxy, server: Server
) -> None:
    proxy.fail("POST", Fault(repeat=True))
    assert post(proxy) == b"/a body"
    assert server.seen == [("/a", b"body")] * 2
    proxy.fail("POST", Fault(change_request=lambda head, body: (head, body.upper())))
    assert post(proxy) == b"/a BODY"
    proxy.fail("POST", Fault(change_answer=lambda answer: answer.replace(b"body", b"else")))
    assert post(proxy) == b"/a else"
    proxy.fail("POST", Fault(answer=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"))
    assert post(proxy) == b"hi"


def test_requests_and_answers_come_in_another_order(proxy: Proxy, server: Server) -> None:
    hold, hold_answer = Hold(), Hold()
    proxy.fail("POST /late", Fault(hold_request=hold))
    proxy.fail("POST /slow", Fault(hold_answer=hold_answer))
    got: list[bytes] = []
    threads = [
        threading.Thread(target=lambda path=path: got.append(post(proxy, path)))
        for path in ("/late", "/slow")
    ]
    for one in threads:
        one.start()
    hold.reached()
    hold_answer.reached()
    assert post(proxy, "/soon") == b"/soon body"
    assert [path for path, _ in server.seen] == ["/slow", "/soon"]
    hold.release()
    threads[0].join()
    hold_answer.release()
    threads[1].join()
    assert got == [b"/late body", b"/slow body"]


def test_while_the_network_is_down_nothing_arrives(proxy: Proxy, server: Server) -> None:
    with proxy.down(), pytest.raises(LOST):
        post(proxy)
    assert not server.seen
    assert post(proxy) == b"/a body"


def test_connections_are_cut_while_they_wait(proxy: Proxy) -> None:
    hold = Hold()
    proxy.fail("POST", Fault(hold_answer=hold))
    failed: list[Exception] = []

    def call() -> None:
        try:
            post(proxy)
        except LOST as problem:
            failed.append(problem)

    thread = threading.Thread(target=call)
    thread.start()
    hold.reached()
    proxy.cut()
    thread.join()
    assert len(failed) == 1
