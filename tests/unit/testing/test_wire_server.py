import http.client
from collections.abc import Iterator

import pytest

from ryecore.testing.conformance import HttpResponse, WireServer


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as started:
        yield started


def connect(server: WireServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(server.base_url.removeprefix("http://"), timeout=10)


def ask(connection: http.client.HTTPConnection, body: bytes = b"{}") -> http.client.HTTPResponse:
    connection.request("POST", "/v1/chat?x=1", body, {"X-Key": "Some key"})
    return connection.getresponse()


def test_answers_come_in_their_order_and_the_last_one_stays(server: WireServer) -> None:
    server.answer(HttpResponse((b"one",)), HttpResponse((b"two",), 429, {"Retry-After": "3"}))
    connection = connect(server)

    seen = [(one.status, one.getheader("Retry-After"), one.read())
            for one in (ask(connection) for _ in range(3))]  # fmt: skip

    assert seen == [(200, None, b"one"), (429, "3", b"two"), (429, "3", b"two")]


def test_a_request_is_kept_as_it_came(server: WireServer) -> None:
    server.answer(HttpResponse())
    connection = connect(server)
    ask(connection, b'{"a": 1}').read()
    connection.request("POST", "/chunks", iter([b"ab", b"c" * 300]), encode_chunked=True)
    connection.getresponse().read()

    first, second = server.raw
    assert (first.method, first.path, first.body) == ("POST", "/v1/chat?x=1", b'{"a": 1}')
    assert first.headers["x-key"] == "Some key"
    assert second.body == b"ab" + b"c" * 300
    assert "Some key" not in repr(first)


def test_a_body_breaks_where_it_should(server: WireServer) -> None:
    server.answer(HttpResponse((b"abc", b"def"), stop_at=4))

    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(connect(server)).read()

    assert cut.value.partial == b"abcd"


def test_a_body_that_ends_early_looks_whole(server: WireServer) -> None:
    server.answer(HttpResponse((b"abc", b"def"), stop_at=3, then="end"))

    assert ask(connect(server)).read() == b"abc"


def test_a_connection_breaks_before_the_headers(server: WireServer) -> None:
    server.answer(HttpResponse(stop_at=-1))

    with pytest.raises(http.client.RemoteDisconnected):
        ask(connect(server))


def test_a_hang_ends_when_the_client_goes(server: WireServer) -> None:
    server.answer(HttpResponse((b"abc",), stop_at=2, then="hang"))
    connection = connect(server)
    response = ask(connection)

    assert response.read(2) == b"ab"
    assert server.connections == 1
    response.close()
    connection.close()
    assert server.wait_until(lambda: not server.connections, 5.0)


def test_what_it_cant_answer_is_a_problem_and_no_silence(server: WireServer) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        ask(connect(server))

    assert server.wait_until(lambda: bool(server.problems), 5.0)
