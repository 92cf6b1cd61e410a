"""The client of one node: signed requests, proved answers, and retries within a deadline.

Source: docs/design/remote.md#requests; decisions 63, 64 and 71.
"""

import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar, cast
from urllib.parse import quote

import anyio
import httpx2

from ryecore.bounded_http import BodyBounds, bound_body, out_of_bounds
from ryecore.convert.json_text import make_encoder
from ryecore.convert.strict import WIRE, ConversionError
from ryecore.errors import RemoteError, RemoteUnavailable, RemoteUntrusted, SigningError
from ryecore.lillux.keys import PublicKey, SigningKey
from ryecore.llm.fallback_rules import backoff_s
from ryecore.remote.config import Remote, RemoteEntry
from ryecore.remote.http import (
    certificate_problem,
    connect_timeout,
    head_lines,
    make_http,
    make_request,
    parse_url,
    quoted,
    reason_of,
)
from ryecore.remote.ports import Delivery
from ryecore.remote.protocol.models import (
    MAX_REPORT_BYTES,
    MAX_SNAPSHOT_BYTES,
    CancelBody,
    Identity,
    NodeStatus,
    Problem,
    RunState,
    SnapshotAnswer,
    StoredAnswer,
    decode_answer,
    read_answer,
)
from ryecore.remote.protocol.signatures import (
    SignatureInvalid,
    check_response,
    combine_headers,
    sign_request,
)
from ryecore.remote.protocol.snapshots import Snapshot
from ryecore.remote.transport import Answer, NodeTransport

__all__ = ["NodeClient", "fetch_identity"]

T = TypeVar("T")

_encode: Final = make_encoder()
_BASE_WAIT_S: Final = 0.1
_MAX_WAIT_S: Final = 5.0
_MAX_ASKED_WAIT_S: Final = 60.0
_SLOWEST_BYTES_PER_S: Final = 64 * 1024
_KEY_KEPT_S: Final = 10.0
_SMALL_BYTES: Final = 1024 * 1024

_FROM_A_PROXY: Final = frozenset({408, 429, 500, 502, 503, 504})
"""The statuses with which what stands before a node answers in its place, without a signature."""

_WAITING_HELPS: Final = frozenset({"too_many_runs", "busy", "replayed"})


class _Again(Exception):
    """An attempt that failed, and may succeed if it is made again.

    Attributes:
        error: What is raised where there is no time for that.
        after_s: How long the node asks to wait, in seconds.
    """

    def __init__(self, error: RemoteError, after_s: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.after_s = after_s


class NodeClient:
    """The requests to one node.

    Args:
        remote: The node, with the key that must sign its answers.
        load_key: Returns the key that signs requests; asked again every ten seconds.
    """

    def __init__(self, remote: Remote, load_key: Callable[[], SigningKey]) -> None:
        self.remote = remote
        self._load_key = load_key
        self._key: SigningKey | None = None
        self._key_until_s = 0.0
        self._http = make_http(remote.url)
        self._timeouts = connect_timeout(remote.settings.timeout_s)

    async def identity(self) -> tuple[Identity, PublicKey]:
        """Return the node's identity, and the key in it that signed it, whichever that is."""
        try:
            with anyio.fail_after(self.remote.settings.timeout_s):
                url = f"{self.remote.url}/identity"
                answer = await self._send("GET", url, b"", {}, _SMALL_BYTES)
        except TimeoutError:
            raise self._unavailable("it didn't answer in time") from None
        except _Again as failed:
            raise failed.error from None
        if answer.status != 200:
            raise self._untrusted(
                f"answered with the status {answer.status}: it isn't a node of ryecore's"
            )
        identity = self._read(answer.content, Identity)
        try:
            key = PublicKey.from_pem(identity.node_key)
            _prove(answer.status, answer.headers, key, answer.content, None)
        except (SigningError, SignatureInvalid) as problem:
            raise self._untrusted(f"has an identity that it didn't sign: {problem}") from None
        return identity, key

    async def status(self) -> NodeStatus:
        """Return the node's load and the use of this caller's quotas."""
        return await self.request("GET", "/status", NodeStatus)

    async def offer(self, snapshot: Snapshot, *, within_s: float | None = None) -> SnapshotAnswer:
        """Name the files of a snapshot, and return which objects the node lacks."""
        return await self.request(
            "POST", "/snapshots", SnapshotAnswer, snapshot.to_bytes(),
            within_s=within_s, max_bytes=MAX_SNAPSHOT_BYTES,
        )  # fmt: skip

    async def metrics(self) -> str:
        """Return the node's metrics, for a key with the scope `rye.node.metrics`."""
        return await self.request("GET", "/metrics", str)

    async def store(self, body: bytes, *, within_s: float | None = None) -> StoredAnswer:
        """Store a body of pieces, and return which objects are complete."""
        return await self.request(
            "POST", "/objects", StoredAnswer, body, within_s=within_s,
            content_type="application/octet-stream", max_bytes=MAX_SNAPSHOT_BYTES,
        )  # fmt: skip

    async def execute(
        self,
        body: bytes,
        *,
        wait_s: float,
        within_s: float | None = None,
        delivery: Delivery | None = None,
    ) -> RunState:
        """Start a run, or find the one that the same request started before.

        Args:
            body: The request, an `ExecuteBody` as JSON.
            wait_s: How long the node waits for the end, as the body says, in seconds.
            within_s: How long to try, in seconds.
            delivery: Where it is noted whether the node may have the request.
        """
        return await self.request(
            "POST", "/execute", RunState, body, wait_s=wait_s, within_s=within_s,
            max_bytes=2 * MAX_REPORT_BYTES, delivery=delivery,
        )  # fmt: skip

    async def state(
        self, thread_id: str, *, wait_s: float = 0.0, within_s: float | None = None
    ) -> RunState:
        """Return the state of a run, once it has ended or `wait_s` has passed."""
        return await self.request(
            "GET", f"/runs/{quote(thread_id)}", RunState, query=f"wait_s={wait_s:g}",
            wait_s=wait_s, within_s=within_s, max_bytes=2 * MAX_REPORT_BYTES,
        )  # fmt: skip

    async def cancel(
        self, thread_id: str, body: CancelBody, *, within_s: float | None = None
    ) -> RunState:
        """Ask a run to stop."""
        return await self.request(
            "POST", f"/runs/{quote(thread_id)}/cancel", RunState,
            _encode(WIRE.write(body)).encode(),
            within_s=within_s, max_bytes=2 * MAX_REPORT_BYTES,
        )  # fmt: skip

    async def request(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: bytes = b"",
        *,
        query: str = "",
        content_type: str = "application/json",
        wait_s: float = 0.0,
        within_s: float | None = None,
        max_bytes: int = _SMALL_BYTES,
        delivery: Delivery | None = None,
    ) -> T:
        """Make a request, again where that may help, and return its proved answer.

        Every request of the protocol may be repeated: it has the same effect once or often.

        Args:
            method: The method.
            path: The path below the node's URL, percent-encoded.
            kind: The class of the answer.
            body: The body.
            query: The query, percent-encoded.
            content_type: The type of the body.
            wait_s: How long the node may hold the answer back, in seconds.
            within_s: How long to try, in seconds; the remote's `timeout_s` by default.
            max_bytes: The largest answer.
            delivery: Where it is noted whether the node may have the request.

        Raises:
            RemoteUnavailable: The node couldn't be reached within this time.
            RemoteUntrusted: The answer isn't signed by the node's key, or can't be read.
            RemoteError: The node refuses the request.
        """
        timeout_s = self.remote.settings.timeout_s
        end_s = time.monotonic() + (timeout_s if within_s is None else within_s)
        longest_s = timeout_s + wait_s + len(body) / _SLOWEST_BYTES_PER_S
        headers = {"Content-Type": content_type} if body else {}
        tried = 0
        while True:
            left_s = max(end_s - time.monotonic(), 1.0)
            again, answer = None, b""
            # `fail_after` takes thrice as long.
            until_s = anyio.current_time() + min(longest_s, left_s + wait_s)
            with anyio.CancelScope(deadline=until_s) as scope:
                try:
                    answer = await self._attempt(
                        method, path, query, body, headers, max_bytes, delivery
                    )
                except _Again as failed:
                    again = failed
            if scope.cancelled_caught:
                again = _Again(self._unavailable("it didn't answer in time"))
            if again is None:
                return self._read(answer, kind)
            tried += 1
            pause_s = backoff_s(tried, _BASE_WAIT_S, _MAX_WAIT_S, random.random())  # noqa: S311
            pause_s = max(pause_s, again.after_s)
            if time.monotonic() + pause_s >= end_s:
                raise again.error
            await anyio.sleep(pause_s)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: str = "", headers: Mapping[str, str] | None = None,
        bounds: BodyBounds, read_timeout_s: float | None = None,
    ) -> AsyncIterator[httpx2.Response]:  # fmt: skip
        """Open a response that is read piece by piece; its signature covers its head.

        Args:
            path: The path below the node's URL, percent-encoded.
            query: The query, percent-encoded.
            headers: More headers of the request.
            bounds: The bounds of the body.
            read_timeout_s: How long the next piece may take; the remote's `timeout_s` by default.

        Raises:
            RemoteUnavailable: The node can't be reached, or the connection was lost while reading.
            RemoteUntrusted: The response isn't signed by the node's key.
            RemoteError: The node refuses the request.
        """
        timeout_s = self.remote.settings.timeout_s
        timeout = httpx2.Timeout(timeout_s, read=read_timeout_s or timeout_s)
        url, signed = self._sign("GET", path, query, b"", dict(headers or {}))
        request = make_request("GET", url, b"", signed, timeout.as_dict())
        try:
            with self._failures():
                response = await self._http.handle_async_request(request)
                try:
                    bound_body(response, bounds)
                    is_refused = response.status_code >= 300
                    body = await response.aread() if is_refused else None
                    found = combine_headers(response.headers.raw)
                    self._prove(response.status_code, found, body, signed)
                    if body is not None:
                        raise self._refusal(Answer(response.status_code, found, body))
                    yield response
                finally:
                    await response.aclose()
        except _Again as failed:
            raise failed.error from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # One attempt

    async def _attempt(
        self,
        method: str,
        path: str,
        query: str,
        body: bytes,
        headers: dict[str, str],
        max_bytes: int,
        delivery: Delivery | None,
    ) -> bytes:
        """Make a request once, and return the body of its proved answer."""
        url, signed = self._sign(method, path, query, body, headers)
        may_be_there = delivery is not None and delivery.is_possible
        answer = await self._send(method, url, body, signed, max_bytes, delivery)
        self._prove(answer.status, answer.headers, answer.content, signed)
        if answer.status >= 300:
            if delivery is not None and answer.status < 500:
                delivery.is_possible = may_be_there  # by an attempt before this one
            raise self._refusal(answer)
        return answer.content

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        max_bytes: int,
        delivery: Delivery | None = None,
    ) -> Answer:
        trace = None if delivery is None else delivery.note
        with self._failures():
            if isinstance(self._http, NodeTransport):
                lines = head_lines(method, url, body, headers)
                found = await self._http.exchange(lines, body, max_bytes, self._timeouts, trace)
                if isinstance(found, Answer):
                    return found
                response = found
            else:
                request = make_request(method, url, body, headers, self._timeouts)
                if trace is not None:
                    request.extensions["trace"] = trace
                response = await self._http.handle_async_request(request)
            try:
                bound_body(response, BodyBounds(max_bytes))
                stream = cast(httpx2.AsyncByteStream, response.stream)  # as it came: in no coding
                content = b"".join([piece async for piece in stream])
            finally:
                await response.aclose()
        return Answer(response.status_code, combine_headers(response.headers.raw), content)

    def _sign(
        self, method: str, path: str, query: str, body: bytes, headers: dict[str, str]
    ) -> tuple[str, dict[str, str]]:
        """Return the URL of a request, and its headers with those that sign it."""
        url = f"{self.remote.url}{path}{f'?{query}' if query else ''}"
        parsed = parse_url(url)
        sent_path, _, sent_query = parsed.raw_path.decode("ascii").partition("?")
        signed = sign_request(
            self._signing_key(),
            method=method,
            authority=parsed.netloc.decode("ascii"),
            path=sent_path,
            query=sent_query,
            body=body,
            node=self.remote.key.fingerprint,
            now_s=int(time.time()),
        )
        return url, headers | signed

    @property
    def caller(self) -> str:
        """The fingerprint of the key that signs requests."""
        return self._signing_key().public.fingerprint

    def _signing_key(self) -> SigningKey:
        now_s = time.monotonic()
        if self._key is None or now_s > self._key_until_s:
            self._key = self._load_key()
            self._key_until_s = now_s + _KEY_KEPT_S
        return self._key

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turn what the HTTP library raises into what callers of this client have to know."""
        try:
            yield
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as problem:
            excess, reason = out_of_bounds(problem), certificate_problem(problem)
            if excess is not None:
                raise self._untrusted(excess.problem) from None
            if reason is not None:
                raise self._untrusted(f"has a certificate that isn't trusted: {reason}") from None
            raise _Again(self._unavailable(reason_of(problem))) from None

    def _prove(
        self, status: int, headers: Mapping[str, str], body: bytes | None, signed: Mapping[str, str]
    ) -> None:
        """Prove that the node answered this to a request with these headers."""
        try:
            _prove(status, headers, self.remote.key, body, signed["Signature"])
        except SignatureInvalid as problem:
            if "signature" not in headers and status in _FROM_A_PROXY:
                reason = f"what stands before it answered with the status {status}"
                raise _Again(self._unavailable(reason), _retry_after_s(headers)) from None
            raise self._untrusted(
                f"answered with the status {status}, and not signed by the key "
                f"{self.remote.key.fingerprint}: {problem.reason}"
            ) from None

    def _refusal(self, answer: Answer) -> Exception:
        problem = self._read(answer.content, Problem)
        title, detail = quoted(problem.title), quoted(problem.detail)
        next_step = quoted(problem.next_step)
        if problem.type == "unauthorized":  # the node doesn't say which key it doesn't know
            key = self._signing_key().public.fingerprint
            next_step = (
                f"Send the node's operator the file of your key {key}, which rye keys list shows. "
                "They allow it with: rye node allow FILE"
            )
        error = RemoteError(
            f"The node {self._name} refuses the request: {title}{f' {detail}' if detail else ''}",
            next_step=next_step,
            remote=self.remote.name,
            problem=problem.type,
            status=answer.status,
        )
        if problem.type in _WAITING_HELPS:
            return _Again(error, _retry_after_s(answer.headers))
        return error

    def _read(self, content: bytes, kind: type[T]) -> T:
        try:
            if issubclass(kind, str):
                return kind(content.decode())
            return read_answer(decode_answer(content), kind)
        except (ValueError, ConversionError) as problem:
            raise self._untrusted(
                f"answered with what can't be read: {quoted(str(problem))}"
            ) from None

    @property
    def _name(self) -> str:
        return f"{self.remote.name} ({self.remote.url})" if self.remote.name else self.remote.url

    def _unavailable(self, reason: str) -> RemoteUnavailable:
        check = f": rye remote check {self.remote.name}" if self.remote.name else ""
        return RemoteUnavailable(
            f"The node {self._name} can't be reached: {reason}.",
            next_step=f"See that it runs and that the network leads there{check}. What was started "
            "there continues.",
            remote=self.remote.name,
        )

    def _untrusted(self, problem: str) -> RemoteUntrusted:
        return RemoteUntrusted(
            f"The node {self._name} {problem}.",
            next_step="Ask its operator for the fingerprint of its key. If it has another key, "
            f"remove the remote and add it again: rye remote remove {self.remote.name}",
            remote=self.remote.name,
        )


async def fetch_identity(url: str, *, timeout_s: float = 30.0) -> tuple[Identity, PublicKey]:
    """Ask a node for its identity, before its key is known here.

    What it answers is signed by the key that it names, which proves nothing about whose it is:
    a person has to compare the fingerprint with the operator's.

    Args:
        url: Where the node answers.
        timeout_s: How long the request may take, in seconds.

    Raises:
        RemoteUnavailable: It can't be reached.
        RemoteUntrusted: It isn't signed by the key that it names, or can't be read.
    """
    entry = RemoteEntry(url, PublicKey(bytes(32)), timeout_s=timeout_s, plain_http=True)
    client = NodeClient(Remote("", entry), SigningKey.generate)
    try:
        return await client.identity()
    finally:
        await client.aclose()


def _prove(
    status: int,
    headers: Mapping[str, str],
    key: PublicKey,
    body: bytes | None,
    signature: str | None,
) -> None:
    """Prove an answer to a request that has a signature, or has none."""
    request = None if signature is None else {"signature": signature}
    check_response(key, status=status, headers=headers, body=body, request=request)


def _retry_after_s(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    asked_s = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return min(float(asked_s), _MAX_ASKED_WAIT_S)
