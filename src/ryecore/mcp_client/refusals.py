"""Interpret an HTTP server's refusal of a request. Pure.

Source:
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management.
"""

import json
from typing import Final

__all__ = ["is_session_unknown", "number_of"]

_METHOD_NOT_FOUND: Final = -32601


def number_of(message: bytes) -> object:
    """Return the id of a JSON-RPC message; None where it has none."""
    document = _document(message)
    return document.get("id") if document is not None else None


def is_session_unknown(status: int, body: bytes, number: object, *, has_session: bool) -> bool:
    """Return whether a server refused a request unread because it doesn't know its session.

    The specification says 404. Servers that were started again also say 400, and some 401. An error
    under the request's own id comes from a server that has read it, and so knows the session.

    Args:
        status: The HTTP status.
        body: The response's body.
        number: The id of the request.
        has_session: Whether the request named a session.
    """
    if not has_session:
        return False
    document = _document(body) or {}
    error = document.get("error")
    is_answer = isinstance(error, dict) and document.get("id") == number
    match status:
        case 404 | 410:
            return not (isinstance(error, dict) and error.get("code") == _METHOD_NOT_FOUND)
        case 400:
            return number is not None and not is_answer
        case 401:
            return not is_answer and b"session" in body.lower()
        case _:
            return False


def _document(text: bytes) -> dict[str, object] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
