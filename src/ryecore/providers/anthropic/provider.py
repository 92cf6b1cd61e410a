"""The provider of Anthropic's models."""

import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import anthropic
import httpx2

from ryecore.llm import (
    Capabilities,
    LlmError,
    LlmErrorKind,
    LlmRequest,
    LlmResult,
    MediaStore,
    StreamChunk,
)
from ryecore.providers.anthropic.request import capabilities_of, parameters_of
from ryecore.providers.anthropic.response import EventReader, result_of
from ryecore.providers.connections import MAX_TEXT_BYTES, PooledProvider
from ryecore.providers.errors import BrokenAnswer, Failure, kind_of_status, llm_error, retry_after_s

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
            failure = BrokenAnswer("the stream was cut before the answer was complete.")
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


_BY_TYPE: Final[dict[str, LlmErrorKind]] = {
    "api_error": "unavailable",
    "overloaded_error": "unavailable",
    "timeout_error": "unavailable",
    "rate_limit_error": "rate_limit",
    "authentication_error": "auth",
    "permission_error": "auth",
    "billing_error": "auth",
    "not_found_error": "bad_request",
    "request_too_large": "context_length",
}
# Waiting doesn't lift a spending limit, so it counts as an account that can't pay.
_SPENT: Final = re.compile(r"_spend_limit_reached$")
_TOO_LONG: Final = re.compile(
    r"prompt is too long|too many tokens|context (?:window|limit|length)", re.IGNORECASE
)


def error_of(error: Exception, provider_id: str, model: str, key: str) -> LlmError:
    """Return the error for an exception; see `llm_error`."""
    return llm_error(error, provider_id, model, key, _failure)


def _failure(error: Exception) -> Failure | None:
    if isinstance(error, anthropic.APIStatusError):
        text = error.api_message if isinstance(error.api_message, str) else error.message
        status = error.status_code if error.status_code != 200 else None
        return Failure(
            _kind(error, text, status), text, status, retry_after_s(error.response.headers)
        )
    if isinstance(error, anthropic.APIConnectionError):
        return Failure("unavailable", f"{error.message} {error.__cause__ or ''}".strip())
    if isinstance(error, anthropic.APIResponseValidationError):
        return Failure("unavailable", f"the answer can't be read: {error}")
    return None


def _kind(error: anthropic.APIStatusError, text: str, status: int | None) -> LlmErrorKind:
    if _SPENT.search(error.error_code or ""):
        return "auth"
    if error.type == "invalid_request_error" and _TOO_LONG.search(text):
        return "context_length"
    if status in (None, 413, 529):
        # A stream has sent its status before the error: only the error's type identifies it.
        return _BY_TYPE.get(str(error.type), "context_length" if status == 413 else "unavailable")
    return kind_of_status(status)
