"""The gate: which caller a request comes from, and that it comes once.

A request is admitted by its head, before anything of its body is read.

Source: docs/design/remote.md#signatures; decisions 63 and 65.
"""

import time
from collections.abc import Callable, Mapping
from sqlite3 import Connection
from types import TracebackType
from typing import Any, Final, Self

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

__all__ = ["CLOCK_TOLERANCE_S", "Admission", "Gate", "RequestHead", "read_head"]

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
        self._open: set[tuple[str, str]] = set()  # the nonces of admissions that have not ended

    async def admit(self, head: RequestHead, *, is_looked_up: bool = True) -> "Admission":
        """Admit a request, once: as a context, whose end remembers the nonce.

        Args:
            head: The request without its body.
            is_looked_up: Whether a nonce that was used is refused already here. It is refused in
                any case where it is written, which is before the request has an effect.

        Raises:
            NodeProblem: `unauthorized`, which never says why; `clock` or `replayed` where the
                signature is right. The reason, for the node's log, is the problem's cause.
        """
        admission = self._examine(head)
        if admission.nonce in self._open:
            raise _replayed()
        query = "SELECT 1 FROM nonces WHERE caller = ? AND nonce = ?"
        if is_looked_up and await self._database.fetch(query, admission.nonce):
            raise _replayed()
        self._open.add(admission.nonce)
        return admission

    def _examine(self, head: RequestHead) -> "Admission":
        """Prove a request, and that its time is now."""
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
        return Admission(self, caller, (caller.fingerprint, signature.nonce), until_s)

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

    async def _remember(self, admission: "Admission") -> None:
        async with self._database.writing() as run:
            admission.write(run)

    def _sweep(self, run: Connection) -> None:
        """Remove the nonces of requests whose time is over, now and then."""
        now_s = int(self._clock())
        if abs(now_s - self._swept_at_s) >= _SWEEP_EACH_S:  # also where the clock was set back
            run.execute("DELETE FROM nonces WHERE expires_s < ?", (now_s,))
            self._swept_at_s = now_s


class Admission:
    """An admitted request, until it is handled.

    Its nonce is written in the transaction of the request's first effect, or remembered before
    that, at the latest at the end of the context. Meanwhile this process refuses the nonce. Where
    the process is killed before, the request has had no effect, and may come again.

    Attributes:
        caller: Who makes the request.
        nonce: The caller's fingerprint and the nonce.
    """

    def __init__(self, gate: Gate, caller: Caller, nonce: tuple[str, str], until_s: int) -> None:
        self.caller = caller
        self._gate = gate
        self.nonce = nonce
        self._until_s = until_s
        self._is_remembered = False

    def write(self, run: Connection) -> None:
        """Write the nonce as a part of a transaction; `confirm` once that is committed.

        Raises:
            NodeProblem: `replayed`: another process has admitted the request meanwhile.
        """
        self._gate._sweep(run)
        written = run.execute(
            "INSERT INTO nonces (caller, nonce, expires_s) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (*self.nonce, self._until_s),
        )
        if not written.rowcount:
            raise _replayed()

    def confirm(self) -> None:
        """Note that the transaction of the nonce is committed."""
        self._is_remembered = True

    async def remember(self) -> None:
        """Write the nonce unless it is written.

        Raises:
            NodeProblem: `replayed`, as `write` does.
        """
        if not self._is_remembered:
            await self._gate._remember(self)
            self.confirm()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.remember()
        finally:
            self._gate._open.discard(self.nonce)


def _unauthorized() -> NodeProblem:
    return refusal(
        "unauthorized",
        "This node doesn't accept the request.",
        next_step="Ask the node's operator to allow your key: rye node allow KEY",
    )


def _replayed() -> NodeProblem:
    return refusal(
        "replayed",
        "This request was made before.",
        next_step="Sign each request anew, also a repeated one.",
    )
