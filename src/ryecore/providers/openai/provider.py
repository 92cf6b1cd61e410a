"""The adapter itself: the calls of the seam, over the vendor's SDK."""

from collections.abc import AsyncIterator, Callable, Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final, Literal, TypeAlias

import anyio
import anyio.to_thread
import httpx2
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
from ryecore.providers.connections import MAX_ANSWER_BYTES, PooledProvider, make_transport
from ryecore.providers.openai.errors import error_of
from ryecore.providers.openai.media import ask_for_images, images_in, media_of, read_contents
from ryecore.providers.openai.models import COMPATIBLE, openai_capabilities
from ryecore.providers.openai.request import ChatApi, ResponsesApi

__all__ = ["OpenAIApi", "OpenAIProvider"]

OpenAIApi: TypeAlias = Literal["responses", "chat"]
"""Which of the vendor's two formats is spoken."""

_NO_KEY = "given-with-each-call"
_OPENAI = "https://api.openai.com/v1"
_CONNECT_S = 10.0
_CLOSING_S: Final = 5.0
_ID_CHARS: Final = 40
_DRAIN_S: Final = 1.0


class OpenAIProvider(PooledProvider[openai.AsyncOpenAI]):
    """OpenAI, or any server that speaks its format. It works on asyncio and trio.

    It has no key: each call brings its own. It reads no environment variable, follows no redirect,
    keeps no cookie, and tries nothing twice.

    Args:
        base_url: Where the server is, with its version: `http://localhost:8000/v1`; OpenAI's own
            address where None.
        api: The format: `responses` for OpenAI's own server, else `chat`, by default.
        provider_id: What the provider is called.
        capabilities: What every model can do, or a function that says it of a model by its name.
            By default all is thought possible that OpenAI's names don't exclude.
        timeout_s: How long to wait for the next bytes, in seconds.
        headers: More headers for every request.
        proxy: A proxy's address; none of the environment counts.
        reasoning_summary: How much of its reasoning a model shows over `responses`; OpenAI wants
            organisations verified that ask for it. None for nothing.
        stream_usage: Whether streams over `chat` are asked for their usage. There are servers that
            refuse to be asked.
        max_answer_bytes: How large an answer may be that comes whole, or one event of a stream, in
            bytes; a whole stream may have four times as much.

    Source: decisions 50, 56 and 61.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api: OpenAIApi | None = None,
        provider_id: str = "openai",
        capabilities: Capabilities | Callable[[str], Capabilities] | None = None,
        timeout_s: float = 600.0,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        reasoning_summary: Literal["auto", "concise", "detailed"] | None = None,
        stream_usage: bool = True,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        own = base_url is None
        more = self._headers = dict(headers or {})
        super().__init__(
            provider_id,
            lambda: _make_client(base_url, timeout_s, more, proxy, max_answer_bytes),
            openai.AsyncOpenAI.close,
        )
        self._capabilities = capabilities or (openai_capabilities if own else COMPATIBLE)
        self._api: ResponsesApi | ChatApi
        if (api or ("responses" if own else "chat")) == "responses":
            self._api = ResponsesApi(reasoning_summary)
        else:
            limit: Literal["max_completion_tokens", "max_tokens"]
            limit, id_chars = ("max_completion_tokens", _ID_CHARS) if own else ("max_tokens", None)
            self._api = ChatApi(limit, stream_usage, id_chars)

    def __repr__(self) -> str:
        return f"<OpenAIProvider {self._provider_id!r} at {self._api.path}>"

    def capabilities(self, model: str) -> Capabilities:
        """What a model can do."""
        told = self._capabilities
        return told if isinstance(told, Capabilities) else told(model)

    async def stream(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> AsyncIterator[StreamChunk]:
        """Ask a model, and give its answer as it comes.

        Raises:
            LlmError: It can't answer, or broke off.
        """
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
                        # The few bytes behind an answer are read, so that its connection can
                        # serve again.
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
        if failure is not None:  # raised out here, it has no __context__ that knows the key
            raise failure

    async def generate(
        self, request: LlmRequest, *, key: str, media: MediaStore | None = None
    ) -> LlmResult:
        """Ask a model, and give its whole answer, in one request that isn't streamed.

        Raises:
            LlmError: It can't answer.
        """
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
        """Make images, and put them into the store.

        Raises:
            LlmError: They can't be made.
        """
        try:
            self._check(request.model, key)
            contents = await read_contents(request.inputs, media)
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
        """Refuse: this endpoint begins no jobs.

        Raises:
            LlmError: Always.
        """
        raise LlmError(
            f"{self._provider_id} begins no jobs, and knows none called {job_id!r}.",
            kind="bad_request",
            provider=self._provider_id,
        )

    async def _body(
        self, request: LlmRequest, media: MediaStore | None, *, stream: bool
    ) -> dict[str, Any]:
        contents = await read_contents(media_of(request), media)
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
    """Let the SDK's generators come to their end, whatever it is: none is left to the collector."""
    try:
        async for _ in iterator:
            pass
    except Exception:  # the answer is whole, or isn't wanted any more
        return


# The vendor's SDK, made so that it knows no key, reads no environment and tries nothing twice.


class _Events(openai.AsyncStream[object]):
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


def _make_client(
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


def _key_headers(key: str, headers: Mapping[str, str]) -> dict[str, str | openai.Omit]:
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
