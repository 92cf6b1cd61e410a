"""The vendor's SDK, made so that it knows no key, reads no environment and tries nothing twice."""

from collections.abc import AsyncIterator, Mapping
from http.cookiejar import DefaultCookiePolicy

import httpx2
import openai
from openai._streaming import ServerSentEvent

from ryecore.providers.transport import MAX_ANSWER_BYTES, make_transport

__all__ = ["Events", "key_headers", "make_client"]

_NO_KEY = "given-with-each-call"
_OPENAI = "https://api.openai.com/v1"
_CONNECT_S = 10.0


class Events(openai.AsyncStream[object]):
    """A stream of plain JSON events, which remembers whether the server said that it was done."""

    said_done = False

    async def _iter_events(self) -> AsyncIterator[ServerSentEvent]:
        async for event in super()._iter_events():
            if event.data.startswith("[DONE]"):
                # Seeing it, the SDK would leave its generators to the collector.
                self.said_done = True
                yield ServerSentEvent(data="null")
            else:
                yield event


def make_client(
    base_url: str | None,
    timeout_s: float,
    headers: Mapping[str, str],
    proxy: str | None = None,
    max_answer_bytes: int = MAX_ANSWER_BYTES,
) -> openai.AsyncOpenAI:
    """A client with a pool of connections of its own.

    Args:
        base_url: Where the server is; OpenAI's own address where None.
        timeout_s: How long to wait for the next bytes, in seconds.
        headers: More headers for every request.
        proxy: A proxy's address.
        max_answer_bytes: How large an answer may be; see `make_transport`.
    """
    pool = httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
        transport=make_transport(proxy, max_answer_bytes, openai.DEFAULT_CONNECTION_LIMITS),
        trust_env=False,
    )
    # Calls with different keys share the pool, and must not share a session.
    pool.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
    client = openai.AsyncOpenAI(
        api_key=_NO_KEY,
        base_url=base_url or _OPENAI,
        max_retries=0,
        http_client=pool,
    )
    # What the SDK found in the environment is dropped again.
    client.admin_api_key = client.organization = client.project = client.webhook_secret = None
    client._custom_headers = dict(headers)
    return client


def key_headers(key: str, headers: Mapping[str, str]) -> dict[str, str | openai.Omit]:
    """The headers of one call: its key, or none at all.

    Args:
        key: The key; empty where none is needed.
        headers: The headers of every request, which may authorise in a way of their own.
    """
    if key:
        return {"Authorization": f"Bearer {key}"}
    if any(name.lower() == "authorization" for name in headers):
        return {}
    return {"Authorization": openai.Omit()}
