"""A node that lies: its answers are changed on their way, and signed again by its own key."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ryecore import SigningKey
from ryecore.remote.protocol.signatures import combine_headers, sign_response
from ryecore.state.records import sign_record
from tests.proxy import Fault, Request

__all__ = ["lie", "sign_again"]


def lie(key: SigningKey, tell: Callable[[Any], object], *, status: int | None = None) -> Fault:
    """Return a fault that changes an answer's document, and signs the answer as the node does.

    Args:
        key: The node's key.
        tell: Returns the other document, or bytes in its place.
        status: Another status of the answer.
    """

    def change(asked: Request, answer: bytes) -> bytes:
        head, _, body = answer.partition(b"\r\n\r\n")
        told = tell(json.loads(body))
        other = told if isinstance(told, bytes) else json.dumps(told).encode()
        code = status or int(head.split(b" ", 2)[1])
        lines = asked.head.split(b"\r\n")[1:]
        pairs = [line.split(b": ", 1) for line in lines if b": " in line]
        request = combine_headers((name, value) for name, value in pairs)
        signed = sign_response(
            key, status=code, body=other, request=request, now_s=int(time.time())
        )
        named = [f"{name}: {value}" for name, value in signed.items()]
        named += [f"Content-Length: {len(other)}", "Connection: close"]
        return "\r\n".join([f"HTTP/1.1 {code} Lie", *named, "", ""]).encode() + other

    return Fault(answer_to=change)


def sign_again(key: SigningKey, state: Mapping[str, Any], **lies: object) -> dict[str, Any]:
    """Return the state of a run with a report that says something else, signed by a key."""
    plain = {name: value for name, value in state["report"].items() if name != "_signature"}
    return {**state, "report": sign_record("node-report", {**plain, **lies}, key)}
