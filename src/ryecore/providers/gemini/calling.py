"""One call of the SDK over a shared pool."""

import ssl
from collections.abc import Mapping
from typing import Final

import httpx2
from google import genai
from google.genai import client as genai_client
from google.genai import types

from ryecore.bounded_http import BodyBounds
from ryecore.providers.transport import MAX_ANSWER_BYTES, make_transport

__all__ = ["Call", "Pool"]

_KEY_HEADER: Final = "x-goog-api-key"
_NO_KEY: Final = "none"
# The SDK prepares for websockets that are not used here; the certificates would take 20 ms a call.
_NO_CERTIFICATES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Pool:
    """The connections of one event loop, and what the calls over them share.

    Args:
        base_url: Where to ask.
        headers: More headers for each request.
        timeout_s: How long to wait for each piece of an answer, in seconds.
        proxy: The address of a proxy; None for none.
        max_answer_bytes: How large an answer may be; see `make_transport`.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        timeout_s: float,
        proxy: str | None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.base_url = base_url
        self.headers = dict(headers)
        self.timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, 10.0))
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        self.transport = make_transport(proxy, max_answer_bytes, limits)
        self.files = self.transport.bounded_by(BodyBounds(max_answer_bytes))
        # The SDK makes one for itself where it is given none.
        self.unused = httpx2.Client(transport=httpx2.BaseTransport(), trust_env=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()


class Call(httpx2.AsyncBaseTransport):
    """One call: its own client of the SDK, with its own key, over the shared pool.

    Args:
        pool: The pool.
        key: The credential; empty for none.

    Attributes:
        client: The SDK's client.
        response: What the server answered; None before it does.
    """

    def __init__(self, pool: Pool, key: str) -> None:
        self._pool = pool
        self._anonymous = not key
        self.response: httpx2.Response | None = None
        http = httpx2.AsyncClient(transport=self, trust_env=False, timeout=pool.timeout)
        self.client = genai.Client(
            enterprise=False,
            # Without any key it would look for one in the environment.
            api_key=key or _NO_KEY,
            debug_config=genai_client.DebugConfig(
                client_mode=None, replays_directory=None, replay_id=None
            ),
            http_options=types.HttpOptions(
                base_url=pool.base_url,
                api_version="v1beta",
                headers=pool.headers,
                httpx_client=pool.unused,
                httpx_async_client=http,
                async_client_args={"ssl": _NO_CERTIFICATES},
                # Parts of the SDK try five times unless they are told otherwise.
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        ).aio

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the SDK's over the pool."""
        if self._anonymous:
            request.headers.pop(_KEY_HEADER, None)
        # The SDK says no time where its options name none, and would wait for ever.
        request.extensions["timeout"] = self._pool.timeout.as_dict()
        is_file = request.url.params.get("alt") == "media"
        transport = self._pool.files if is_file else self._pool.transport
        self.response = await transport.handle_async_request(request)
        return self.response

    async def finish(self) -> None:
        """Give the connection back. The SDK leaves a stream open that wasn't read to its end."""
        if self.response is not None:
            await self.response.aclose()

    async def aclose(self) -> None:
        """Nothing: the pool stays open for other calls."""
