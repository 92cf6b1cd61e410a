"""The provider of Anthropic's models."""

from collections.abc import AsyncGenerator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import anthropic
import httpx2

from ryecore.llm import Capabilities, LlmRequest, LlmResult, MediaStore, StreamChunk
from ryecore.providers.anthropic.errors import error_of
from ryecore.providers.anthropic.request import capabilities_of, parameters_of
from ryecore.providers.anthropic.response import EventReader, result_of
from ryecore.providers.connections import MAX_TEXT_BYTES, PooledProvider, make_transport

__all__ = ["AnthropicProvider"]

_BASE_URL: Final = "https://api.anthropic.com"
_CONNECT_S: Final = 10.0


class AnthropicProvider(PooledProvider[httpx2.AsyncClient]):
    """Anthropic's models, for asyncio and trio.

    It holds one pool of connections for each event loop, and no key. It reads no key, address,
    header or proxy from the environment.

    Args:
        base_url: The server's address; None for the vendor's own.
        timeout_s: How long to wait for each piece of an answer, in seconds.
        provider_id: Its name in plans, events and reasoning parts.
        headers: Additional headers for each request.
        proxy: The address of a proxy; None for none.
        max_answer_bytes: The bound in bytes of an unstreamed answer, and of one event of a stream;
            a whole stream may have four times as much.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        timeout_s: float = 600.0,
        provider_id: str = "anthropic",
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        max_answer_bytes: int = MAX_TEXT_BYTES,
    ) -> None:
        super().__init__(provider_id, self._pool, httpx2.AsyncClient.aclose)
        self._base_url = base_url or _BASE_URL
        self._headers = dict(headers or {})
        self._proxy = proxy
        self._max_answer_bytes = max_answer_bytes
        self._timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S))

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of a model; an unknown one has all."""
        return capabilities_of(model)

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        """Ask a model, and yield its answer as it arrives; see `LlmProvider.stream`.

        Raises:
            LlmError: The model can't answer, or its answer was cut off.
        """
        self._check(request.model, key)
        failure: Exception
        try:
            parameters = parameters_of(request, self._provider_id, media)
            client = await self._client(key)
            reader = EventReader()
            async with await client.messages.create(**parameters, stream=True) as events:
                async for event in events:
                    chunk = reader.read(event)
                    if chunk is not None:
                        yield chunk
            if reader.ended:
                return
            failure = ValueError("The stream ended before the answer did.")
        except Exception as error:
            failure = error
        # Raised outside of the handler, so that its context can't hold the SDK's exception, which
        # knows the request and the key.
        raise error_of(failure, self._provider_id, request.model, key)

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and return its whole answer; see `LlmProvider.generate`.

        Raises:
            LlmError: The model can't answer.
        """
        self._check(request.model, key)
        try:
            parameters = parameters_of(request, self._provider_id, media)
            client = await self._client(key)
            message = await client.messages.create(**parameters, stream=False)
            return result_of(message, self._provider_id)
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key)
        raise failure

    def _pool(self) -> httpx2.AsyncClient:
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
        return httpx2.AsyncClient(
            timeout=self._timeout,
            transport=make_transport(self._proxy, self._max_answer_bytes, limits),
            trust_env=False,
            # Calls with different keys share the pool, but must not share a session.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        )

    async def _client(self, key: str) -> "_Client":
        return _Client(key, self._base_url, self._headers, self._timeout, await self._pools.get())


class _Client(anthropic.AsyncAnthropic):
    """The SDK's client for one call, without settings from the environment."""

    def __init__(
        self,
        key: str,
        base_url: str,
        headers: dict[str, str],
        timeout: httpx2.Timeout,
        pool: httpx2.AsyncClient,
    ) -> None:
        super().__init__(
            api_key=key,
            webhook_key="",
            base_url=base_url,
            timeout=timeout,
            max_retries=0,
            http_client=pool,
            open_telemetry=False,
        )
        # The constructor has added the headers of ANTHROPIC_CUSTOM_HEADERS.
        self._custom_headers: Mapping[str, str] = headers
        self._anonymous = not key

    @property
    def auth_headers(self) -> dict[str, Any]:
        return {"Authorization": anthropic.Omit()} if self._anonymous else super().auth_headers
