"""Cases: each way to fail has its kind, and nothing is tried twice."""

import time
from email.utils import formatdate
from typing import Final

import anyio
import attrs

from ryecore.frozen import frozen
from ryecore.llm import LlmErrorKind, TextPart
from ryecore.llm.network import refuse_model_requests
from ryecore.testing.conformance.bench import KEY, Bench, Cases, case, check, close, equal
from ryecore.testing.conformance.script import Failure, HttpResponse, Script

__all__ = ["KINDS", "FailureCases"]

KINDS: Final[dict[Failure, tuple[LlmErrorKind, ...]]] = {
    "bad_key": ("auth",),
    "forbidden": ("auth",),
    "unknown_model": ("bad_request",),
    "bad_request": ("bad_request",),
    "context_too_long": ("context_length",),
    "too_large": ("context_length", "bad_request"),
    "rate_limit": ("rate_limit",),
    "server_error": ("unavailable",),
    "unavailable": ("unavailable",),
    "overloaded": ("unavailable", "rate_limit"),
}
"""Each failure of a server, and the kinds that it may become."""

_HTML: Final = b"<html><body><h1>Bad gateway</h1></body></html>"
_SOME: Final = Script((TextPart("Once upon a time there was a tide."),), deltas=8)


@frozen
class _Odd:
    """A body that no vendor sends."""

    what: str
    reply: HttpResponse
    kinds: tuple[LlmErrorKind, ...]


_ODD: Final = (
    _Odd("HTML with 502", HttpResponse((_HTML,), 502, media_type="text/html"), ("unavailable",)),
    _Odd("HTML with 400", HttpResponse((_HTML,), 400, media_type="text/html"), ("bad_request",)),
    _Odd("nothing with 500", HttpResponse((), 500), ("unavailable",)),
    _Odd("no JSON with 503", HttpResponse((b'{"error": {"mess',), 503), ("unavailable",)),
    _Odd("a JSON list with 400", HttpResponse((b"[1, 2]",), 400), ("bad_request",)),
    _Odd("a JSON string with 401", HttpResponse((b'"no"',), 401), ("auth",)),
    _Odd("HTML with 200", HttpResponse((_HTML,), 200, media_type="text/html"), ("unavailable",)),
    _Odd("nothing with 200", HttpResponse((), 200), ("unavailable",)),
    _Odd("no JSON with 200", HttpResponse((b'{"id": "an',), 200), ("unavailable",)),
    _Odd("another JSON with 200", HttpResponse((b'{"hello": "there"}',), 200), ("unavailable",)),
    _Odd("a JSON null with 200", HttpResponse((b"null",), 200), ("unavailable",)),
)


class FailureCases(Cases):
    """Each way to fail has its kind, and nothing is tried twice."""

    @case()
    async def test_refusals_have_their_kind(self, at: Bench) -> None:
        """Each status becomes a kind, keeps its status, and is tried once."""
        for failure, kinds in KINDS.items():
            reply = at.wire.error(failure, f"It failed: {failure}.")
            for stream in (True, False):
                at.server.forget()
                at.server.answer(reply)
                error = await at.failed(stream=stream)
                check(error.kind in kinds, f"{failure} became {error.kind}, not one of {kinds}.")
                equal(error.status, reply.status, f"the status of {failure}")
                equal(len(at.server.raw), 1, f"the number of requests after {failure}")

    @case()
    async def test_refusals_say_why(self, at: Bench) -> None:
        """The error quotes the server's text, without the key in it."""
        for failure in ("bad_key", "bad_request"):
            at.server.answer(at.wire.error(failure, f"The spring tide {KEY} is too high."))
            for stream in (True, False):
                error = await at.failed(stream=stream)
                check("spring tide" in str(error), f"The server's words are lost: {error}")

    @case()
    async def test_retry_after(self, at: Bench) -> None:
        """The wait that a server asks for is understood in each form."""
        date = formatdate(time.time() + 90, usegmt=True)
        for headers, low, high in (
            ({"Retry-After": "7"}, 7.0, 7.0),
            ({"retry-after-ms": "1500"}, 1.5, 1.5),
            ({"Retry-After": date}, 60.0, 90.0),
            ({"Retry-After": "soon"}, None, None),
            ({"Retry-After": "-5"}, None, None),
            ({"Retry-After": "nan"}, None, None),
            ({}, None, None),
        ):
            reply = at.wire.error("rate_limit", "Too many requests.")
            at.server.answer(attrs.evolve(reply, headers={**reply.headers, **headers}))
            waited = (await at.failed()).retry_after_s
            if low is None or high is None or waited is None:
                equal(waited, low, f"the wait after {headers}")
            else:
                check(low <= waited <= high, f"After {headers} the wait is {waited}.")

    @case()
    async def test_odd_bodies(self, at: Bench) -> None:
        """A gateway's page, an empty body or broken JSON is an error, not an answer."""
        for odd in _ODD:
            at.server.answer(odd.reply)
            for stream in (True, False):
                error = await at.failed(stream=stream)
                check(error.kind in odd.kinds, f"{odd.what} became {error.kind}.")

    @case("stream_errors")
    async def test_an_error_within_a_stream(self, at: Bench) -> None:
        """A stream that breaks off with an error raises it after the chunks before it."""
        event = at.wire.stream_error(f"Overloaded, {KEY}.")
        pieces = (*at.wire.stream(_SOME)[:4], event)
        at.server.answer(HttpResponse(pieces, media_type=at.wire.stream_media_type))

        error = await at.failed()

        check(error.retryable, f"An overloaded server is {error.kind}.")
        check("Overloaded" in str(error), f"The server's words are lost: {error}")

    @case()
    async def test_nobody_listens(self, at: Bench) -> None:
        """A refused connection, one without TLS, and a host name that doesn't exist are errors."""
        port = at.server.base_url.rpartition(":")[2]
        urls = ("http://127.0.0.1:1", f"https://127.0.0.1:{port}", "http://nobody.invalid")
        async with anyio.create_task_group() as tasks:
            for url in urls:
                for stream in (True, False):
                    tasks.start_soon(self._unreachable, at, url, stream)

    async def _unreachable(self, at: Bench, url: str, stream: bool) -> None:
        provider = self.make_provider(url)
        try:
            error = await Bench(at.server, provider, self, at.backend).failed(stream=stream)
        finally:
            with anyio.CancelScope(shield=True):
                await close(provider)
        equal(error.kind, "unavailable", f"the kind of error at {url}")
        equal(error.status, None, f"the status at {url}")

    @case()
    async def test_a_broken_answer_is_not_asked_for_again(self, at: Bench) -> None:
        """Neither a broken connection nor a server that goes away makes a second request."""
        for stop_at in (-1, 10):
            at.server.forget()
            at.server.answer(HttpResponse((b"{" + b" " * 100,), stop_at=stop_at))
            for asked, stream in enumerate((True, False), 1):
                error = await at.failed(stream=stream)
                equal(error.kind, "unavailable", "the kind of error")
                equal(len(at.server.raw), asked, "the number of requests")

    @case()
    async def test_the_switch_refuses_every_request(self, at: Bench) -> None:
        """Where requests to models are refused, nothing reaches the server."""
        at.server.answer(_SOME)
        with refuse_model_requests():
            for stream in (True, False):
                equal((await at.failed(stream=stream)).kind, "bad_request", "the kind of error")
        equal(at.server.raw, [], "what reached the server")
