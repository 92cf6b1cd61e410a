"""Adapters that are wrong, each in one way."""

from collections.abc import AsyncGenerator

import httpx2

from ryecore.llm import (
    LlmError,
    LlmRequest,
    LlmResult,
    MediaStore,
    StreamChunk,
    StreamEnd,
    TextDelta,
    Usage,
    UsageUpdate,
)
from ryecore.providers.anthropic import AnthropicProvider


class SwallowsCuts(AnthropicProvider):
    """Takes what came of a cut stream for the answer."""

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        try:
            async for chunk in super().stream(request, key=key, media=media):
                yield chunk
        except LlmError as error:
            if error.status is not None:
                raise
            yield StreamEnd("stop")


class KeepsKeys(AnthropicProvider):
    """Remembers who asked last."""

    last = ""

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        self.last = key
        return await super().generate(request, key=key, media=media)


class Retries(AnthropicProvider):
    """Asks again by itself."""

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        try:
            return await super().generate(request, key=key, media=media)
        except LlmError as error:
            if not error.retryable:
                raise
        return await super().generate(request, key=key, media=media)


class CountsTwice(AnthropicProvider):
    """Takes the cached tokens for input as well."""

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        async for chunk in super().stream(request, key=key, media=media):
            if isinstance(chunk, StreamEnd) and chunk.usage is not None:
                counted = chunk.usage
                twice = Usage(counted.cache_read_tokens)
                yield StreamEnd(chunk.stop_reason, counted + twice, chunk.model)
            elif not isinstance(chunk, UsageUpdate):
                yield chunk


class ShowsKeys(AnthropicProvider):
    """Puts what the server says into its errors, with the key that the server repeats."""

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        try:
            return await super().generate(request, key=key, media=media)
        except LlmError as error:
            error.add_note(f"The key was {key}.")
            raise


class KeepsCauses(AnthropicProvider):
    """Raises within the handler: what was handled hangs on the error."""

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        try:
            return await super().generate(request, key=key, media=media)
        except LlmError as error:
            error.__context__ = ValueError({"Authorization": f"Bearer {key}"})
            raise


class SplitsDeltas(AnthropicProvider):
    """Gives the text letter by letter, and a word after the end."""

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        async for chunk in super().stream(request, key=key, media=media):
            yield chunk
        yield TextDelta("!")


class Buffers(AnthropicProvider):
    """Waits for the whole answer, and doesn't let go of it."""

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncGenerator[StreamChunk, None]:
        chunks = [chunk async for chunk in super().stream(request, key=key, media=media)]
        yield TextDelta("".join(one.text for one in chunks if isinstance(one, TextDelta)))
        yield chunks[-1]


class MixesKeys(AnthropicProvider):
    """Uses the first key for everybody."""

    first = ""

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        self.first = self.first or key
        return await super().generate(request, key=self.first, media=media)


class KeepsCookies(AnthropicProvider):
    """Goes on with the session of whoever asked before."""

    def _open_pool(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(trust_env=False)


class QuotesBadKeys(AnthropicProvider):
    """Says which key it was that couldn't be sent."""

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        try:
            return await super().generate(request, key=key, media=media)
        except LlmError as error:
            raise LlmError(
                f"Illegal header value {key!r}",
                kind=error.kind,
                provider=self.provider_id,
                model=request.model,
            ) from None


class ReadsTheEnvironment(AnthropicProvider):
    """Goes where the environment's proxy says."""

    def __init__(self, *, base_url: str) -> None:
        import os

        super().__init__(base_url=base_url, proxy=os.environ.get("HTTP_PROXY"))
