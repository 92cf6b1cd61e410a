"""The provider of Anthropic's models."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anthropic
import httpx2

from ryecore.llm import Capabilities, LlmRequest, LlmResult, MediaStore, StreamChunk
from ryecore.providers.anthropic.errors import error_of
from ryecore.providers.anthropic.request import capabilities_of, parameters_of
from ryecore.providers.anthropic.response import EventReader, result_of
from ryecore.providers.connections import MAX_TEXT_BYTES, PooledProvider
from ryecore.providers.errors import BrokenAnswer
from ryecore.providers.media_threads import build_request

__all__ = ["AnthropicProvider"]


class AnthropicProvider(PooledProvider[httpx2.AsyncClient]):
    """Anthropic's models, for asyncio and trio.

    Its options are those of `PooledProvider`. An answer has at most 16 MiB by default.
    """

    _VENDOR_ID = "anthropic"
    _VENDOR_URL = "https://api.anthropic.com"
    _MAX_ANSWER_BYTES = MAX_TEXT_BYTES

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of a model; an unknown one has all."""
        return capabilities_of(model)

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        """Ask a model, and yield its answer as it arrives; see `LlmProvider.stream`."""
        self._check(request.model, key)
        failure: Exception
        try:
            parameters = await build_request(parameters_of, request, self._provider_id, media)
            client = await self._client(key)
            reader = EventReader()
            async with await client.messages.create(**parameters, stream=True) as events:
                async for event in events:
                    chunk = reader.read(event)
                    if chunk is not None:
                        yield chunk
            if reader.ended:
                return
            failure = BrokenAnswer("the stream was cut before the answer was complete.")
        except Exception as error:
            failure = error
        # Raised outside of the handler, so that its context can't hold the SDK's exception, which
        # knows the request and the key.
        raise error_of(failure, self._provider_id, request.model, key)

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and return its whole answer; see `LlmProvider.generate`."""
        self._check(request.model, key)
        try:
            parameters = await build_request(parameters_of, request, self._provider_id, media)
            client = await self._client(key)
            message = await client.messages.create(**parameters, stream=False)
            return result_of(message, self._provider_id)
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key)
        raise failure

    def _open_pool(self) -> httpx2.AsyncClient:
        return self._http_pool()

    async def _close_pool(self, pool: httpx2.AsyncClient) -> None:
        await pool.aclose()

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
