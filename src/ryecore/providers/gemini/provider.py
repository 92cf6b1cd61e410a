"""The adapter itself."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Final

import httpx2
from google import genai
from google.genai import client as genai_client
from google.genai import types

from ryecore.bounded_http import BodyBounds
from ryecore.llm import (
    Capabilities,
    LlmRequest,
    LlmResult,
    MediaOutcome,
    MediaRequest,
    MediaStore,
    StreamChunk,
    StreamFold,
)
from ryecore.providers.connections import MAX_ANSWER_BYTES, PooledProvider, make_transport
from ryecore.providers.gemini.errors import error_of
from ryecore.providers.gemini.media import make_media, poll_video
from ryecore.providers.gemini.models import capabilities_of
from ryecore.providers.gemini.request import config_of, contents_of
from ryecore.providers.gemini.response import ResponseReader

__all__ = ["Call", "GeminiProvider", "Pool"]

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


_BASE_URL: Final = "https://generativelanguage.googleapis.com"


class GeminiProvider(PooledProvider[Pool]):
    """Google's Gemini models over the Gemini API, for asyncio and trio.

    It holds connections, one pool for each event loop, and no key. Nothing of the environment
    counts: no key, address, header or proxy.

    Args:
        base_url: Where to ask; the vendor's own address where None.
        timeout_s: How long to wait for each piece of an answer, in seconds.
        provider_id: What plans, events and reasoning parts call it.
        headers: More headers for each request.
        proxy: The address of a proxy; None for none.
        max_answer_bytes: How large an answer or a video may be that comes whole, or one event of a
            stream, in bytes; a whole stream may have four times as much.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        timeout_s: float = 600.0,
        provider_id: str = "gemini",
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        url, more = base_url or _BASE_URL, dict(headers or {})
        super().__init__(
            provider_id,
            lambda: Pool(url, more, timeout_s, proxy, max_answer_bytes),
            Pool.aclose,
        )

    def capabilities(self, model: str) -> Capabilities:
        """What a model can do. An unknown one can do everything."""
        return capabilities_of(model)

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        """Ask a model, and give its answer as it comes; see `LlmProvider.stream`.

        Raises:
            LlmError: It can't answer, or its answer was cut.
        """
        self._check(request.model, key)
        call = await self._call(key)
        failure: Exception
        try:
            reader = ResponseReader(self._provider_id, request.model, media)
            responses = await call.client.models.generate_content_stream(
                model=request.model,
                contents=contents_of(request, self._provider_id, media),
                config=config_of(request),
            )
            async for response in responses:
                for chunk in reader.read(response):
                    yield chunk
            yield reader.end()
        except Exception as error:
            failure = error
        else:
            return
        finally:
            await call.finish()
        # Raised out here, it has no context: what the SDK raised holds the request, and the key.
        raise error_of(failure, self._provider_id, request.model, key, call.response)

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and give its whole answer; see `LlmProvider.generate`.

        Raises:
            LlmError: It can't answer.
        """
        self._check(request.model, key)
        call = await self._call(key)
        try:
            response = await call.client.models.generate_content(
                model=request.model,
                contents=contents_of(request, self._provider_id, media),
                config=config_of(request),
            )
            reader = ResponseReader(self._provider_id, request.model, media)
            fold = StreamFold(self._provider_id, request.model)
            for chunk in reader.read(response):
                fold.add(chunk)
            fold.add(reader.end())
            return fold.result()
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key, call.response)
        raise failure

    async def generate_media(
        self, request: MediaRequest, *, key: str, media: MediaStore
    ) -> MediaOutcome:
        """Make images at once, or begin to make a video; see `MediaProvider.generate_media`.

        Raises:
            LlmError: They can't be made.
        """
        self._check(request.model, key)
        call = await self._call(key)
        try:
            return await make_media(call.client, request, self._provider_id, media)
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key, call.response)
        raise failure

    async def poll_media(self, job_id: str, *, key: str, media: MediaStore) -> MediaOutcome:
        """Look after a video; see `MediaProvider.poll_media`.

        Raises:
            LlmError: It failed, or isn't known.
        """
        self._check("", key)
        call = await self._call(key)
        try:
            return await poll_video(call.client, job_id, self._provider_id, media)
        except Exception as error:
            failure = error_of(error, self._provider_id, "", key, call.response)
        raise failure

    async def _call(self, key: str) -> Call:
        return Call(await self._pools.get(), key)
