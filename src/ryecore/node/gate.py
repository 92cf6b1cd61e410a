"""The gate: which caller a request comes from, and that it comes once.

A request is admitted by its head alone, before anything of its body is read.

Source: docs/design/remote.md#signatures; decisions 63 and 65.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ryecore.frozen import frozen
from ryecore.node.callers import Caller, Callers
from ryecore.node.problems import NodeProblem, refusal
from ryecore.remote.protocol.signatures import (
    RequestSignature,
    SignatureInvalid,
    check_digest,
    combine_headers,
    read_request,
)
from ryecore.state.database import Database

__all__ = ["CLOCK_TOLERANCE_S", "Gate", "RequestHead", "read_head"]

CLOCK_TOLERANCE_S: Final = 60
"""By how many seconds a caller's clock may differ from the node's."""

_SWEEP_EACH_S: Final = 30


@frozen
class RequestHead:
    """A request without its body.

    Attributes:
        method: The method.
        authority: What the header `Host` says.
        path: The path as it came, percent-encoded.
        query: The query as it came, without `?`.
        headers: The headers by their names in lower case.
    """

    method: str
    authority: str
    path: str
    query: str
    headers: Mapping[str, str]


def read_head(scope: Mapping[str, Any]) -> RequestHead:
    """Read the head of a request from the scope of an ASGI application, also a mounted one."""
    headers = combine_headers(scope["headers"])
    path: bytes | None = scope.get("raw_path")
    return RequestHead(
        scope["method"],
        headers.get("host", ""),
        scope["path"] if path is None else path.decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        headers,
    )


class Gate:
    """Who calls a node: signature, clock, nonce and the caller's file, read for each request.

    Args:
        database: `node.db`; other processes may use the same one.
        callers: The callers that the operator has allowed.
        node: The fingerprint of the node's key.
        clock: Returns the time, in seconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        callers: Callers,
        node: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._callers = callers
        self._node = node
        self._clock = clock
        self._swept_at_s = 0

    async def admit(self, head: RequestHead) -> Caller:
        """Return who makes a request. The same request is admitted once.

        Raises:
            NodeProblem: `unauthorized`, which never says why; `clock` or `replayed` where the
                signature is right. The reason, for the node's log, is the problem's cause.
        """
        try:
            signature, caller = self._prove(head)
        except SignatureInvalid as reason:
            raise _unauthorized() from reason
        now_s = int(self._clock())
        until_s = signature.expires_s + CLOCK_TOLERANCE_S
        if not signature.created_s - CLOCK_TOLERANCE_S <= now_s <= until_s:
            raise refusal(
                "clock",
                "The request was made at another time than this node's clock shows.",
                detail=f"It was signed {signature.created_s - now_s:+,} s from the node's time.",
                next_step="Set the clock of your machine, or tell the node's operator.",
            )
        if not await self._take_nonce(caller.fingerprint, signature.nonce, until_s, now_s):
            raise refusal(
                "replayed",
                "This request was made before.",
                next_step="Sign each request anew, also a repeated one.",
            )
        return caller

    def check_body(self, head: RequestHead, body: bytes) -> None:
        """Prove that a body is the one that the request's signature covers.

        Raises:
            NodeProblem: `unauthorized`: it is another one.
        """
        try:
            check_digest(head.headers, body)
        except SignatureInvalid as reason:
            raise _unauthorized() from reason

    def _prove(self, head: RequestHead) -> tuple[RequestSignature, Caller]:
        signature = read_request(
            method=head.method,
            authority=head.authority,
            path=head.path,
            query=head.query,
            headers=head.headers,
        )
        caller = self._callers.find(signature.key_id)
        if caller is None:
            raise SignatureInvalid(f"no caller has the key {signature.key_id}")
        signature.check(caller.key)
        if caller.is_expired:
            raise SignatureInvalid(f"the time of {signature.key_id} is over")
        if signature.node != self._node:
            raise SignatureInvalid("the request is for another node")
        return signature, caller

    async def _take_nonce(self, caller: str, nonce: str, until_s: int, now_s: int) -> bool:
        """Remember a nonce until a time; return whether the caller hadn't used it yet."""
        is_due = abs(now_s - self._swept_at_s) >= _SWEEP_EACH_S  # also where the clock was set back
        async with self._database.writing() as run:
            if is_due:
                run.execute("DELETE FROM nonces WHERE expires_s < ?", (now_s,))
            taken = run.execute(
                "INSERT INTO nonces (caller, nonce, expires_s) VALUES (?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (caller, nonce, until_s),
            )
        if is_due:
            self._swept_at_s = now_s
        return taken.rowcount == 1


def _unauthorized() -> NodeProblem:
    return refusal(
        "unauthorized",
        "This node doesn't accept the request.",
        next_step="Ask the node's operator to allow your key: rye node allow KEY",
    )
