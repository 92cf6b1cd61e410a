"""The provider of Google's Gemini models."""

import ssl
from collections.abc import AsyncGenerator
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
from ryecore.providers.connections import PooledProvider, make_transport
from ryecore.providers.gemini.errors import error_of
from ryecore.providers.gemini.media import make_media, poll_video
from ryecore.providers.gemini.request import capabilities_of, config_of, contents_of
from ryecore.providers.gemini.response import ResponseReader, read_response
from ryecore.providers.media_threads import build_request

__all__ = ["Call", "GeminiProvider", "Pool"]

_KEY_HEADER: Final = "x-goog-api-key"
_NO_KEY: Final = "none"
# The SDK loads certificates for websockets, which would cost 20 ms a call. None are used here.
_NO_CERTIFICATES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Pool:
    """The connections of one event loop, and the settings of calls over them."""

    def __init__(
        self,
        base_url: str,
        headers: dict[str, str],
        timeout: httpx2.Timeout,
        proxy: str | None,
        max_answer_bytes: int,
    ) -> None:
        self.base_url = base_url
        self.headers = headers
        self.timeout = timeout
        self.transport = make_transport(proxy, max_answer_bytes)
        self.files = self.transport.bounded_by(BodyBounds(max_answer_bytes))
        # The SDK would make its own.
        self.unused = httpx2.Client(transport=httpx2.BaseTransport(), trust_env=False)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()


class Call(httpx2.AsyncBaseTransport):
    """One call: a client of the SDK with the call's key, if any, over the shared pool.

    `response` is the server's, once it arrives.
    """

    def __init__(self, pool: Pool, key: str) -> None:
        self._pool = pool
        self._anonymous = not key
        self.response: httpx2.Response | None = None
        http = httpx2.AsyncClient(transport=self, trust_env=False, timeout=pool.timeout)
        self.client = genai.Client(
            enterprise=False,
            # Without a key, the SDK would look for one in the environment.
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
                # Parts of the SDK try five times by default.
                retry_options=types.HttpRetryOptions(attempts=1),
            ),
        ).aio

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the SDK over the pool."""
        if self._anonymous:
            request.headers.pop(_KEY_HEADER, None)
        # Without a timeout in its options, the SDK would wait for ever.
        request.extensions["timeout"] = self._pool.timeout.as_dict()
        is_file = request.url.params.get("alt") == "media"
        transport = self._pool.files if is_file else self._pool.transport
        self.response = await transport.handle_async_request(request)
        return self.response

    async def finish(self) -> None:
        """Return the connection to the pool: the SDK leaves a stream open that wasn't read up."""
        if self.response is not None:
            await self.response.aclose()

    async def aclose(self) -> None:
        """Do nothing: the pool stays open for other calls."""


class GeminiProvider(PooledProvider[Pool]):
    """Google's Gemini models over the Gemini API, for asyncio and trio.

    Its options are those of `PooledProvider`.
    """

    _VENDOR_ID = "gemini"
    _VENDOR_URL = "https://generativelanguage.googleapis.com"

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of a model; an unknown one has all."""
        return capabilities_of(model)

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        """Ask a model, and yield its answer as it arrives; see `LlmProvider.stream`."""
        self._check(request.model, key)
        call = await self._call(key)
        failure: Exception
        try:
            reader = ResponseReader(self._provider_id, request.model, media)
            responses = await call.client.models.generate_content_stream(
                model=request.model,
                contents=await build_request(contents_of, request, self._provider_id, media),
                config=config_of(request),
            )
            async for response in responses:
                for chunk in await read_response(reader, response):
                    yield chunk
            yield reader.end()
        except Exception as error:
            failure = error
        else:
            return
        finally:
            await call.finish()
        # Raised outside of the handler, so that its context can't hold the SDK's exception, which
        # knows the request and the key.
        raise error_of(failure, self._provider_id, request.model, key, call.response)

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and return its whole answer; see `LlmProvider.generate`."""
        self._check(request.model, key)
        call = await self._call(key)
        try:
            response = await call.client.models.generate_content(
                model=request.model,
                contents=await build_request(contents_of, request, self._provider_id, media),
                config=config_of(request),
            )
            reader = ResponseReader(self._provider_id, request.model, media)
            fold = StreamFold(self._provider_id, request.model)
            for chunk in await read_response(reader, response):
                fold.add(chunk)
            fold.add(reader.end())
            return fold.result()
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key, call.response)
        raise failure

    async def generate_media(
        self, request: MediaRequest, *, key: str, media: MediaStore
    ) -> MediaOutcome:
        """Make images, or start a video; see `MediaProvider.generate_media`."""
        self._check(request.model, key)
        call = await self._call(key)
        try:
            return await make_media(call.client, request, self._provider_id, media)
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key, call.response)
        raise failure

    async def poll_media(self, job_id: str, *, key: str, media: MediaStore) -> MediaOutcome:
        """Check the job of a video; see `MediaProvider.poll_media`."""
        self._check("", key)
        call = await self._call(key)
        try:
            return await poll_video(call.client, job_id, self._provider_id, media)
        except Exception as error:
            failure = error_of(error, self._provider_id, "", key, call.response)
        raise failure

    def _open_pool(self) -> Pool:
        return Pool(
            self._base_url, self._headers, self._timeout, self._proxy, self._max_answer_bytes
        )

    async def _close_pool(self, pool: Pool) -> None:
        await pool.aclose()

    async def _call(self, key: str) -> Call:
        return Call(await self._pools.get(), key)
