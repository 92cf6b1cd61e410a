"""The adapter itself."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final

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
from ryecore.providers.gemini.answering import ResponseReader
from ryecore.providers.gemini.asking import config_of, contents_of
from ryecore.providers.gemini.calling import Call, Pool
from ryecore.providers.gemini.failing import error_of
from ryecore.providers.gemini.making import begin_media, look_after
from ryecore.providers.gemini.models import capabilities_of
from ryecore.providers.pooled import PooledProvider
from ryecore.providers.transport import MAX_ANSWER_BYTES

__all__ = ["GeminiProvider"]

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
            return await begin_media(call.client, request, self._provider_id, media)
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
            return await look_after(call.client, job_id, self._provider_id, media)
        except Exception as error:
            failure = error_of(error, self._provider_id, "", key, call.response)
        raise failure

    async def _call(self, key: str) -> Call:
        return Call(await self._pools.get(), key)
