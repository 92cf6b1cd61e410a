"""The provider of OpenAI's models and of compatible servers."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, Unpack

import anyio
import anyio.to_thread
import openai
from openai._streaming import ServerSentEvent

from ryecore.llm import (
    Capabilities,
    LlmError,
    LlmRequest,
    LlmResult,
    MediaOutcome,
    MediaRequest,
    MediaResult,
    MediaStore,
    StreamChunk,
    StreamFold,
)
from ryecore.providers.connections import ConnectionOptions, PooledProvider
from ryecore.providers.openai.errors import error_of
from ryecore.providers.openai.media import ask_for_images, images_in, media_of, read_contents
from ryecore.providers.openai.request import COMPATIBLE, ChatApi, ResponsesApi, openai_capabilities

__all__ = ["OpenAIApi", "OpenAIProvider"]

OpenAIApi: TypeAlias = Literal["responses", "chat"]
"""The two formats of the vendor's API."""

_NO_KEY = "given-with-each-call"
_CLOSING_S: Final = 5.0
_ID_CHARS: Final = 40
_DRAIN_S: Final = 1.0


class OpenAIProvider(PooledProvider[openai.AsyncOpenAI]):
    """OpenAI's models, or those of a compatible server, for asyncio and trio.

    Args:
        api: The format; by default `responses` for OpenAI's own server, else `chat`.
        capabilities: The capabilities of all models, or a function from a model's name to its
            capabilities. By default, models have all that OpenAI's names don't exclude.
        reasoning_summary: How much of its reasoning a model shows over `responses`; None for
            nothing. OpenAI requires a verified organisation for it.
        stream_usage: Whether to request the usage of streams over `chat`; some servers refuse it.
        prompt_cache: Whether the server takes OpenAI's parameters for caching; by default, only
            OpenAI's own does.
        connection: The options of `PooledProvider`. A compatible server's `base_url` holds the
            version, such as `http://localhost:8000/v1`.

    Source: decisions 50, 56 and 61.
    """

    _VENDOR_ID = "openai"
    _VENDOR_URL = "https://api.openai.com/v1"

    def __init__(
        self,
        *,
        api: OpenAIApi | None = None,
        capabilities: Capabilities | Callable[[str], Capabilities] | None = None,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = None,
        stream_usage: bool = True,
        prompt_cache: bool | None = None,
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        super().__init__(**connection)
        own = connection.get("base_url") is None
        self._capabilities = capabilities or (openai_capabilities if own else COMPATIBLE)
        self._api: ResponsesApi | ChatApi
        caches = own if prompt_cache is None else prompt_cache
        if (api or ("responses" if own else "chat")) == "responses":
            self._api = ResponsesApi(reasoning_summary, caches)
        else:
            limit: Literal["max_completion_tokens", "max_tokens"]
            limit, id_chars = ("max_completion_tokens", _ID_CHARS) if own else ("max_tokens", None)
            self._api = ChatApi(limit, stream_usage, id_chars, caches)

    def __repr__(self) -> str:
        return f"<OpenAIProvider {self._provider_id!r} at {self._api.path}>"

    def capabilities(self, model: str) -> Capabilities:
        """Return the capabilities of a model."""
        told = self._capabilities
        return told if isinstance(told, Capabilities) else told(model)

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Ask a model, and yield its answer as it arrives; see `LlmProvider.stream`."""
        failure: LlmError | None = None
        try:
            self._check(request.model, key)
            reader = self._api.reader()
            body = await self._body(request, media, stream=True)
            events = await self._open(body, key)
            iterator = aiter(events)
            try:
                async for event in iterator:
                    for chunk in reader.read(event):
                        yield chunk
                    if reader.finished or events.said_done:
                        # Read the few bytes behind an answer, so that its connection can be used
                        # again.
                        with anyio.move_on_after(_DRAIN_S):
                            await _run_out(iterator)
                        break
                for chunk in reader.end(said_done=events.said_done):
                    yield chunk
            finally:
                with anyio.move_on_after(_CLOSING_S, shield=True):
                    await events.close()
                    await _run_out(iterator)
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key)
        if failure is not None:  # raised out here, so that its __context__ can't hold the key
            raise failure

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and return its whole answer; see `LlmProvider.generate`."""
        try:
            self._check(request.model, key)
            body = await self._body(request, media, stream=False)
            client = await self._pools.get()
            answer = await client.post(
                self._api.path,
                cast_to=object,
                body=body,
                options={"headers": _key_headers(key, self._headers)},
            )
            fold = StreamFold(self._provider_id, request.model)
            for chunk in self._api.reader().whole(answer):
                fold.add(chunk)
            return fold.result()
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key)
        raise failure

    async def generate_media(
        self, request: MediaRequest, *, key: str, media: MediaStore
    ) -> MediaOutcome:
        """Make images, and store them; see `MediaProvider.generate_media`."""
        try:
            self._check(request.model, key)
            contents = await read_contents(request.inputs, media, self._provider_id, request.model)
            client = await self._pools.get()
            headers = _key_headers(key, self._headers)
            answer = await ask_for_images(client, request, contents, headers)
            images, media_type, usage = images_in(answer)
            parts = [await anyio.to_thread.run_sync(media.put, one, media_type) for one in images]
            return MediaResult(tuple(parts), request.model, usage)
        except Exception as error:
            failure = error_of(error, self._provider_id, request.model, key)
        raise failure

    async def poll_media(self, job_id: str, *, key: str, media: MediaStore) -> MediaOutcome:
        """Raise LlmError, because this endpoint has no jobs."""
        raise LlmError(
            f"{self._provider_id} begins no jobs, and knows none called {job_id!r}.",
            kind="bad_request",
            provider=self._provider_id,
        )

    def _open_pool(self) -> openai.AsyncOpenAI:
        client = openai.AsyncOpenAI(
            api_key=_NO_KEY, base_url=self._base_url, max_retries=0, http_client=self._http_pool()
        )
        # Drop the values that the SDK found in the environment.
        client.admin_api_key = client.organization = client.project = client.webhook_secret = None
        client._custom_headers = self._headers
        return client

    async def _close_pool(self, pool: openai.AsyncOpenAI) -> None:
        await pool.close()

    async def _body(
        self, request: LlmRequest, media: MediaStore | None, *, stream: bool
    ) -> dict[str, Any]:
        contents = await read_contents(media_of(request), media, self._provider_id, request.model)
        can = self.capabilities(request.model)
        return self._api.body(request, contents, self._provider_id, can, stream=stream)

    async def _open(self, body: dict[str, Any], key: str) -> "_Events":
        client = await self._pools.get()
        return await client.post(
            self._api.path,
            cast_to=object,
            body=body,
            options={"headers": _key_headers(key, self._headers)},
            stream=True,
            stream_cls=_Events,
        )


async def _run_out(iterator: AsyncIterator[object]) -> None:
    """Run the SDK's generators to their end, so that none is left to the garbage collector."""
    try:
        async for _ in iterator:
            pass
    except Exception:  # the answer is complete, or isn't needed any more
        return


# The vendor's SDK, set up without a key, environment or retries.


class _Events(openai.AsyncStream[object]):
    """A stream of plain JSON events, which records whether the server sent `[DONE]`."""

    said_done = False

    async def _iter_events(self) -> AsyncIterator[ServerSentEvent]:
        async for event in super()._iter_events():
            if event.data.startswith("[DONE]"):
                # At this event, the SDK would leave its generators to the garbage collector.
                self.said_done = True
                yield ServerSentEvent(data="null")
            else:
                yield event


def _key_headers(key: str, headers: Mapping[str, str]) -> dict[str, str | openai.Omit]:
    """Return the headers of one call: its key, unless another authorisation is in `headers`."""
    if key:
        return {"Authorization": f"Bearer {key}"}
    if any(name.lower() == "authorization" for name in headers):
        return {}
    return {"Authorization": openai.Omit()}
