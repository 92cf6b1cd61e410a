"""What an HTTP server's refusal means."""

import json

import pytest

from ryecore.mcp_client.http import is_session_unknown, number_of


def error(code: int, number: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "is_unknown"),
    [
        (404, b"", True),
        (404, error(-32001, 3), True),
        (404, error(-32601, 3), False),
        (410, b"gone", True),
        (400, error(-32000, None), True),
        (400, error(-32602, 3), False),
        (400, b"[" * 100_000, True),
        (401, b"who are you?", False),
        (401, b"Session not found", True),
        (403, b"session", False),
        (500, b"session not found", False),
    ],
)
def test_what_tells_that_a_session_is_unknown(status: int, body: bytes, is_unknown: bool):
    assert is_session_unknown(status, body, 3, has_session=True) is is_unknown
    assert not is_session_unknown(status, body, 3, has_session=False)


def test_a_notification_says_less_than_a_request():
    assert number_of(b'{"method": "notifications/cancelled"}') is None
    assert number_of(b'{"id": 3}') == 3
    assert number_of(b"nonsense") is None
    assert not is_session_unknown(400, b"", None, has_session=True)
    assert is_session_unknown(404, b"", None, has_session=True)
